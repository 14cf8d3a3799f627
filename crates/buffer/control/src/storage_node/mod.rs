//! A storage node's side of the control plane: fragments come and go, stages move data.
//!
//! [`Node::step`] turns commands and the outcomes of earlier effects into effects. What it must
//! not forget is made durable before anything that depends on it is done or said; after a crash
//! [`Input::Started`] takes up what was under way.

mod stages;

use std::collections::BTreeMap;

use forebay_policy::pool::NodeId;
use serde::{Deserialize, Serialize};

use crate::messages::{
    Command, FragmentId, FragmentPlan, InstanceId, Peer, Report, ReportBody, StageFailure, StageId,
    StagePlan, StageProgress, StampedCommand, UnixMillis,
};
use crate::records::{Change, CorruptRecord, Table};

/// Removed fragments that are remembered, so that a late command does not bring them back.
const GONE_KEPT: usize = 4096;
/// Stages that are remembered after they ended.
const STAGES_KEPT: usize = 65_536;
/// Report numbers taken at a time, so that not every report needs a write.
const COUNTS_TAKEN: u64 = 4096;
/// Record of `counts`: report numbers below this one may have been used.
const NEXT: u64 = 0;
/// Record of `counts`: the report number with which this disk was taken into use.
const FIRST: u64 = 1;

/// What happens to a node.
#[derive(Clone, Debug)]
pub enum StorageInput {
    /// It starts; first input after [`Node::restore`].
    Started,
    /// The controller wants something.
    Command(StampedCommand),
    /// [`Effect::Create`] was carried out.
    Created(FragmentId, Result<(), String>),
    /// [`Effect::Destroy`] was carried out.
    Destroyed(FragmentId, Result<(), String>),
    /// A copy has come so far.
    MoverProgress(StageId, u32, StageProgress),
    /// A copy ended.
    MoverEnded(StageId, u32, MoverOutcome),
    /// Time to say that it lives; about once a second.
    Tick,
}

/// How a copy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoverOutcome {
    /// All of it is on stable storage.
    Completed(StageProgress),
    /// It failed; why.
    Failed(StageFailure),
    /// [`Effect::StopCopy`] stopped it.
    Stopped,
}

/// What a node does, in this order.
#[derive(Clone, Debug)]
pub enum StorageEffect {
    /// Make these records durable before what follows.
    Persist(Vec<Change>),
    /// Make room for a fragment, or find that it is there already.
    Create(FragmentPlan),
    /// Destroy a fragment, if it is there.
    Destroy(FragmentPlan),
    /// Begin a copy, or go on where one was interrupted.
    StartMover(StagePlan),
    /// Stop a copy; [`Input::Copied`] follows if it runs.
    StopMover(StageId, u32),
    /// Tell the controller.
    Report(Report),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LocalFragmentState {
    Making,
    Ready,
    Removing,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FragmentRow {
    plan: FragmentPlan,
    state: LocalFragmentState,
}

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
    /// Absent if the stage was cancelled before it was heard of.
    plan: Option<StagePlan>,
    state: LocalStageState,
}

/// A storage node's state.
#[derive(Clone, Debug)]
pub struct StorageNode {
    id: NodeId,
    granules: u64,
    fragments: Table<FragmentRow>,
    tombstones: Table<()>,
    stages: Table<StageRow>,
    counts: Table<u64>,
    count: u64,
    /// Copies that run in this process, and how far they are.
    movers: BTreeMap<StageId, (u32, StageProgress)>,
    effects: Vec<StorageEffect>,
}

impl StorageNode {
    /// The node with this number and so many granules, from its durable records. On a new disk,
    /// which has none, the time makes its report counter rise over that of the old disk.
    pub fn restore(
        id: NodeId,
        granules: u64,
        now: UnixMillis,
        records: impl IntoIterator<Item = (String, u64, Vec<u8>)>,
    ) -> Result<StorageNode, CorruptRecord> {
        let mut node = StorageNode {
            id,
            granules,
            fragments: Table::new("node.fragments"),
            tombstones: Table::new("node.gone"),
            stages: Table::new("node.stages"),
            counts: Table::new("node.counts"),
            count: 0,
            movers: BTreeMap::new(),
            effects: Vec::new(),
        };
        for (table, key, value) in records {
            match table.as_str() {
                "node.fragments" => node.fragments.restore(key, &value)?,
                "node.gone" => node.tombstones.restore(key, &value)?,
                "node.stages" => node.stages.restore(key, &value)?,
                "node.counts" => node.counts.restore(key, &value)?,
                // Records of the controller, which may share the database.
                _ => {}
            }
        }
        if node.counts.is_empty() {
            node.counts.insert(FIRST, now.0 << 16);
            node.counts.insert(NEXT, now.0 << 16);
        }
        node.count = node.counts.get(NEXT).copied().unwrap_or(0);
        Ok(node)
    }

    /// Granules in use.
    pub fn used_granules(&self) -> u64 {
        self.fragments
            .iter()
            .fold(0, |sum, (_, row)| sum.saturating_add(row.plan.granules))
    }

    /// Granules it has.
    pub fn granules(&self) -> u64 {
        self.granules
    }

    /// Gives it more granules, or fewer: what is in use stays.
    pub fn set_granules(&mut self, granules: u64) {
        self.granules = granules;
    }

    /// Where the storage daemons of an instance listen that has a fragment here, in the fragments'
    /// order. Empty if this is the only one.
    pub fn storage_addresses_of(&self, instance: InstanceId) -> Vec<String> {
        self.fragments
            .iter()
            .find(|(_, row)| row.plan.instance == instance)
            .map(|(_, row)| row.plan.place.peers.clone())
            .unwrap_or_default()
    }

    /// The fragments it has, whatever their state.
    pub fn fragments(&self) -> Vec<FragmentId> {
        self.fragments.keys().into_iter().map(FragmentId).collect()
    }

    /// Takes an input and says what to do about it, in this order.
    pub fn step(&mut self, input: StorageInput) -> Vec<StorageEffect> {
        match input {
            StorageInput::Started => self.resume(),
            StorageInput::Command(order) => self.order(order),
            StorageInput::Created(fragment, outcome) => self.created(fragment, outcome),
            StorageInput::Destroyed(fragment, outcome) => self.destroyed(fragment, outcome),
            StorageInput::MoverProgress(stage, attempt, progress) => {
                if let Some(copy) = self.movers.get_mut(&stage)
                    && copy.0 == attempt
                {
                    copy.1 = progress;
                    self.report(ReportBody::StageProgress(stage, attempt, progress));
                }
            }
            StorageInput::MoverEnded(stage, attempt, outcome) => {
                self.mover_ended(stage, attempt, outcome)
            }
            StorageInput::Tick => {
                let fragments = self.fragments();
                self.report(ReportBody::StorageHeartbeat(fragments));
            }
        }
        let mut changes = Vec::new();
        self.fragments.take_changes(&mut changes);
        self.tombstones.take_changes(&mut changes);
        self.stages.take_changes(&mut changes);
        self.counts.take_changes(&mut changes);
        let mut effects = Vec::new();
        if !changes.is_empty() {
            effects.push(StorageEffect::Persist(changes));
        }
        effects.append(&mut self.effects);
        effects
    }

    fn report(&mut self, what: ReportBody) {
        self.count += 1;
        if self.count >= self.counts.get(NEXT).copied().unwrap_or(0) {
            self.counts.insert(NEXT, self.count + COUNTS_TAKEN);
        }
        let report = Report {
            from: Peer::StorageNode(self.id),
            sequence: self.count,
            body: what,
        };
        self.effects.push(StorageEffect::Report(report));
    }

    fn resume(&mut self) {
        for (_, row) in self.fragments.iter() {
            match row.state {
                LocalFragmentState::Making => {
                    self.effects.push(StorageEffect::Create(row.plan.clone()))
                }
                LocalFragmentState::Removing => {
                    self.effects.push(StorageEffect::Destroy(row.plan.clone()))
                }
                LocalFragmentState::Ready => {}
            }
        }
        for key in self.stages.keys() {
            let Some(row) = self.stages.get(key) else {
                continue;
            };
            match (&row.state, row.plan.clone()) {
                (LocalStageState::Running, Some(plan)) => self.start_mover(plan),
                (LocalStageState::Cancelling, _) => {
                    if let Some(row) = self.stages.get_mut(key) {
                        row.state = LocalStageState::Cancelled;
                    }
                }
                _ => {}
            }
        }
        let fragments = self.fragments();
        self.report(ReportBody::StorageHeartbeat(fragments));
    }

    fn order(
        &mut self,
        StampedCommand {
            last_report: heard,
            command,
        }: StampedCommand,
    ) {
        let makes = matches!(command, Command::SetupFragment(_) | Command::StartStage(_));
        if makes && heard < self.counts.get(FIRST).copied().unwrap_or(0) {
            let fragments = self.fragments();
            return self.report(ReportBody::StorageHeartbeat(fragments));
        }
        match command {
            Command::SetupFragment(plan) => self.setup(plan),
            Command::RemoveFragment(fragment) => self.remove(fragment),
            Command::StartStage(plan) => self.start_stage(plan),
            Command::CancelStage(stage) => self.cancel_stage(stage),
            // For hosts; a message that went astray.
            Command::Mount(_) | Command::Unmount(_) => {}
        }
    }

    fn setup(&mut self, plan: FragmentPlan) {
        let fragment = plan.fragment;
        if self.tombstones.get(fragment.0).is_some() {
            return self.report(ReportBody::FragmentRemoved(fragment));
        }
        match self.fragments.get(fragment.0).map(|row| row.state) {
            Some(LocalFragmentState::Ready) => self.report(ReportBody::FragmentReady(fragment)),
            Some(LocalFragmentState::Making | LocalFragmentState::Removing) => {}
            None if plan.granules > self.granules.saturating_sub(self.used_granules()) => {
                let reason = format!(
                    "{} granules are wanted, {} of {} are in use",
                    plan.granules,
                    self.used_granules(),
                    self.granules
                );
                self.report(ReportBody::FragmentRefused(fragment, reason));
            }
            None => {
                let row = FragmentRow {
                    plan: plan.clone(),
                    state: LocalFragmentState::Making,
                };
                self.fragments.insert(fragment.0, row);
                self.effects.push(StorageEffect::Create(plan));
            }
        }
    }

    fn created(&mut self, fragment: FragmentId, outcome: Result<(), String>) {
        let Some(row) = self.fragments.get(fragment.0) else {
            return;
        };
        if row.state != LocalFragmentState::Making {
            return;
        }
        match outcome {
            Ok(()) => {
                if let Some(row) = self.fragments.get_mut(fragment.0) {
                    row.state = LocalFragmentState::Ready;
                }
                self.report(ReportBody::FragmentReady(fragment));
            }
            Err(reason) => {
                self.fragments.remove(fragment.0);
                self.report(ReportBody::FragmentRefused(fragment, reason));
            }
        }
    }

    fn remove(&mut self, fragment: FragmentId) {
        let Some(row) = self.fragments.get_mut(fragment.0) else {
            self.bury(fragment);
            return self.report(ReportBody::FragmentRemoved(fragment));
        };
        row.state = LocalFragmentState::Removing;
        let plan = row.plan.clone();
        let mut running = false;
        for stage in self.stages_of(plan.instance) {
            if let Some((attempt, _)) = self.movers.get(&stage) {
                running = true;
                self.effects.push(StorageEffect::StopMover(stage, *attempt));
            }
        }
        // A copy that still runs is waited for: its end comes back here.
        if !running {
            self.effects.push(StorageEffect::Destroy(plan));
        }
    }

    fn destroyed(&mut self, fragment: FragmentId, outcome: Result<(), String>) {
        let Some(row) = self.fragments.get(fragment.0) else {
            return;
        };
        // A failure leaves the fragment as it is: the controller asks again.
        if row.state != LocalFragmentState::Removing || outcome.is_err() {
            return;
        }
        let instance = row.plan.instance;
        self.fragments.remove(fragment.0);
        self.bury(fragment);
        if !self.has(instance) {
            for stage in self.stages_of(instance) {
                self.stages.remove(stage.0);
            }
        }
        self.report(ReportBody::FragmentRemoved(fragment));
    }

    fn bury(&mut self, fragment: FragmentId) {
        self.tombstones.insert(fragment.0, ());
        if self.tombstones.len() > GONE_KEPT {
            let oldest = self.tombstones.iter().next().map(|(key, ())| key);
            oldest.map(|key| self.tombstones.remove(key));
        }
    }

    fn has(&self, instance: InstanceId) -> bool {
        self.fragments
            .iter()
            .any(|(_, row)| row.plan.instance == instance)
    }

    fn usable(&self, instance: InstanceId) -> bool {
        let mut rows = self.fragments.iter().map(|(_, row)| row);
        rows.any(|row| row.plan.instance == instance && row.state == LocalFragmentState::Ready)
    }

    fn stages_of(&self, instance: InstanceId) -> Vec<StageId> {
        let of = |row: &StageRow| {
            row.plan
                .as_ref()
                .is_some_and(|plan| plan.instance == instance)
        };
        self.stages
            .iter()
            .filter(|(_, row)| of(row))
            .map(|(key, _)| StageId(key))
            .collect()
    }
}
