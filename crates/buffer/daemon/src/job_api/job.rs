//! A running job, as seen by one call of its processes.

use std::path::Path;

use forebay_control::controller::{Cause, Failure, Outcome, Request, RequestedStage, Striping};
use forebay_control::messages::StageId;
use forebay_job_script::{BufferPath, InstanceRef};
use parking_lot::Mutex;

use super::instance_path::{InstanceRoot, instance_roots, locate};
use super::refused::{ENOTCONN, Refused, invalid_argument};
use super::stage_index::StageIndex;
use crate::client::ControllerClient;

/// Maximum stages, and bytes of paths, in one query: a message to a controller has a maximum size.
const MAX_STAGES_PER_QUERY: usize = 1000;
const MAX_PATH_BYTES_PER_QUERY: usize = 128 << 10;
/// Maximum requests in flight, within the controller's limit for one connection.
const MAX_REQUESTS_IN_FLIGHT: usize = 64;

/// A mounted job.
pub(super) struct Job<'a> {
    pub client: &'a ControllerClient,
    pub token: &'a str,
    /// Directory of the instances' mount points: no path of the parallel file system is below it.
    pub mounts: &'a Path,
    /// Held from the lookup of stages until new ones are accepted.
    pub begin_lock: &'a Mutex<()>,
    pub roots: Vec<InstanceRoot>,
    pub striping: Vec<(InstanceRef, Striping)>,
}

impl<'a> Job<'a> {
    /// Queries the job's state. Fails if it is not mounted: from then on the stages deferred to its
    /// end are fixed.
    pub fn query(
        client: &'a ControllerClient,
        token: &'a str,
        mounts: &'a Path,
        begin_lock: &'a Mutex<()>,
    ) -> Result<Job<'a>, Refused> {
        let view = client.job_view(token);
        let view = view.map_err(|failure| not_found_as_ended(token, failure))?;
        if !view.mounted {
            return Err(not_running(token));
        }
        Ok(Job {
            client,
            token,
            mounts,
            begin_lock,
            roots: instance_roots(&view.mount_variables),
            striping: view.striping,
        })
    }

    /// Locates paths in the job's instances.
    pub fn instance_paths(&self, paths: &[String]) -> Result<Vec<BufferPath>, Refused> {
        if paths.is_empty() {
            return invalid_argument("the list is empty");
        }
        paths.iter().map(|path| locate(&self.roots, path)).collect()
    }

    /// The requested stages that concern these paths, and their index by path.
    pub fn stages_about(
        &self,
        paths: &[BufferPath],
    ) -> Result<(Vec<RequestedStage>, StageIndex), Refused> {
        let mut stages = Vec::new();
        let mut rest = paths;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |path: &&BufferPath| {
                bytes += path.path.len();
                bytes <= MAX_PATH_BYTES_PER_QUERY
            };
            let count = rest.iter().take(MAX_STAGES_PER_QUERY);
            let count = count.take_while(fits).count().max(1);
            let (some, more) = rest.split_at(count);
            stages.extend(self.requested_stages(some, &[])?);
            rest = more;
        }
        stages.sort_by_key(|stage| stage.id);
        stages.dedup_by_key(|stage| stage.id);
        let index = StageIndex::from_stages(&stages);
        Ok((stages, index))
    }

    /// The state of these stages; unknown ones are left out.
    pub fn stages_by_id(&self, ids: &[StageId]) -> Result<Vec<RequestedStage>, Refused> {
        let mut stages = Vec::new();
        for ids in ids.chunks(MAX_STAGES_PER_QUERY) {
            stages.extend(self.requested_stages(&[], ids)?);
        }
        Ok(stages)
    }

    fn requested_stages(
        &self,
        paths: &[BufferPath],
        ids: &[StageId],
    ) -> Result<Vec<RequestedStage>, Refused> {
        self.client
            .requested_stages(self.token, paths, ids)
            .map_err(|failure| not_found_as_ended(self.token, failure))
    }

    /// Sends requests, several at a time, and returns their outcomes in the same order.
    pub fn request_all(&self, requests: Vec<Request>) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter();
        loop {
            let window = requests.by_ref().take(MAX_REQUESTS_IN_FLIGHT);
            let window: Result<Vec<_>, Failure> =
                window.map(|request| self.client.submit(request)).collect();
            let window = window?;
            if window.is_empty() {
                return Ok(outcomes);
            }
            outcomes.extend(window.iter().map(|outcome| {
                outcome.recv().unwrap_or_else(|_| {
                    let reason = "the pool's controller has stopped";
                    Err(Failure::new(Cause::Failed, reason))
                })
            }));
        }
    }
}

fn not_running(token: &str) -> Refused {
    Refused(ENOTCONN, format!("job {token} is not running"))
}

/// A job that the controller does not know has ended.
fn not_found_as_ended(token: &str, failure: Failure) -> Refused {
    match failure.cause {
        Cause::NotFound => not_running(token),
        Cause::Denied
        | Cause::Exists
        | Cause::Busy
        | Cause::Full
        | Cause::Invalid
        | Cause::TimedOut
        | Cause::Failed => failure.into(),
    }
}
