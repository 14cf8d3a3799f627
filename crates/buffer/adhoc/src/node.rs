//! The process on each host: a storage daemon and an agent, for as long as the leader is there.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use forebay_daemon::{Daemon, PoolConfig};

use crate::home::{self, Home, KEY_FILE};
use crate::messages::{Begin, FromNode, MAX_LINE, Prepared, Start, ToNode};
use crate::network::{ReservedPort, routes_to};

/// Interval at which signals and the leader's silence are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Polls without a sign of the leader after which it counts as gone: 20 s of this process's own
/// time, so that a suspended job does not end its buffer when it continues.
const MAX_SILENT_POLLS: u32 = 200;
/// Time for the leader's next message while the instance starts.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The reason for which a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The leader asks for it, and whether the directory is to be removed.
    Asked { remove: bool },
    /// The leader is gone.
    LeaderGone,
    /// A signal asks for it.
    Signal,
    /// A daemon has failed.
    DaemonFailed,
}

/// Runs the node of `host` until the leader ends it or is gone. Messages come over standard input
/// and go to standard output.
pub fn run_node(host: &str) -> ExitCode {
    let mut node = Node::new(host);
    match node.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            send(&FromNode::Failed(reason));
            ExitCode::FAILURE
        }
    }
}

/// Sends a message. If the leader is gone, nobody needs it.
fn send(message: &FromNode) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", message.to_line()).and_then(|()| out.flush());
}

/// A message for the user, who may read it in the launcher's output or the job's.
fn tell(host: &str, text: &str) {
    let _ = writeln!(std::io::stderr(), "forebay: {host}: {text}");
}

struct Node {
    host: String,
    inbox: Receiver<Option<ToNode>>,
    signalled: Arc<AtomicBool>,
    silent_polls: u32,
}

impl Node {
    fn new(host: &str) -> Node {
        let signalled = Arc::new(AtomicBool::new(false));
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Registering fails only for signals that cannot be caught.
            let _ = signal_hook::flag::register(signal, signalled.clone());
        }
        let (messages, inbox) = sync_channel(16);
        let read = move || {
            let mut input = BufReader::new(std::io::stdin().lock());
            let mut line = String::new();
            loop {
                line.clear();
                match input.by_ref().take(MAX_LINE).read_line(&mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                // A line that is not a message is a sign of life.
                if messages.send(serde_json::from_str(&line).ok()).is_err() {
                    return;
                }
            }
        };
        // Without the thread the inbox is closed at once, as if the leader were gone.
        let _ = std::thread::Builder::new().name("forebay-leader".into()).spawn(read);
        Node { host: host.to_owned(), inbox, signalled, silent_polls: 0 }
    }

    /// The next message, or the reason to end.
    fn poll(&mut self) -> Result<Option<ToNode>, Ending> {
        if self.signalled.load(Ordering::Relaxed) {
            return Err(Ending::Signal);
        }
        match self.inbox.recv_timeout(POLL_INTERVAL) {
            Ok(message) => {
                self.silent_polls = 0;
                Ok(message)
            }
            Err(RecvTimeoutError::Timeout) if self.silent_polls < MAX_SILENT_POLLS => {
                self.silent_polls += 1;
                Ok(None)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(Ending::LeaderGone)
            }
        }
    }

    /// The next message while the instance starts.
    fn next(&mut self) -> Result<ToNode, Ending> {
        let started = Instant::now();
        while started.elapsed() < START_TIMEOUT {
            match self.poll()? {
                Some(ToNode::End { remove }) => return Err(Ending::Asked { remove }),
                Some(message) => return Ok(message),
                None => {}
            }
        }
        Err(Ending::LeaderGone)
    }

    fn run(&mut self) -> Result<(), String> {
        let Ok(ToNode::Start(start)) = self.next() else {
            return Ok(());
        };
        home::check_local(&start.local)?;
        let path = home::node_path(&start.local, &start.id);
        if start.begin == Begin::Discard {
            if path.exists() {
                Home::reopen(path)?.remove()?;
            }
            send(&FromNode::Ended { kept: false });
            return Ok(());
        }
        let home = match start.begin {
            Begin::New => Home::create(path)?,
            Begin::Resume | Begin::Discard => Home::reopen(path)?,
        };
        let kept = home::remove_remainders(&start.local);
        let outcome = self.serve(&start, &home, kept);
        let (ending, failure) = match outcome {
            Ok(ending) => (ending, None),
            // A node that could not begin has nothing to keep, unless it was there before.
            Err(reason) => (Ending::DaemonFailed, Some(reason)),
        };
        self.end(&start, home, ending)?;
        failure.map_or(Ok(()), Err)
    }

    /// Serves until there is a reason to end.
    fn serve(&mut self, start: &Start, home: &Home, kept: Vec<PathBuf>) -> Result<Ending, String> {
        if start.keep {
            home.mark_kept()?;
        }
        home.write(KEY_FILE, &start.key)?;
        let reserved = ReservedPort::new(0).map_err(|e| format!("cannot reserve a port: {e}"))?;
        let routes = routes_to(&start.leader, &start.id);
        if routes.is_empty() && !start.leader.is_empty() {
            let addresses: Vec<String> = start.leader.iter().map(ToString::to_string).collect();
            return Err(format!(
                "cannot connect to the leader at {}; a network of the leader that reaches this \
                 host is named with --interface",
                addresses.join(", ")
            ));
        }
        let state = rustix::fs::statvfs(home.path()).map_err(|e| e.to_string())?;
        let free = state.f_bavail.saturating_mul(state.f_frsize);
        send(&FromNode::Prepared(Prepared { routes, port: reserved.port(), free, kept }));
        let configuration = match self.next() {
            Ok(ToNode::Run { configuration }) => configuration,
            Ok(other) => return Err(format!("unexpected message {other:?}")),
            Err(ending) => return Ok(ending),
        };
        let file = home.write("pool.toml", &configuration)?;
        let daemons = Daemons::start(&file, &self.host)?;
        drop(reserved);
        send(&FromNode::Running);
        let ending = loop {
            match self.poll() {
                Ok(Some(ToNode::End { remove })) => break Ending::Asked { remove },
                Ok(Some(ToNode::Keep)) => home.mark_kept()?,
                Ok(Some(ToNode::Start(_) | ToNode::Run { .. }) | None) => home.touch(),
                Err(ending) => break ending,
            }
            if daemons.have_ended() {
                break Ending::DaemonFailed;
            }
        };
        let stopped = daemons.stop();
        match ending {
            // Nothing is needed any more, so that a daemon may fail at its end.
            Ending::Asked { remove: true } => Ok(ending),
            Ending::Asked { remove: false }
            | Ending::LeaderGone
            | Ending::Signal
            | Ending::DaemonFailed => stopped.map(|()| ending),
        }
    }

    /// Removes the directory, unless it holds data for a stage-out that nobody has given up.
    fn end(&self, start: &Start, home: Home, ending: Ending) -> Result<(), String> {
        let keep = match ending {
            Ending::Asked { remove } => !remove,
            Ending::LeaderGone | Ending::Signal | Ending::DaemonFailed => home.is_kept(),
        };
        if keep && ending != (Ending::Asked { remove: false }) {
            let why = match ending {
                Ending::LeaderGone => "the leader is gone",
                Ending::Signal => "ended by a signal",
                Ending::DaemonFailed | Ending::Asked { .. } => "a daemon has failed",
            };
            let (kept, leader) =
                (home.path().display(), home::leader_path(&start.local, &start.id));
            tell(
                &self.host,
                &format!(
                    "{why}; data that waits for its stage-out is kept in {kept}: `forebay adhoc \
                     recover {}` on the leader's host stages it out",
                    leader.display()
                ),
            );
        }
        if keep {
            send(&FromNode::Ended { kept: true });
            return Ok(());
        }
        if let Err(reason) = home.remove() {
            tell(&self.host, &format!("not everything could be removed: {reason}"));
        }
        if ending == Ending::LeaderGone {
            home::remove_leader(&home::leader_path(&start.local, &start.id));
        }
        send(&FromNode::Ended { kept: false });
        Ok(())
    }
}

/// The daemons of a node.
struct Daemons {
    agent: Daemon,
    storage: Daemon,
}

impl Daemons {
    fn start(file: &Path, host: &str) -> Result<Daemons, String> {
        let config = PoolConfig::read(file).map_err(|e| e.to_string())?;
        let storage = Daemon::start_storage(&config, host).map_err(|e| e.to_string())?;
        let agent = Daemon::start_agent(&config, host).map_err(|e| e.to_string())?;
        Ok(Daemons { agent, storage })
    }

    fn have_ended(&self) -> bool {
        self.agent.has_ended() || self.storage.has_ended()
    }

    /// Unmounts, and makes everything durable.
    fn stop(self) -> Result<(), String> {
        let unmounted = self.agent.stop();
        self.storage.stop().and(unmounted).map_err(|e| e.to_string())
    }
}
