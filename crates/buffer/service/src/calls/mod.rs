//! Staging that a job asks for while it runs: the service behind libdatawarp.
//!
//! A job's processes find a Unix socket in their environment
//! ([`SOCKET`](forebay_wire::staging::SOCKET)). Only the job's owner and root are answered, as the
//! kernel says who they are. Stages become the controller's, so that they survive this process:
//! what was to be staged at the job's end is staged by `recover`, too.

mod ledger;
mod questions;
mod service;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_model::jobscript::Space;
use forebay_wire::Errno;
use forebay_wire::staging::{Answer, SOCKET, receive, send};

use crate::embedded::Asker;
use service::{Root, Service};

/// Calls that are carried out at a time, each on a thread; more are asked to come again. Processes
/// that wait for a stage have one each as long as it takes: there are more than a node has cores.
const MOST_CALLS: usize = 2048;
/// Time that a process has to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest path of a Unix socket, with room to spare.
const SOCKET_PATH: usize = 100;

/// The service for one job. Dropping it ends it.
pub struct JobCalls {
    socket: PathBuf,
    ended: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl JobCalls {
    /// Serves the mounted job `token`, whose variables are `environment`, in the pool in
    /// `directory`.
    pub fn open(
        asker: &Asker,
        directory: &Path,
        token: &str,
        environment: &[(String, String)],
    ) -> io::Result<JobCalls> {
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
        let service = Arc::new(Service::new(
            asker.clone(),
            token.to_owned(),
            roots(environment),
            directory.join("mounts"),
        ));
        let ended = Arc::new(AtomicBool::new(false));
        let (owner, seen) = (asker.caller().uid, ended.clone());
        let thread = std::thread::Builder::new().name("forebay-calls".into());
        let thread = thread.spawn(move || listen(&listener, &service, owner, &seen))?;
        Ok(JobCalls {
            socket,
            ended,
            listener: Some(thread),
        })
    }

    /// The variable that tells the job's processes of the service.
    pub fn variable(&self) -> (String, String) {
        (SOCKET.to_owned(), self.socket.display().to_string())
    }
}

impl Drop for JobCalls {
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

/// The name spaces that can be staged. A view is a symbolic link to where the kernel has it; only
/// the link is read, so that this process does not wait for its own mount.
fn roots(environment: &[(String, String)]) -> Vec<Root> {
    let root = |(name, value): &(String, String)| {
        let space = match name.strip_prefix("DW_PERSISTENT_STRIPED_") {
            Some(persistent) => Space::Persistent(persistent.to_owned()),
            None if name == "DW_JOB_STRIPED" => Space::Job,
            None => return None,
        };
        let link = Path::new(value.trim_end_matches('/'));
        Some(Root {
            path: fs::read_link(link).unwrap_or_else(|_| link.to_owned()),
            shown: value.clone(),
            space,
        })
    };
    environment.iter().filter_map(root).collect()
}

fn listen(listener: &UnixListener, service: &Arc<Service>, owner: u32, ended: &AtomicBool) {
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
        let patience = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        if patience.is_err() {
            continue;
        }
        if calls.fetch_add(1, Ordering::AcqRel) >= MOST_CALLS {
            calls.fetch_sub(1, Ordering::AcqRel);
            let reason = format!("{MOST_CALLS} calls are under way");
            let _ = send(&mut &stream, &Answer::Refused(Errno::EAGAIN.0, reason));
            continue;
        }
        let (service, under_way) = (service.clone(), calls.clone());
        let thread = std::thread::Builder::new().name("forebay-call".into());
        let begun = thread.spawn(move || {
            serve(stream, &service, owner);
            under_way.fetch_sub(1, Ordering::AcqRel);
        });
        if begun.is_err() {
            calls.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Answers the one call of a connection.
fn serve(mut stream: UnixStream, service: &Service, owner: u32) {
    let answer = match rustix::net::sockopt::socket_peercred(&stream) {
        Ok(peer) if may_call(peer.uid.as_raw(), owner) => match receive(&mut stream) {
            Ok(call) => service.answer(call),
            Err(error) => Answer::Refused(Errno::EPROTO.0, error.to_string()),
        },
        Ok(peer) => {
            let reason = format!(
                "the job belongs to user {owner}, not to user {}",
                peer.uid.as_raw()
            );
            Answer::Refused(Errno::EACCES.0, reason)
        }
        Err(errno) => Answer::Refused(errno.raw_os_error(), errno.to_string()),
    };
    // Whoever asked may have gone.
    let _ = send(&mut stream, &answer);
}

fn may_call(caller: u32, owner: u32) -> bool {
    caller == owner || caller == 0
}
