//! The service on a compute node of a pool over several hosts: the agent answers for whatever job
//! a process names, in the name of the user that the kernel says the process belongs to. The
//! controller decides whether the job is that user's.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_net::job_socket::{receive, send};
use forebay_net::stream::Stream;
use forebay_protocol::Errno;
use forebay_protocol::staging::{JobRequest, StagingReply};

use super::job_cache::JobCache;
use super::service::{JobService, Refused};
use super::set_call_timeouts;
use crate::hosts::doors::{Limits, Ticket};
use crate::hosts::{Identity, PoolConfig, RemoteController};
use forebay_control::messages::Owner;

/// Jobs whose connection with the controller is kept for the next call.
const MOST_JOBS: usize = 256;
/// A connection that is not used for so long is given up.
const IDLE: Duration = Duration::from_secs(60);

/// The service for all jobs on a compute node.
pub(crate) struct AgentJobApi {
    config: PoolConfig,
    identity: Identity,
    mounts: PathBuf,
    jobs: JobCache<JobService>,
}

impl AgentJobApi {
    /// Each call under way has a connection, and those that wait for a stage take long.
    pub const LIMITS: Limits = Limits {
        user: 1024,
        ..Limits::USUAL
    };

    /// For a host whose instances are mounted below `mounts`.
    pub fn new(config: PoolConfig, identity: Identity, mounts: PathBuf) -> AgentJobApi {
        AgentJobApi {
            config,
            identity,
            mounts,
            jobs: JobCache::new(MOST_JOBS),
        }
    }

    /// Answers the one call of a connection.
    pub fn serve(&self, stream: &Stream, ticket: Ticket) {
        let Stream::Unix(stream) = stream else {
            return;
        };
        if set_call_timeouts(stream).is_err() {
            return;
        }
        let answer = self
            .answer(stream, ticket)
            .unwrap_or_else(StagingReply::from);
        // Whoever asked may have gone.
        let mut stream = stream;
        let _ = send(&mut stream, &answer);
    }

    fn answer(&self, mut stream: &UnixStream, mut ticket: Ticket) -> Result<StagingReply, Refused> {
        let peer = rustix::net::sockopt::socket_peercred(stream)
            .map_err(|errno| Refused(Errno(errno.raw_os_error()), errno.to_string()))?;
        let owner = Owner {
            uid: peer.uid.as_raw(),
            gid: peer.gid.as_raw(),
        };
        let guest = (owner.uid != 0).then_some(owner.uid);
        ticket
            .admit(guest)
            .map_err(|reason| Refused(Errno::EAGAIN, reason))?;
        let asked: JobRequest =
            receive(&mut stream).map_err(|error| Refused(Errno::EPROTO, error.to_string()))?;
        Ok(self.service(owner, asked.job)?.answer(asked.call))
    }

    /// The service for a job, over a connection with the controller of its own.
    fn service(&self, owner: Owner, job: String) -> Result<Arc<JobService>, Refused> {
        let key = (owner, job);
        if let Some(known) = self.jobs.get(&key) {
            return Ok(known);
        }
        let remote = RemoteController::connect_as(&self.config, &self.identity, owner)
            .map_err(|error| Refused(Errno::ETIMEDOUT, error.to_string()))?;
        let service = JobService::new(Arc::new(remote), key.1.clone(), self.mounts.clone());
        Ok(self.jobs.insert(key, service))
    }

    /// Gives up the connections for jobs that have not called for a while.
    pub fn drop_idle(&self) {
        self.jobs.drop_unused(IDLE);
    }
}
