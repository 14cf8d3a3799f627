//! What one can ask of a pool's controller, wherever that is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use forebay_job_script::BufferPath;

use crate::activity::Status;
use forebay_control::controller::{
    Cause, Failure, JobView, Outcome, Request, RequestId, RequestedStage,
};
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

/// Idempotency keys for the requests of one client.
#[derive(Debug)]
pub(crate) struct RequestIds {
    first: u128,
    used: AtomicU64,
}

impl RequestIds {
    /// Keys that no other client uses: they count up from a random number.
    pub fn new() -> std::io::Result<RequestIds> {
        let mut random = [0; 16];
        random.copy_from_slice(&forebay_protocol::random::random_nonce()?[..16]);
        Ok(RequestIds {
            first: u128::from_le_bytes(random),
            used: AtomicU64::new(0),
        })
    }

    /// A key that was not used before.
    pub fn next_id(&self) -> RequestId {
        let used = self.used.fetch_add(1, Ordering::Relaxed);
        RequestId(self.first.wrapping_add(used.into()))
    }
}
