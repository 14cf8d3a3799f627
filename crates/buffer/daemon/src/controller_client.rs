//! What one can ask of a pool's controller, wherever that is.

use std::sync::mpsc::Receiver;

use forebay_job_script::BufferPath;

use crate::activity::Status;
use forebay_control::controller::{Cause, Failure, JobView, Outcome, Request, RequestedStage};
use forebay_control::messages::{Owner, StageId};

/// The controller of a pool, as someone in particular asks it: that of an embedded pool in this
/// process, or one on another host.
pub trait ControllerClient: Send + Sync {
    /// The user and group that requests are made for.
    fn caller(&self) -> Owner;

    /// Asks; the answer comes through the channel.
    fn submit(&self, request: Request) -> Result<Receiver<Outcome>, Failure>;

    /// Asks and waits for the answer.
    fn request(&self, request: Request) -> Outcome {
        let answer = self.submit(request)?;
        answer.recv().unwrap_or_else(|_| Err(controller_gone()))
    }

    /// Pools, nodes, sessions, instances and stages.
    fn status(&self) -> Result<Status, Failure>;

    /// The variables of a session's job and what they are set to.
    fn mount_variables(&self, token: &str) -> Result<Vec<(String, String)>, Failure>;

    /// A job as its own processes may know it.
    fn job_view(&self, token: &str) -> Result<JobView, Failure>;

    /// What a running job has asked to be staged, as
    /// [`Controller::asked`](forebay_control::controller::Controller::asked) says it.
    fn requested_stages(
        &self,
        token: &str,
        about: &[BufferPath],
        numbers: &[StageId],
    ) -> Result<Vec<RequestedStage>, Failure>;
}

/// The controller will not answer any more.
pub(crate) fn controller_gone() -> Failure {
    Failure::new(
        Cause::Failed,
        "the pool's controller has ended, or the connection to it; see what was said before",
    )
}
