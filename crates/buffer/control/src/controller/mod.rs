//! The controller: a state machine over DataWarp's objects.
//!
//! ```text
//! set up session + instance -> fragments on storage nodes -> stage in -> activate (mount)
//!   -> deactivate -> stage out -> tear down
//! ```
//!
//! [`Controller::step`] takes an input and the time and returns effects in the order in which
//! they are to be carried out. What has to be durable comes first, so nothing is acknowledged or
//! commanded that a crash could undo. Commands follow from the difference between what objects
//! are and what they should be and are repeated until the difference is gone: a controller that
//! is restored from its records goes on where it was.

mod activation;
mod commands;
mod dispatch;
mod instances;
mod job_stages;
mod node_loss;
mod objects;
mod pending;
mod recreate;
mod replicas;
mod reports;
mod request;
mod setup;
mod stage_scheduling;
mod staging;
mod state;
mod status;
mod teardown;

use std::collections::{BTreeMap, BTreeSet};

use forebay_job_script::Direction;
use forebay_policy::pool::NodeId;

pub use job_stages::{JobView, RequestedStage, Striping};
pub use node_loss::InstanceLoss;
pub use objects::*;
pub use request::*;
pub use state::State;
pub use status::{
    ControlStatus, InstanceStatus, NodeStatus, PoolStatus, SessionStatus, StageStatus,
};

use crate::messages::{
    Peer, Report, SessionId, StageId, StageProgress, StampedCommand, UnixMillis,
};
use crate::records::{Change, CorruptRecord};

/// Times and limits; all times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A peer that says nothing for so long counts as offline.
    pub offline_after_ms: u64,
    /// A command that shows no effect is sent again after so long.
    pub retry_interval_ms: u64,
    /// A host that says nothing for so long has lost its mounts.
    pub host_dead_after_ms: u64,
    /// A request other than for staging is answered after so long at the latest.
    pub request_timeout_ms: u64,
    /// A request for staging is answered after so long at the latest.
    pub staging_timeout_ms: u64,
    /// An answered request is remembered for so long.
    pub reply_retention_ms: u64,
    /// Stages that one node moves at a time.
    pub max_stages_per_node: usize,
    /// Directory under which sessions are mounted; without a `/` at its end.
    pub mount_root: String,
    /// User that may do what an operator may, besides root.
    pub operator: u32,
    /// Most sessions at a time.
    pub max_sessions: usize,
    /// Most of them of one user other than root and the operator.
    pub max_user_sessions: usize,
    /// Most stages of one session.
    pub max_stages: usize,
    /// Stages of a persistent instance that are remembered; older ones that are over are dropped.
    pub max_kept_stages: usize,
    /// Most storage nodes of an instance.
    pub max_nodes: u32,
    /// Bytes in a stripe of instances on several nodes.
    pub stripe_bytes: u64,
    /// What the secrets of instances on several nodes are made from: random, and the same
    /// whenever this controller is restored.
    pub secret: [u8; 32],
    /// Directories of the parallel file system below which stages may be; empty for anywhere.
    pub pfs_roots: Vec<String>,
    /// Which stages are read back and compared.
    pub read_back: ReadBack,
    /// Whether the pool is this process's alone, so that a job that was mounted by another process
    /// runs no more.
    pub single_process: bool,
}

/// Which stages are read back from their storage when all is copied, and compared with what was
/// read at the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadBack {
    /// None: checksums are taken while copying, and noted.
    None,
    /// Those that go out: what they copy is destroyed after them.
    #[default]
    Out,
    /// All.
    All,
}

impl ReadBack {
    /// Whether stages of a direction are.
    pub fn applies_to(self, direction: Direction) -> bool {
        match self {
            ReadBack::None => false,
            ReadBack::Out => direction == Direction::Out,
            ReadBack::All => true,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            offline_after_ms: 10_000,
            retry_interval_ms: 1_000,
            host_dead_after_ms: 60_000,
            // The time-outs with which Slurm's plugin calls: 300 s, and a day for staging.
            request_timeout_ms: 300_000,
            staging_timeout_ms: 86_400_000,
            reply_retention_ms: 3_600_000,
            max_stages_per_node: 4,
            mount_root: "/var/opt/cray/dws/mounts/batch".to_owned(),
            operator: 0,
            max_sessions: 65_536,
            max_user_sessions: 4096,
            max_stages: 65_536,
            max_kept_stages: 1024,
            max_nodes: u32::from(forebay_protocol::placement::MAX_NODES),
            stripe_bytes: 8 << 20,
            secret: [0; 32],
            pfs_roots: Vec::new(),
            read_back: ReadBack::default(),
            single_process: false,
        }
    }
}

/// What happens to a controller.
#[derive(Clone, Debug)]
pub enum ControllerInput {
    /// A client asks something.
    Request(Box<Envelope>),
    /// A peer reports.
    Report(Report),
    /// Time passes; about once a second.
    Tick,
}

/// What a controller does, in this order.
#[derive(Clone, Debug)]
pub enum ControllerEffect {
    /// Make these records durable before what follows.
    Persist(Vec<Change>),
    /// Send a command; it may be lost.
    Send(Peer, StampedCommand),
    /// Answer a client's request; it may be lost.
    Reply {
        /// Whom.
        client: u64,
        /// Which of its requests.
        number: u64,
        /// How it ended.
        outcome: Outcome,
    },
}

/// What is known of a peer while the controller runs.
#[derive(Clone, Debug, Default)]
struct PeerContact {
    /// When it last reported.
    last_report_at: UnixMillis,
    /// The highest count of its reports.
    last_sequence: u64,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    state: State,
    /// When this controller was started: peers are given time from here on.
    started: Option<UnixMillis>,
    now: UnixMillis,
    peers: BTreeMap<Peer, PeerContact>,
    /// When each command was last sent, by object.
    last_sent: BTreeMap<commands::CommandTarget, UnixMillis>,
    /// How far running stages are.
    progress: BTreeMap<StageId, StageProgress>,
    /// The last stage that running jobs have asked for at each path.
    job_stages: job_stages::JobStages,
    /// Clients whose request is not answered yet.
    pending_requests: BTreeSet<u64>,
    /// How many files that could not be staged are remembered, by session.
    failed_files: BTreeMap<SessionId, usize>,
    /// Whether a request was refused for want of space lately.
    short_of_space: Option<UnixMillis>,
    effects: Vec<ControllerEffect>,
}

impl Controller {
    /// A controller from its durable records; none for a new one.
    pub fn restore(
        settings: Settings,
        records: impl IntoIterator<Item = (String, u64, Vec<u8>)>,
    ) -> Result<Controller, CorruptRecord> {
        let state = State::restore(records)?;
        let mut asked = job_stages::JobStages::default();
        let mut unstaged = BTreeMap::new();
        for (id, stage) in state.stages.iter() {
            asked.insert(stage.session, StageId(id), &stage.directive);
            *unstaged.entry(stage.session).or_default() += stage.failed_files.len();
        }
        let waiting = state.requests.iter();
        let waiting = waiting.filter(|(_, record)| record.outcome.is_none());
        let waiting = waiting.map(|(client, _)| client).collect();
        Ok(Controller {
            settings,
            state,
            job_stages: asked,
            pending_requests: waiting,
            failed_files: unstaged,
            started: None,
            now: UnixMillis(0),
            peers: BTreeMap::new(),
            last_sent: BTreeMap::new(),
            progress: BTreeMap::new(),
            short_of_space: None,
            effects: Vec::new(),
        })
    }

    /// Takes an input at a time and says what to do about it, in this order.
    pub fn step(&mut self, now: UnixMillis, input: ControllerInput) -> Vec<ControllerEffect> {
        self.now = now;
        self.started.get_or_insert(now);
        match input {
            ControllerInput::Request(envelope) => self.accept_request(*envelope),
            ControllerInput::Report(report) => self.apply_report(report),
            ControllerInput::Tick => self.forget_old_requests(),
        }
        self.advance_teardowns();
        self.start_stages();
        self.answer_pending_requests();
        self.send_commands();
        let changes = self.state.changes();
        let mut effects = Vec::new();
        if !changes.is_empty() {
            effects.push(ControllerEffect::Persist(changes));
        }
        effects.append(&mut self.effects);
        effects
    }

    /// All objects, for those who show them.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a peer has reported lately, or there was no time for it to do so.
    fn is_online(&self, peer: &Peer) -> bool {
        self.silence(peer) <= self.settings.offline_after_ms
    }

    /// The same for a storage node that is not given up.
    fn node_online(&self, node: NodeId) -> bool {
        !self.state.is_forgotten(node) && self.is_online(&Peer::StorageNode(node))
    }

    /// Milliseconds since a peer last reported, or since the controller started.
    fn silence(&self, peer: &Peer) -> u64 {
        let heard = self.peers.get(peer).map(|view| view.last_report_at);
        self.now
            .ms_since(heard.max(self.started).unwrap_or_default())
    }

    fn forget_old_requests(&mut self) {
        for key in self.state.requests.keys() {
            let old = self.state.requests.get(key).is_some_and(|record| {
                record.outcome.is_some()
                    && self.now.ms_since(record.accepted) > self.settings.reply_retention_ms
                    && self.now.ms_since(record.deadline) > 0
            });
            if old {
                self.state.requests.remove(key);
            }
        }
    }
}
