//! The storage node's side of the control plane: creates and removes fragments, and moves data.
//!
//! [`StorageNode::step`] turns commands and the outcomes of earlier effects into effects. State that
//! must survive a crash is made durable before anything that depends on it is done or reported;
//! after a crash, [`StorageInput::Started`] resumes what was in progress.

mod fences;
mod fragments;
mod inputs;
mod stages;

pub use inputs::{MoverOutcome, StorageEffect, StorageInput};

use std::collections::BTreeMap;

use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use self::fragments::FragmentRow;
use crate::messages::{
    FragmentId, InstanceId, Report, ShareTally, StageFailure, StageId, StagePlan, StageProgress,
    StampedCommand, StateStamp, StorageCommand, StorageReport, UnixMillis,
};
use crate::records::{CorruptRecord, StoredRecord, Table};

/// Stages that are remembered after their end.
const MAX_ENDED_STAGES: usize = 65_536;
/// Sequence numbers reserved at a time, so that not every report needs a durable write.
const RESERVED_SEQUENCE_NUMBERS: u64 = 4096;
/// The count of written bytes is made durable whenever it has grown by this much.
const WRITTEN_RESOLUTION: u64 = 1 << 30;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LocalStageState {
    Running,
    Done(StageProgress),
    Failed(StageFailure),
    Cancelling,
    Cancelled,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StageRow {
    /// Absent if the stage was cancelled before its start command arrived.
    plan: Option<StagePlan>,
    state: LocalStageState,
}

/// A mover that runs in this process.
#[derive(Clone, Copy, Debug)]
struct RunningMover {
    attempt: u32,
    progress: StageProgress,
    /// Of a mover that has copied its share of a stage.
    tally: Option<ShareTally>,
}

impl StageRow {
    fn is_of(&self, instance: InstanceId) -> bool {
        let plan = self.plan.as_ref();
        plan.is_some_and(|plan| plan.instance == instance)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Counters {
    /// Sequence number with which this disk was taken into use.
    first_sequence: u64,
    /// Sequence numbers below this one may have been used.
    reserved_sequence: u64,
    /// Bytes written to flash since the disk was taken into use, rounded down.
    written: Bytes,
    /// The latest state of the controller from which a change of the records follows.
    #[serde(default)]
    obeyed: StateStamp,
}

/// The state of a storage node.
#[derive(Clone, Debug)]
pub struct StorageNode {
    id: NodeId,
    granules: u64,
    fragments: Table<FragmentId, FragmentRow>,
    tombstones: Table<FragmentId, ()>,
    /// The first accepted generation of each fenced host's mounts.
    fences: Table<FragmentId, BTreeMap<String, u64>>,
    stages: Table<StageId, StageRow>,
    counters: Table<(), Counters>,
    /// Copy of the record in `counters`.
    durable: Counters,
    sequence: u64,
    /// Bytes that earlier processes have written to flash.
    written_before: Bytes,
    written: Bytes,
    /// The latest state of the controller whose commands were obeyed.
    obeyed: StateStamp,
    /// The movers that run in this process.
    movers: BTreeMap<StageId, RunningMover>,
    /// Whether it offers to share stages; a node of an earlier release does not.
    shares_stages: bool,
    effects: Vec<StorageEffect>,
}

impl StorageNode {
    /// The node with this id and number of granules, from its durable records. On a new disk, which
    /// has no records, the time makes its sequence numbers higher than those of the old disk.
    pub fn restore(
        id: NodeId,
        granules: u64,
        now: UnixMillis,
        records: impl IntoIterator<Item = StoredRecord>,
    ) -> Result<StorageNode, CorruptRecord> {
        let mut fragments = Table::new(fragments::FRAGMENTS);
        let mut tombstones = Table::new("node.tombstones");
        let mut fences = Table::new("node.fences");
        let mut stages = Table::new("node.stages");
        let mut counters = Table::new("node.counters");
        for record in records {
            // Other tables are the controller's, which may share the database.
            let _known = fragments.restore(&record)?
                || tombstones.restore(&record)?
                || fences.restore(&record)?
                || stages.restore(&record)?
                || counters.restore(&record)?;
        }
        let known: Option<Counters> = counters.get(()).copied();
        let durable = known.unwrap_or(Counters {
            first_sequence: now.0 << 16,
            reserved_sequence: now.0 << 16,
            written: Bytes(0),
            obeyed: StateStamp::default(),
        });
        if known.is_none() {
            counters.insert((), durable);
        }
        Ok(StorageNode {
            id,
            granules,
            fragments,
            tombstones,
            fences,
            stages,
            counters,
            durable,
            sequence: durable.reserved_sequence,
            written_before: durable.written,
            written: durable.written,
            obeyed: durable.obeyed,
            movers: BTreeMap::new(),
            shares_stages: true,
            effects: Vec::new(),
        })
    }

    /// Does as a node of an earlier release, which shares no stages.
    pub fn share_no_stages(&mut self) {
        self.shares_stages = false;
    }

    /// Granules in use.
    pub fn used_granules(&self) -> u64 {
        let granules = self.fragments.iter().map(|(_, row)| row.plan.granules);
        granules.fold(0, u64::saturating_add)
    }

    /// Granules that the node has.
    pub fn granules(&self) -> u64 {
        self.granules
    }

    /// Changes the number of granules; fragments stay, also if they then exceed it.
    pub fn set_granules(&mut self, granules: u64) {
        self.granules = granules;
    }

    /// Addresses of the storage daemons of an instance that has a fragment here, in the order of
    /// its fragments. Empty if this is the only one.
    pub fn storage_addresses_of(&self, instance: InstanceId) -> Vec<String> {
        let mut rows = self.fragments.iter().map(|(_, row)| row);
        let row = rows.find(|row| row.plan.instance == instance);
        row.map(|row| row.plan.place.peers.clone()).unwrap_or_default()
    }

    /// All fragments of the node, in any state.
    pub fn fragments(&self) -> Vec<FragmentId> {
        self.fragments.keys()
    }

    /// Processes an input and returns its effects, in the order in which to carry them out.
    pub fn step(&mut self, input: StorageInput) -> Vec<StorageEffect> {
        match input {
            StorageInput::Started => self.resume(),
            StorageInput::Command(command) => self.command(command),
            StorageInput::Created(fragment, outcome) => self.created(fragment, outcome),
            StorageInput::HostsFenced(fragment, through, outcome) => {
                // After a failure the controller repeats its command.
                if outcome.is_ok() {
                    self.report(StorageReport::HostsFenced(fragment, through));
                }
            }
            StorageInput::Destroyed(fragment, outcome) => self.destroyed(fragment, outcome),
            StorageInput::MoverProgress(stage, attempt, progress) => {
                self.mover_progress(stage, attempt, progress);
            }
            StorageInput::ShareCopied(stage, attempt, tally) => {
                self.share_copied(stage, attempt, tally);
            }
            StorageInput::MoverEnded(stage, attempt, outcome) => {
                self.mover_ended(stage, attempt, outcome);
            }
            StorageInput::Tick { written } => {
                self.count_written(written);
                self.heartbeat();
            }
        }
        self.check_invariants();
        let mut changes = Vec::new();
        self.fragments.take_changes(&mut changes);
        self.tombstones.take_changes(&mut changes);
        self.fences.take_changes(&mut changes);
        self.stages.take_changes(&mut changes);
        if !changes.is_empty() && self.durable.obeyed != self.obeyed {
            self.durable.obeyed = self.obeyed;
            self.counters.insert((), self.durable);
        }
        self.counters.take_changes(&mut changes);
        let mut effects = Vec::new();
        if !changes.is_empty() {
            effects.push(StorageEffect::Persist(changes));
        }
        effects.append(&mut self.effects);
        effects
    }

    fn check_invariants(&self) {
        assert!(
            self.sequence <= self.durable.reserved_sequence,
            "a sequence number was used that is not reserved"
        );
        debug_assert!(
            self.fragments.iter().all(|(id, _)| !self.tombstones.contains(id)),
            "a fragment exists that was removed"
        );
        let active = |row: &StageRow| {
            matches!(row.state, LocalStageState::Running | LocalStageState::Cancelling)
        };
        let has_fragment = |row: &StageRow| {
            row.plan.as_ref().is_none_or(|plan| self.has_fragment_of(plan.instance))
        };
        debug_assert!(
            self.stages.iter().all(|(id, row)| !self.may_resume_stage(id) || has_fragment(row)),
            "a stage without a fragment may be resumed"
        );
        debug_assert!(
            self.movers.keys().all(|id| self.stages.get(*id).is_none_or(active)),
            "a mover runs for a stage that has ended"
        );
    }

    fn report(&mut self, body: StorageReport) {
        self.sequence += 1;
        if self.sequence >= self.durable.reserved_sequence {
            self.durable.reserved_sequence = self.sequence + RESERVED_SEQUENCE_NUMBERS;
            self.counters.insert((), self.durable);
        }
        self.effects.push(StorageEffect::Report(Report::Storage {
            node: self.id,
            disk: self.durable.first_sequence,
            sequence: self.sequence,
            body,
        }));
    }

    fn heartbeat(&mut self) {
        self.report(StorageReport::Heartbeat {
            fragments: self.fragments.keys(),
            written: self.written,
            obeyed: self.obeyed,
            copies_instances: true,
            shares_stages: self.shares_stages,
        });
    }

    fn count_written(&mut self, by_this_process: Bytes) {
        self.written = Bytes(self.written_before.0.saturating_add(by_this_process.0));
        if self.written.0.saturating_sub(self.durable.written.0) >= WRITTEN_RESOLUTION {
            self.durable.written = self.written;
            self.counters.insert((), self.durable);
        }
    }

    fn resume(&mut self) {
        self.resume_fragments();
        self.resume_stages();
        self.heartbeat();
    }

    fn command(&mut self, stamped: StampedCommand<StorageCommand>) {
        if !stamped.state.follows(&self.obeyed) {
            // A late command; or the controller was restored from a backup and learns that here.
            return self.heartbeat();
        }
        self.obeyed = stamped.state;
        let outdated = stamped.last_report < self.durable.first_sequence;
        match stamped.command {
            // The controller does not know yet that this disk is new.
            StorageCommand::CreateFragment(_) | StorageCommand::StartStage(_) if outdated => {
                self.heartbeat();
            }
            StorageCommand::CreateFragment(plan) => self.create(plan),
            StorageCommand::RemoveFragment(fragment) => self.remove(fragment),
            StorageCommand::FenceHosts { fragment, hosts, through } => {
                self.fence_hosts(fragment, hosts, through);
            }
            StorageCommand::StartStage(plan) => self.start_stage(plan),
            StorageCommand::CancelStage(stage) => self.cancel_stage(stage),
            StorageCommand::EndShare(order) => self.end_share(order),
        }
    }

    fn stages_of(&self, instance: InstanceId) -> Vec<StageId> {
        let stages = self.stages.iter();
        let stages = stages.filter(|(_, row)| row.is_of(instance));
        stages.map(|(id, _)| id).collect()
    }
}
