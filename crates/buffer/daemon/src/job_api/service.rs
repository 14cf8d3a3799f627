//! The service for the processes of one job.

use std::path::PathBuf;

use forebay_job_script::Direction;
use forebay_protocol::staging::{StageOutTime, StagingCall, StagingReply};
use parking_lot::Mutex;

use super::job::Job;
use super::refused::Refused;
use super::{commands, queries};
use crate::client::ControllerClient;

/// Answers the processes of one job on one host.
pub(super) struct JobService {
    client: ControllerClient,
    token: String,
    mounts: PathBuf,
    begin_lock: Mutex<()>,
}

impl JobService {
    /// The service for the job `token`, whose instances are mounted below `mounts`.
    pub fn new(client: ControllerClient, token: String, mounts: PathBuf) -> JobService {
        JobService { client, token, mounts, begin_lock: Mutex::default() }
    }

    /// Carries out a call. Blocks, if the call waits for stages, until they are over.
    pub fn answer(&self, call: StagingCall) -> StagingReply {
        let outcome = self.carry_out(call);
        outcome.unwrap_or_else(StagingReply::from)
    }

    fn carry_out(&self, call: StagingCall) -> Result<StagingReply, Refused> {
        let job = Job::query(&self.client, &self.token, &self.mounts, &self.begin_lock)?;
        match call {
            StagingCall::StageIn(kind, pairs) => {
                commands::begin_stages(&job, kind, pairs, Direction::In, StageOutTime::Now)
            }
            StagingCall::StageOut(kind, pairs, when) => {
                commands::begin_stages(&job, kind, pairs, Direction::Out, when)
            }
            StagingCall::Revoke(kind, paths) => commands::revoke_stages(&job, kind, &paths),
            StagingCall::Activate(kind, paths) => commands::release_stages(&job, kind, &paths),
            StagingCall::Terminate(kind, paths) => commands::terminate_stages(&job, kind, &paths),
            StagingCall::SetConcurrency(path, max) => commands::limit_stages(&job, &path, max),
            StagingCall::Query(kind, paths) => queries::count_stages(&job, kind, &paths),
            StagingCall::Wait(kind, paths) => queries::wait_for_stages(&job, kind, &paths),
            StagingCall::QueryStripes(path, inode) => queries::query_stripes(&job, &path, inode),
            StagingCall::QueryFailures(path) => queries::query_failures(&job, &path),
        }
    }
}
