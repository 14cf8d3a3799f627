//! The controller's parts, its inputs and its effects.

use std::collections::BTreeSet;

use forebay_policy::pool::{self, NodeId};

use super::contacts::Contacts;
use super::expiry::Notice;
use super::job_usage::MeasuredUse;
use super::objects::RequestProgress;
use super::request::{Outcome, RequestEnvelope, RequestId};
use super::sent_commands::SentCommands;
use super::settings::Settings;
use super::stalled_stages::StalledStages;
use super::state::State;
use super::waits::Waits;
use crate::messages::{
    ComputeCommand, Peer, Report, SessionId, StampedCommand, StateStamp, StorageCommand, UnixMillis,
};
use crate::records::{Change, CorruptRecord, StoredRecord};

/// Input of a controller.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "an input lives for one step; boxing each report would allocate for nothing"
)]
pub enum ControllerInput {
    /// A client's request.
    Request(Box<RequestEnvelope>),
    /// A peer's report.
    Report(Report),
    /// Use of instances, as hosts have reported it to the driver.
    Use(MeasuredUse),
    /// Time passes; about once a second.
    Tick,
}

/// Effect of a step of a controller. The effects of a step are carried out in order.
#[derive(Clone, Debug)]
pub enum ControllerEffect {
    /// Make these records durable before what follows.
    Persist(Vec<Change>),
    /// Send a command to a storage node; it may be lost.
    SendToStorageNode(NodeId, StampedCommand<StorageCommand>),
    /// Send a command to a compute node, by host name; it may be lost.
    SendToComputeNode(String, StampedCommand<ComputeCommand>),
    /// Reply to a client's request; the reply may be lost.
    Reply(RequestId, Outcome),
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Controller {
    pub(super) settings: Settings,
    pub(super) state: State,
    /// Time of the current step, of a clock that is never set.
    pub(super) now: UnixMillis,
    /// The time of day, which may be set; `None`: `now`.
    pub(super) time_of_day: Option<UnixMillis>,
    pub(super) contacts: Contacts,
    /// The present epoch and its first revision, since the first step.
    pub(super) epoch: Option<(u64, u64)>,
    /// Revision of a state that storage nodes have obeyed and this one does not follow from: the
    /// database was restored from a backup.
    pub(super) lost_revision: Option<u64>,
    pub(super) sent: SentCommands,
    /// The requests that wait.
    pub(super) waits: Waits,
    /// Sessions that runs have set up, or taken over, since this process has started. Only with
    /// [`Settings::single_process`].
    pub(super) run_sessions: BTreeSet<SessionId>,
    /// Whether the next step is to look at all objects, whatever its input is.
    pub(super) looks_at_all: bool,
    /// Time at which a request was last refused for lack of space.
    pub(super) short_of_space_at: Option<UnixMillis>,
    pub(super) stalled_stages: StalledStages,
    /// Events that the driver has not taken.
    pub(super) notices: Vec<Notice>,
    /// Effects of the current step, except for records.
    pub(super) effects: Vec<ControllerEffect>,
}

impl Controller {
    /// A controller from its durable records; without records for a new one.
    pub fn restore(
        settings: Settings,
        records: impl IntoIterator<Item = StoredRecord>,
    ) -> Result<Controller, CorruptRecord> {
        let state = State::restore(records)?;
        let mut waits = Waits::default();
        for id in state.requests.pending() {
            if let Some(RequestProgress::Pending(wait)) =
                state.requests.get(id).map(|record| &record.progress)
            {
                waits.insert(&state, id, wait);
            }
        }
        Ok(Controller {
            settings,
            state,
            now: UnixMillis(0),
            time_of_day: None,
            contacts: Contacts::default(),
            epoch: None,
            lost_revision: None,
            sent: SentCommands::default(),
            waits,
            run_sessions: BTreeSet::new(),
            looks_at_all: true,
            short_of_space_at: None,
            stalled_stages: StalledStages::default(),
            notices: Vec::new(),
            effects: Vec::new(),
        })
    }

    /// The present durable state.
    pub(super) fn stamp(&self) -> StateStamp {
        let (epoch, first) = self.epoch.unwrap_or_default();
        StateStamp { epoch, first, revision: self.state.revision() }
    }

    /// All objects.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Changes the settings, other than the secret and where jobs see their mounts: mounts and
    /// instances of running jobs depend on these.
    pub fn change_settings(&mut self, settings: Settings) {
        let Settings { mount_root, secret, single_process, .. } = self.settings.clone();
        self.settings = Settings { mount_root, secret, single_process, ..settings };
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets the time of day of the next steps: dates that people see, and those at which instances
    /// expire. Everything else depends on the time that is passed to [`step`](Self::step), which is
    /// the time of day at first but is not changed when the clock is set: a clock that is ahead lets
    /// no request time out, and no host count as dead.
    pub fn set_time_of_day(&mut self, time: UnixMillis) {
        self.time_of_day = Some(time);
    }

    /// The time of day.
    pub(super) fn date(&self) -> UnixMillis {
        self.time_of_day.unwrap_or(self.now)
    }

    /// Milliseconds since a peer last reported, or since the controller started.
    pub(super) fn silence_ms(&self, peer: &Peer) -> u64 {
        self.contacts.silence_ms(peer, self.now)
    }

    /// Whether a peer has reported recently, or has not had the time to do so.
    pub(super) fn is_online(&self, peer: &Peer) -> bool {
        self.silence_ms(peer) <= self.settings.offline_after_ms
    }

    /// Whether a storage node is online with its own disk, and not given up.
    pub(super) fn is_node_online(&self, node: NodeId) -> bool {
        !self.state.storage.is_forgotten(node)
            && !self.contacts.has_wrong_disk(node)
            && self.is_online(&Peer::StorageNode(node))
    }

    /// The nodes of a pool as the allocation policy sees them; those that are not `usable` count as
    /// offline.
    pub(super) fn candidate_nodes(
        &self,
        pool: &str,
        usable: impl Fn(NodeId) -> bool,
    ) -> Vec<pool::StorageNode> {
        let online = |node| self.is_node_online(node) && usable(node);
        let written = |node| self.contacts.written(node);
        self.state.storage.candidate_nodes(pool, online, written)
    }

    /// Sends a command to a storage node whose state is known. It is repeated if it has no effect.
    pub(super) fn send_to_storage_node(&mut self, node: NodeId, command: StorageCommand) {
        // The first report tells if the node has obeyed a later state, which is lost.
        if !self.contacts.has_reported(&Peer::StorageNode(node)) {
            return;
        }
        let stamped = StampedCommand {
            last_report: self.contacts.last_sequence(&Peer::StorageNode(node)),
            // Set when the step ends.
            state: StateStamp::default(),
            command,
        };
        let effect = ControllerEffect::SendToStorageNode(node, stamped);
        self.effects.push(effect);
    }

    pub(super) fn send_to_compute_node(&mut self, host: String, command: ComputeCommand) {
        let peer = Peer::ComputeNode(host.clone());
        let last_report = self.contacts.last_sequence(&peer);
        // The state is set when the step ends.
        let stamped = StampedCommand { last_report, state: StateStamp::default(), command };
        let effect = ControllerEffect::SendToComputeNode(host, stamped);
        self.effects.push(effect);
    }
}
