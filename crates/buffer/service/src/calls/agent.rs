//! The service on a compute node of a pool over several hosts: the agent answers for whatever job
//! a process names, in the name of the user that the kernel says the process belongs to. The
//! controller decides whether the job is that user's.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_wire::Errno;
use forebay_wire::staging::{Answer, JobCall, receive, send};
use forebay_wire::stream::Stream;

use super::hurry;
use super::service::{Refused, Service};
use crate::hosts::doors::{Limits, Ticket};
use crate::hosts::{Identity, PoolConfig, Remote};
use crate::protocol::Owner;

/// Jobs whose connection with the controller is kept for the next call.
const MOST_JOBS: usize = 256;
/// A connection that is not used for so long is given up.
const IDLE: Duration = Duration::from_secs(60);

/// A job, by who asks and its id.
type Key = (Owner, String);

/// The service for all jobs on a compute node.
pub(crate) struct AgentCalls {
    config: PoolConfig,
    identity: Identity,
    mounts: PathBuf,
    jobs: Mutex<HashMap<Key, (Arc<Service>, Instant)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AgentCalls {
    /// Each call under way has a connection, and those that wait for a stage take long.
    pub const LIMITS: Limits = Limits {
        user: 1024,
        ..Limits::USUAL
    };

    /// For a host whose instances are mounted below `mounts`.
    pub fn new(config: PoolConfig, identity: Identity, mounts: PathBuf) -> AgentCalls {
        AgentCalls {
            config,
            identity,
            mounts,
            jobs: Mutex::default(),
        }
    }

    /// Answers the one call of a connection.
    pub fn serve(&self, stream: &Stream, ticket: Ticket) {
        let Stream::Unix(stream) = stream else {
            return;
        };
        if hurry(stream).is_err() {
            return;
        }
        let answer = self.answer(stream, ticket).unwrap_or_else(Answer::from);
        // Whoever asked may have gone.
        let mut stream = stream;
        let _ = send(&mut stream, &answer);
    }

    fn answer(&self, mut stream: &UnixStream, mut ticket: Ticket) -> Result<Answer, Refused> {
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
        let asked: JobCall =
            receive(&mut stream).map_err(|error| Refused(Errno::EPROTO, error.to_string()))?;
        Ok(self.service(owner, asked.job)?.answer(asked.call))
    }

    /// The service for a job, over a connection with the controller of its own.
    fn service(&self, owner: Owner, job: String) -> Result<Arc<Service>, Refused> {
        let key = (owner, job);
        if let Some((service, used)) = lock(&self.jobs).get_mut(&key) {
            *used = Instant::now();
            return Ok(service.clone());
        }
        let remote = Remote::on_behalf(&self.config, &self.identity, owner)
            .map_err(|error| Refused(Errno::ETIMEDOUT, error.to_string()))?;
        let control = Arc::new(remote);
        let service = Arc::new(Service::new(control, key.1.clone(), self.mounts.clone()));
        let mut jobs = lock(&self.jobs);
        // Another process of the job may have been faster.
        if let Some((known, used)) = jobs.get_mut(&key) {
            *used = Instant::now();
            let known = known.clone();
            drop(jobs);
            return Ok(known);
        }
        let mut oldest = None;
        if jobs.len() >= MOST_JOBS {
            let found = jobs.iter().min_by_key(|(_, (_, used))| *used);
            let found = found.map(|(key, _)| key.clone());
            oldest = found.and_then(|key| jobs.remove(&key));
        }
        jobs.insert(key, (service.clone(), Instant::now()));
        // Ending a connection waits for its thread: not while others wait for the lock.
        drop(jobs);
        drop(oldest);
        Ok(service)
    }

    /// Gives up the connections for jobs that have not called for a while.
    pub fn forget_idle(&self) {
        let mut idle = Vec::new();
        lock(&self.jobs).retain(|_, (service, used)| {
            let keep = used.elapsed() < IDLE || Arc::strong_count(service) > 1;
            if !keep {
                idle.push(service.clone());
            }
            keep
        });
        // Not while others wait for the lock, as above.
        drop(idle);
    }
}
