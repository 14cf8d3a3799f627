//! Staging that a job asks for while it runs: the service behind libdatawarp.
//!
//! A job's processes find a Unix socket in their environment
//! ([`SOCKET`]): that of `forebay run` on an embedded pool, that of
//! their host's agent on a pool over several hosts. Only the job's owner and root are answered, as
//! the kernel says who they are. Stages become the controller's, so that they survive this process,
//! and so that all processes on all hosts of the job are told the same of them: what was to be
//! staged at the job's end is staged by `recover`, too.

mod agent;
mod commands;
mod job_cache;
mod queries;
mod service;
mod stage_index;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_net::job_socket::{receive, send};
use forebay_protocol::Errno;
use forebay_protocol::staging::{JobRequest, SOCKET_VARIABLE, StagingReply};

pub(crate) use agent::AgentJobApi;

use crate::controller_client::ControllerClient;
use crate::embedded::Asker;
use service::{JobService, Refused};

/// Calls that are carried out at a time, each on a thread; more are asked to come again. Processes
/// that wait for a stage have one each as long as it takes: there are more than a node has cores.
const MOST_CALLS: usize = 2048;
/// Time that a process has to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest path of a Unix socket, with room to spare.
const SOCKET_PATH: usize = 100;

/// The service for one job of an embedded pool. Dropping it ends it.
pub struct JobApi {
    socket: PathBuf,
    ended: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl JobApi {
    /// Serves the mounted job `token` in the pool in `directory`.
    pub fn open(asker: &Asker, directory: &Path, token: &str) -> io::Result<JobApi> {
        let mut socket = directory.join("calls.socket");
        if socket.as_os_str().len() > SOCKET_PATH {
            let name = format!("forebay-{}-calls.socket", std::process::id());
            socket = std::env::temp_dir().join(name);
        }
        // One process at a time has the pool: whatever is there is the rest of a killed one.
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&socket)?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
        let owner = asker.caller().uid;
        let control = Arc::new(asker.clone());
        let mounts = directory.join("mounts");
        let job = Arc::new(Embedded {
            service: JobService::new(control, token.to_owned(), mounts),
            token: token.to_owned(),
            owner,
        });
        let ended = Arc::new(AtomicBool::new(false));
        let seen = ended.clone();
        let thread = std::thread::Builder::new().name("forebay-calls".into());
        let thread = thread.spawn(move || listen(&listener, &job, &seen))?;
        Ok(JobApi {
            socket,
            ended,
            listener: Some(thread),
        })
    }

    /// The variable that tells the job's processes of the service.
    pub fn variable(&self) -> (String, String) {
        (
            SOCKET_VARIABLE.to_owned(),
            self.socket.display().to_string(),
        )
    }
}

impl Drop for JobApi {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the listener.
        let woken = UnixStream::connect(&self.socket).is_ok();
        if let (true, Some(listener)) = (woken, self.listener.take()) {
            let _ = listener.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

/// The one job of an embedded pool that runs.
struct Embedded {
    service: JobService,
    token: String,
    owner: u32,
}

fn listen(listener: &UnixListener, job: &Arc<Embedded>, ended: &AtomicBool) {
    let calls = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept();
        if ended.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            // Too many files are open, for instance: that may pass.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if set_call_timeouts(&stream).is_err() {
            continue;
        }
        if calls.fetch_add(1, Ordering::AcqRel) >= MOST_CALLS {
            calls.fetch_sub(1, Ordering::AcqRel);
            let reason = format!("{MOST_CALLS} calls are under way");
            let _ = send(
                &mut &stream,
                &StagingReply::Refused(Errno::EAGAIN.0, reason),
            );
            continue;
        }
        let (job, under_way) = (job.clone(), calls.clone());
        let thread = std::thread::Builder::new().name("forebay-call".into());
        let begun = thread.spawn(move || {
            serve(stream, &job);
            under_way.fetch_sub(1, Ordering::AcqRel);
        });
        if begun.is_err() {
            calls.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Answers the one call of a connection.
fn serve(mut stream: UnixStream, job: &Embedded) {
    let answer = match rustix::net::sockopt::socket_peercred(&stream) {
        Ok(peer) if may_call(peer.uid.as_raw(), job.owner) => {
            match receive::<JobRequest>(&mut stream) {
                Ok(asked) if asked.job != job.token => not_here(&asked.job),
                Ok(asked) => job.service.answer(asked.call),
                Err(error) => StagingReply::Refused(Errno::EPROTO.0, error.to_string()),
            }
        }
        Ok(peer) => {
            let reason = format!(
                "the job belongs to user {}, not to user {}",
                job.owner,
                peer.uid.as_raw()
            );
            StagingReply::Refused(Errno::EACCES.0, reason)
        }
        Err(errno) => StagingReply::Refused(errno.raw_os_error(), errno.to_string()),
    };
    // Whoever asked may have gone.
    let _ = send(&mut stream, &answer);
}

fn not_here(job: &str) -> StagingReply {
    Refused(Errno::EINVAL, format!("job {job} does not run here")).into()
}

/// Limits the time that the process at the other end may take.
fn set_call_timeouts(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn may_call(caller: u32, owner: u32) -> bool {
    caller == owner || caller == 0
}
