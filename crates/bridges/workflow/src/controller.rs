//! The controller: it follows Slurm's queue, keeps the graph, and answers requests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use forebay_net::auth::Authenticator;
use forebay_net::listener::Listener;
use parking_lot::Mutex;

use crate::calls::{Reply, Request};
use crate::channel::{self, Client, Incoming};
use crate::config::SiteConfig;
use crate::graph::{Effect, Graph};
use crate::slurm;
use crate::state_file::StateFile;

/// The graph and its file.
struct State {
    graph: Graph,
    file: StateFile,
}

impl State {
    /// Changes the graph. If it differs afterwards, it is durable when this returns; if it cannot be
    /// written, it is as before.
    fn change<T>(&mut self, change: impl FnOnce(&mut Graph) -> T) -> io::Result<T> {
        let mut graph = self.graph.clone();
        let outcome = change(&mut graph);
        if graph != self.graph {
            self.file.write(&graph)?;
            self.graph = graph;
        }
        Ok(outcome)
    }
}

/// A running controller. It stops when dropped.
pub struct Controller {
    state: Arc<Mutex<State>>,
    poll: Duration,
    _listener: Listener,
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Controller {
    /// Reads the state and starts to answer requests.
    ///
    /// # Errors
    /// The state cannot be read, MUNGE is missing, or the address is in use.
    pub fn start(config: &SiteConfig) -> Result<Controller, String> {
        let directory = &config.controller.directory;
        let (file, graph) = StateFile::open(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let state = Arc::new(Mutex::new(State { graph, file }));
        let shared = state.clone();
        let handle = move |(): &mut (), request: Request, incoming: Incoming<'_>| {
            let reply = answer(&shared, request, &incoming);
            incoming.reply(&reply, &[])
        };
        let at = config.controller.address;
        let listener = channel::serve(at, config.authenticator()?, handle)
            .map_err(|error| format!("{at}: {error}"))?;
        let poll = Duration::from_millis(config.controller.poll_milliseconds);
        Ok(Controller { state, poll, _listener: listener })
    }

    /// Follows Slurm's queue until `stop` is set.
    pub fn run(&self, stop: &AtomicBool) {
        let mut failing = false;
        while !stop.load(Ordering::Relaxed) {
            let outcome = self.poll_once();
            match &outcome {
                Err(error) if !failing => tracing::warn!("{error}"),
                Ok(()) if failing => tracing::warn!("Slurm answers again"),
                Ok(()) | Err(_) => {}
            }
            failing = outcome.is_err();
            std::thread::sleep(self.poll);
        }
    }

    fn poll_once(&self) -> Result<(), String> {
        let queue = slurm::list_jobs()?;
        let changed = self.state.lock().change(|graph| graph.observe(now(), &queue));
        let effects = changed.map_err(|error| format!("cannot write the state: {error}"))?;
        for effect in effects {
            // An effect that fails is repeated with the next poll.
            if let Err(error) = apply(&effect) {
                tracing::warn!("{error}");
            }
        }
        Ok(())
    }
}

fn apply(effect: &Effect) -> Result<(), String> {
    match effect {
        Effect::Cancel { job } => {
            slurm::run("scancel", &["--state=PENDING", &job.to_string()]).map(drop)
        }
        Effect::Release { job } => slurm::run("scontrol", &["release", &job.to_string()]).map(drop),
    }
}

fn answer(state: &Mutex<State>, request: Request, incoming: &Incoming<'_>) -> Reply {
    let peer = incoming.peer;
    match request {
        Request::Status => {
            let state = state.lock();
            let visible = |uid| peer.trusted || peer.uid == uid;
            let jobs = state.graph.jobs.values().filter(|job| visible(job.uid));
            Reply::Status(jobs.cloned().collect())
        }
    }
}

/// Makes one call to the site's controller.
pub fn call(config: &SiteConfig, auth: &Authenticator, request: &Request) -> Result<Reply, String> {
    let at = config.controller.address;
    let failed = |error: io::Error| format!("the controller of workflows at {at}: {error}");
    let mut client = Client::connect(at, auth).map_err(failed)?;
    match client.call(request).map_err(failed)? {
        Reply::Failed(reason) => Err(reason),
        reply => Ok(reply),
    }
}
