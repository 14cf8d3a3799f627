//! The controller: it follows Slurm's queue, keeps the graph, and answers requests.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use forebay_net::auth::Authenticator;
use forebay_net::listener::Listener;
use parking_lot::Mutex;

use forebay_protocol::PeerIdentity;
use forebay_workflow_script::{Location, NornsScript, PersistAction, Principal};

use crate::calls::{Persistent, Plan, Reply, Request, Status};
use crate::channel::{self, Client, Incoming};
use crate::config::SiteConfig;
use crate::graph::{Effect, Graph};
use crate::node_calls::{NodeReply, NodeRequest};
use crate::recovery::StageOut;
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
    shared: Arc<Shared>,
    _listener: Listener,
}

/// Names that nodes stage out: job and line of the stage, then name and node.
type Claims = HashMap<(u32, u32), HashMap<String, String>>;

/// State that the threads share.
struct Shared {
    config: SiteConfig,
    auth: Authenticator,
    state: Mutex<State>,
    claims: Mutex<Claims>,
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
        let auth = config.authenticator()?;
        let shared = Arc::new(Shared {
            config: config.clone(),
            auth: auth.clone(),
            state: Mutex::new(State { graph, file }),
            claims: Mutex::default(),
        });
        let serving = shared.clone();
        let handle = move |(): &mut (), request: Request, incoming: Incoming<'_>| {
            let reply = serving.answer(request, incoming.peer).unwrap_or_else(Reply::Failed);
            incoming.reply(&reply, &[])
        };
        let at = config.controller.address;
        let listener =
            channel::serve(at, auth, handle).map_err(|error| format!("{at}: {error}"))?;
        Ok(Controller { shared, _listener: listener })
    }

    /// Follows Slurm's queue until `stop` is set.
    pub fn run(&self, stop: &AtomicBool) {
        let mut failing = false;
        while !stop.load(Ordering::Relaxed) {
            let outcome = self.shared.poll_once();
            match &outcome {
                Err(error) if !failing => tracing::warn!("{error}"),
                Ok(()) if failing => tracing::warn!("Slurm answers again"),
                Ok(()) | Err(_) => {}
            }
            failing = outcome.is_err();
            std::thread::sleep(Duration::from_millis(
                self.shared.config.controller.poll_milliseconds,
            ));
        }
    }
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut Graph) -> T) -> Result<T, String> {
        let changed = self.state.lock().change(change);
        changed.map_err(|error| format!("the controller cannot write its state: {error}"))
    }

    /// Takes in Slurm's queue, and returns the effects that follow.
    fn observe(&self) -> Result<Vec<Effect>, String> {
        let queue = slurm::list_jobs()?;
        let wait = self.config.controller.wait_for_nodes_seconds;
        let effects = self.change(|graph| graph.observe(now(), wait, &queue))?;
        let live = |job: &u32| queue.iter().any(|seen| seen.id == *job);
        self.claims.lock().retain(|(job, _), _| live(job));
        Ok(effects)
    }

    fn poll_once(&self) -> Result<(), String> {
        for effect in self.observe()? {
            // An effect that fails is repeated with the next poll.
            if let Err(error) = self.apply(effect) {
                tracing::warn!("{error}");
            }
        }
        Ok(())
    }

    fn apply(&self, effect: Effect) -> Result<(), String> {
        match effect {
            Effect::Cancel { job } => {
                slurm::run("scancel", &["--state=PENDING", &job.to_string()]).map(drop)
            }
            Effect::Release { job, nodes } => {
                let id = job.to_string();
                // Nodes are a preference: without them the job is released all the same.
                let set = nodes.map_or(Ok(()), |nodes| set_nodes(job, &nodes.join(",")));
                if let Err(error) = set {
                    tracing::warn!("{error}");
                }
                slurm::run("scontrol", &["release", &id]).map(drop)
            }
            Effect::ForgetNodes { job } => {
                set_nodes(job, "")?;
                self.change(|graph| graph.forget_nodes(job))
            }
            Effect::Clean { workflow, uid, gid, node, directories } => {
                self.call_node(&node, &NodeRequest::Clean { uid, gid, directories })?;
                self.change(|graph| graph.cleaned(workflow, &node))
            }
        }
    }

    /// Makes a call to the server of a node.
    fn call_node(&self, node: &str, request: &NodeRequest) -> Result<(), String> {
        let failed = |reason: String| format!("node {node}: {reason}");
        let at = node_address(node, self.config.node.port)?;
        let mut client =
            Client::connect(at, &self.auth).map_err(|error| failed(error.to_string()))?;
        match client.call(request).map_err(|error: io::Error| failed(error.to_string()))? {
            NodeReply::Done => Ok(()),
            NodeReply::Failed(reason) => Err(failed(reason)),
            other => Err(failed(format!("unexpected reply {other:?}"))),
        }
    }

    fn answer(&self, request: Request, peer: &PeerIdentity) -> Result<Reply, String> {
        match request {
            Request::Status => Ok(Reply::Status(Box::new(self.status(peer)))),
            Request::Plan { job, node, ended } => {
                require_root(peer)?;
                self.plan(job, &node, ended).map(|plan| Reply::Plan(Box::new(plan)))
            }
            Request::Report(report) => {
                require_root(peer)?;
                let job = report.job;
                if self.change(|graph| graph.report(report))?? {
                    slurm::run("scancel", &[&job.to_string()])?;
                }
                Ok(Reply::Done)
            }
            Request::Claim { job, line, node, names } => {
                require_root(peer)?;
                self.claim((job, line), &node, names)
            }
            Request::Remove { workflow } => {
                self.change(|graph| graph.remove(workflow, peer.uid, peer.trusted))??;
                Ok(Reply::Done)
            }
            Request::Recover { workflow } => self.recover(workflow, peer),
            Request::Persist { action, location, principal } => {
                self.persist(peer, action, &location, principal.as_ref())
            }
        }
    }

    fn status(&self, peer: &PeerIdentity) -> Status {
        let state = self.state.lock();
        let graph = &state.graph;
        let visible = |uid| peer.trusted || peer.uid == uid;
        let jobs: Vec<_> = graph.jobs.values().filter(|job| visible(job.uid)).cloned().collect();
        let is_listed = |workflow: &u32| jobs.iter().any(|job| job.workflow == *workflow);
        let holdings = graph.holdings.iter().filter(|(workflow, _)| is_listed(workflow));
        let holdings = holdings.map(|(workflow, held)| (*workflow, held.clone())).collect();
        let persistent = graph.persistent.iter().filter(|data| visible(data.uid));
        Status { holdings, persistent: persistent.cloned().collect(), jobs }
    }

    /// The needs of a job on a node. The job may have started since the last poll.
    fn plan(&self, job: u32, node: &str, ended: bool) -> Result<Plan, String> {
        if !ended {
            // A prolog does not wait for the effects, such as removals: the next poll repeats them.
            self.observe()?;
        }
        let known = self.state.lock().graph.jobs.get(&job).and_then(|job| job.script.clone());
        let script = match known {
            Some(script) => script,
            None => read_script(job)?,
        };
        let mut plan = self.change(|graph| graph.plan(job, node, &script))??;
        for (pull, address) in &mut plan.pulls {
            *address = node_address(&pull.from, self.config.node.port)?.to_string();
        }
        Ok(plan)
    }

    fn recover(&self, workflow: u32, peer: &PeerIdentity) -> Result<Reply, String> {
        let repeat = |graph: &mut Graph| graph.repeat_stage_outs(workflow, peer.uid, peer.trusted);
        for stage_out in self.change(repeat)?? {
            let StageOut { job, node } = stage_out.clone();
            let started = self.call_node(&node.clone(), &NodeRequest::StageOut { job, node });
            if let Err(reason) = started {
                self.change(|graph| graph.stage_out_not_started(&stage_out, &reason))?;
            }
        }
        Ok(Reply::Done)
    }

    fn claim(&self, stage: (u32, u32), node: &str, names: Vec<String>) -> Result<Reply, String> {
        let mut claims = self.claims.lock();
        let claimed = claims.entry(stage).or_default();
        let taken = names.iter().find_map(|name| {
            claimed.get(name).filter(|owner| *owner != node).map(|owner| (name, owner))
        });
        if let Some((name, owner)) = taken {
            return Err(format!(
                "nodes {owner} and {node} both have a file {name}, and one would replace the other: \
                 let the names contain SLURM_PROCID, or write a mapping file"
            ));
        }
        claimed.extend(names.into_iter().map(|name| (name, node.to_owned())));
        Ok(Reply::Done)
    }

    fn persist(
        &self,
        peer: &PeerIdentity,
        action: PersistAction,
        location: &Location,
        principal: Option<&Principal>,
    ) -> Result<Reply, String> {
        let found = self.state.lock().graph.find_persistent(peer.uid, location).cloned();
        let Persistent { nodes, .. } = found?;
        let (uid, gid) = (peer.uid, peer.gid);
        for node in &nodes {
            let place = location.clone();
            let request = match (action, principal) {
                (PersistAction::Delete, _) => NodeRequest::Delete { uid, gid, location: place },
                (PersistAction::Share | PersistAction::Unshare, Some(principal)) => {
                    let allow = action == PersistAction::Share;
                    let principal = principal.clone();
                    NodeRequest::Share { uid, gid, location: place, principal, allow }
                }
                (PersistAction::Store, _) | (_, None) => {
                    return Err(
                        "data become persistent at the end of a job: write `#NORNS persist \
                                store` in its script"
                            .to_owned(),
                    );
                }
            };
            self.call_node(node, &request)?;
            if action == PersistAction::Delete {
                self.change(|graph| graph.remove_persistent(uid, location, node))?;
            }
        }
        if let Some(principal) = principal {
            self.change(|graph| graph.set_reader(uid, location, action, principal))?;
        }
        Ok(Reply::Done)
    }
}

fn require_root(peer: &PeerIdentity) -> Result<(), String> {
    match peer.trusted {
        true => Ok(()),
        false => {
            Err("only the nodes' prolog and epilog, which run as root, may do that".to_owned())
        }
    }
}

fn set_nodes(job: u32, nodes: &str) -> Result<(), String> {
    let (job, nodes) = (format!("JobId={job}"), format!("NodeList={nodes}"));
    slurm::run("scontrol", &["update", &job, &nodes]).map(drop)
}

/// The directives of a job; none if it has no script.
fn read_script(job: u32) -> Result<NornsScript, String> {
    match slurm::run("scontrol", &["write", "batch_script", &job.to_string(), "-"]) {
        Ok(text) => NornsScript::parse(&text).map_err(|errors| errors.to_string()),
        // salloc and srun.
        Err(error) if error.contains("retrieval failed") => Ok(NornsScript::default()),
        Err(error) => Err(error),
    }
}

/// The address of the server of a node.
fn node_address(node: &str, port: u16) -> Result<SocketAddr, String> {
    let text = slurm::run("sinfo", &["-h", "-N", "-n", node, "-o", "%N %o"])?;
    let mut words = text.lines().next().unwrap_or_default().split_whitespace();
    let address = words.nth(1).ok_or_else(|| format!("Slurm has no node {node}"))?;
    let found = (address, port).to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
    found.into_iter().next().ok_or_else(|| format!("{address} has no address"))
}

/// An error of a call to the controller.
#[derive(Debug)]
pub struct CallError {
    reason: String,
    /// The controller was not reached; the call may be repeated.
    pub is_unreachable: bool,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for CallError {}

/// Makes one call to the site's controller.
pub fn call(
    config: &SiteConfig,
    auth: &Authenticator,
    request: &Request,
) -> Result<Reply, CallError> {
    let at = config.controller.address;
    let failed = |error: io::Error| CallError {
        reason: format!("the controller of workflows at {at}: {error}"),
        is_unreachable: error.kind() != io::ErrorKind::PermissionDenied,
    };
    let mut client = Client::connect(at, auth).map_err(failed)?;
    match client.call(request).map_err(failed)? {
        Reply::Failed(reason) => Err(CallError { reason, is_unreachable: false }),
        reply => Ok(reply),
    }
}
