//! Stages that a job requests while it runs: the service behind libdatawarp.
//!
//! A job's processes find a Unix socket in their environment ([`SOCKET_VARIABLE`](forebay_protocol::staging::SOCKET_VARIABLE)). The compute node that
//! they run on answers for whatever job a process names, on behalf of the user to whom the process
//! belongs by the kernel's account; the controller checks that the job is that user's. Stages
//! belong to the controller, so that they survive this process, and so that all processes on all
//! hosts of the job see the same: a stage deferred to the job's end is done by `recover`, too.

mod call_memory;
mod commands;
mod instance_path;
mod job;
mod job_cache;
mod queries;
mod refused;
mod service;
mod stage_index;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_control::messages::Owner;
use forebay_net::job_socket::{receive_call, send_reply};
use forebay_net::stream::Stream;
use forebay_protocol::Errno;
use forebay_protocol::staging::{JobRequest, StagingReply};

use crate::client::ControllerClient;
use crate::connection::Endpoint;
use crate::control_channel;
use crate::error::DaemonError;
use call_memory::CallMemory;
use forebay_net::admission::{ConnectionLimits, ConnectionPermit, Principal, SharedAdmission};
use forebay_net::listener::Listener;
use job_cache::JobCache;
use refused::Refused;
use service::JobService;

/// Maximum jobs whose connection with the controller is kept for the next call.
const MAX_CACHED_JOBS: usize = 256;
/// Time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a process to send its call, and to read the reply.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Connection limits. Each call in progress has a connection, and one that waits for a stage takes
/// long.
fn connection_limits() -> ConnectionLimits {
    ConnectionLimits { user: 1024, ..control_channel::connection_limits() }
}

/// The service for all jobs on a compute node.
pub(crate) struct JobApi {
    controller: Endpoint,
    socket: PathBuf,
    /// Directory of the instances' mount points.
    mounts: PathBuf,
    jobs: JobCache<JobService>,
    memory: CallMemory,
}

impl JobApi {
    /// The service of a host whose instances are mounted below `mounts`.
    pub fn new(controller: Endpoint, socket: PathBuf, mounts: PathBuf) -> JobApi {
        let (jobs, memory) = (JobCache::new(MAX_CACHED_JOBS), CallMemory::default());
        JobApi { controller, socket, mounts, jobs, memory }
    }

    /// Serves the calls that come through a socket, until the listener is dropped.
    pub fn serve(self: &Arc<Self>, listener: &Listener) -> Result<(), DaemonError> {
        let api = self.clone();
        let admission = SharedAdmission::new(connection_limits());
        let served = listener.serve(admission, move |stream, permit| {
            api.serve_connection(&stream, &permit);
        });
        served.map_err(DaemonError::with_context("cannot start a thread"))
    }

    /// Answers the one call of a connection.
    fn serve_connection(&self, stream: &Arc<Stream>, permit: &ConnectionPermit) {
        if stream.set_timeout(Some(CALL_TIMEOUT)).is_err() {
            return;
        }
        let reply = self.answer(stream, permit);
        // The process may have ended.
        let _ = send_reply(stream, &reply.unwrap_or_else(StagingReply::from));
    }

    fn answer(
        &self,
        stream: &Arc<Stream>,
        permit: &ConnectionPermit,
    ) -> Result<StagingReply, Refused> {
        let peer = rustix::net::sockopt::socket_peercred(stream)
            .map_err(|errno| Refused(Errno(errno.raw_os_error()), errno.to_string()))?;
        let owner = Owner { uid: peer.uid.as_raw(), gid: peer.gid.as_raw() };
        let principal = match owner.uid {
            0 => Principal::Trusted,
            uid => Principal::User(uid),
        };
        permit.admit(principal).map_err(|reason| Refused(Errno::EAGAIN, reason.to_string()))?;
        // Until the call is answered.
        let (mut memory, mut is_full) = (None, false);
        let call = receive_call(stream, |bytes| {
            memory = self.memory.take(owner.uid, bytes);
            is_full = memory.is_none();
            if is_full { Err(std::io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
        });
        let call = call.map_err(|error| match is_full {
            true => Refused(Errno::EAGAIN, "too many long calls are in progress".to_owned()),
            false => Refused(Errno::EPROTO, error.to_string()),
        })?;
        self.answer_call(owner, call)
    }

    /// Answers a call of a user's process. Blocks, if the call waits for stages, until they are over.
    pub fn answer_call(&self, owner: Owner, call: JobRequest) -> Result<StagingReply, Refused> {
        Ok(self.service(owner, call.job)?.answer(call.call))
    }

    /// The service for a job, over its own connection with the controller.
    fn service(&self, owner: Owner, job: String) -> Result<Arc<JobService>, Refused> {
        let key = (owner, job);
        if let Some(known) = self.jobs.get(&key) {
            return Ok(known);
        }
        let (controller, socket) = (self.controller.clone(), self.socket.clone());
        let client = ControllerClient::connect(vec![Ok(controller)], Some(owner), socket, None)
            .map_err(|error| Refused(Errno::ETIMEDOUT, error.to_string()))?;
        let service = JobService::new(client, key.1.clone(), self.mounts.clone());
        Ok(self.jobs.insert(key, service))
    }

    /// Closes the connections for jobs that have made no call for a while.
    pub fn drop_idle(&self) {
        self.jobs.drop_unused(IDLE_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use forebay_net::frame::{self, Flags, Kind};
    use forebay_net::job_socket::{MAX_STAGING_BODY_BYTES, call_service};
    use forebay_protocol::address::Address;
    use forebay_protocol::staging::{PathKind, StagingCall};

    /// A call with a body of nearly the maximal length.
    fn long_call() -> JobRequest {
        let path = "x".repeat(MAX_STAGING_BODY_BYTES - 1000);
        JobRequest { job: "7".into(), call: StagingCall::Query(PathKind::File, vec![path]) }
    }

    fn refusal(reply: &StagingReply) -> i32 {
        match reply {
            StagingReply::Refused(errno, _) => *errno,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn long_calls_of_a_user_take_bounded_memory_until_they_are_answered() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("calls");
        let controller = Endpoint::Socket {
            address: Address::Unix(directory.path().join("controller")),
            identity: forebay_net::auth::Authenticator::default(),
        };
        let api = JobApi::new(controller, socket.clone(), directory.path().to_owned());
        let listener = control_channel::listen_unix(&socket, 0o666).unwrap();
        Arc::new(api).serve(&listener).unwrap();
        let mut call = Vec::new();
        let fields = (Kind::Call, Flags::default(), 0);
        frame::encode(&mut call, fields, &long_call(), 0, MAX_STAGING_BODY_BYTES).unwrap();
        // Each has sent so much that its body is being received.
        let begun: Vec<UnixStream> = (0..100)
            .map(|_| {
                let mut stream = UnixStream::connect(&socket).unwrap();
                // The service may have refused it already.
                let _ = stream.write_all(&call[..128 << 10]);
                stream
            })
            .collect();
        let mut held = 0;
        for mut stream in begun.iter() {
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            match stream.read(&mut [0]) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => held += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(held, call_memory::MAX_USER_BYTES / MAX_STAGING_BODY_BYTES);
        let reply = call_service(&socket, &long_call()).unwrap();
        assert_eq!(refusal(&reply), Errno::EAGAIN.0, "{reply:?}");
        let short =
            JobRequest { job: "7".into(), call: StagingCall::Query(PathKind::File, vec![]) };
        let reply = call_service(&socket, &short).unwrap();
        assert_eq!(refusal(&reply), Errno::ETIMEDOUT.0, "there is no controller: {reply:?}");
        drop(begun);
        let begun = std::time::Instant::now();
        while refusal(&call_service(&socket, &long_call()).unwrap()) == Errno::EAGAIN.0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the memory is not given back");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
