//! A storage node's side of the control plane: fragments come and go, stages move data.
//!
//! [`Node::step`] turns commands and the outcomes of earlier effects into effects. What it must
//! not forget is made durable before anything that depends on it is done or said; after a crash
//! [`Input::Started`] takes up what was under way.

mod stages;

use std::collections::BTreeMap;

use forebay_policy::pool::NodeId;
use serde::{Deserialize, Serialize};

use crate::protocol::{
    Command, FragmentId, FragmentPlan, InstanceId, Instant, News, Order, Peer, Progress, Report,
    StageId, StagePlan, Trouble,
};
use crate::table::{Change, Table, Unreadable};

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
pub enum Input {
    /// It starts; first input after [`Node::restore`].
    Started,
    /// The controller wants something.
    Order(Order),
    /// [`Effect::Create`] was carried out.
    Created(FragmentId, Result<(), String>),
    /// [`Effect::Destroy`] was carried out.
    Destroyed(FragmentId, Result<(), String>),
    /// A copy has come so far.
    Copying(StageId, u32, Progress),
    /// A copy ended.
    Copied(StageId, u32, Copied),
    /// Time to say that it lives; about once a second.
    Tick,
}

/// How a copy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copied {
    /// All of it is on stable storage.
    Whole(Progress),
    /// It failed; why.
    Failed(Trouble),
    /// [`Effect::StopCopy`] stopped it.
    Stopped,
}

/// What a node does, in this order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Make these records durable before what follows.
    Persist(Vec<Change>),
    /// Make room for a fragment, or find that it is there already.
    Create(FragmentPlan),
    /// Destroy a fragment, if it is there.
    Destroy(FragmentPlan),
    /// Begin a copy, or go on where one was interrupted.
    BeginCopy(StagePlan),
    /// Stop a copy; [`Input::Copied`] follows if it runs.
    StopCopy(StageId, u32),
    /// Tell the controller.
    Report(Report),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FragmentState {
    Making,
    Ready,
    Removing,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FragmentRow {
    plan: FragmentPlan,
    state: FragmentState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StageState {
    Running,
    Done(Progress),
    Failed(Trouble),
    Cancelling,
    Cancelled,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StageRow {
    /// Absent if the stage was cancelled before it was heard of.
    plan: Option<StagePlan>,
    state: StageState,
}

/// A storage node's state.
#[derive(Clone, Debug)]
pub struct Node {
    id: NodeId,
    granules: u64,
    fragments: Table<FragmentRow>,
    gone: Table<()>,
    stages: Table<StageRow>,
    counts: Table<u64>,
    count: u64,
    /// Copies that run in this process, and how far they are.
    copies: BTreeMap<StageId, (u32, Progress)>,
    effects: Vec<Effect>,
}

impl Node {
    /// The node with this number and so many granules, from its durable records. On a new disk,
    /// which has none, the time makes its report counter rise over that of the old disk.
    pub fn restore(
        id: NodeId,
        granules: u64,
        now: Instant,
        records: impl IntoIterator<Item = (String, u64, Vec<u8>)>,
    ) -> Result<Node, Unreadable> {
        let mut node = Node {
            id,
            granules,
            fragments: Table::new("node.fragments"),
            gone: Table::new("node.gone"),
            stages: Table::new("node.stages"),
            counts: Table::new("node.counts"),
            count: 0,
            copies: BTreeMap::new(),
            effects: Vec::new(),
        };
        for (table, key, value) in records {
            match table.as_str() {
                "node.fragments" => node.fragments.restore(key, &value)?,
                "node.gone" => node.gone.restore(key, &value)?,
                "node.stages" => node.stages.restore(key, &value)?,
                "node.counts" => node.counts.restore(key, &value)?,
                // Records of the controller, which may share the database.
                _ => {}
            }
        }
        if node.counts.is_empty() {
            node.counts.put(FIRST, now.0 << 16);
            node.counts.put(NEXT, now.0 << 16);
        }
        node.count = node.counts.get(NEXT).copied().unwrap_or(0);
        Ok(node)
    }

    /// Granules in use.
    pub fn used(&self) -> u64 {
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
    pub fn peers_of(&self, instance: InstanceId) -> Vec<String> {
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
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Started => self.resume(),
            Input::Order(order) => self.order(order),
            Input::Created(fragment, outcome) => self.created(fragment, outcome),
            Input::Destroyed(fragment, outcome) => self.destroyed(fragment, outcome),
            Input::Copying(stage, attempt, progress) => {
                if let Some(copy) = self.copies.get_mut(&stage)
                    && copy.0 == attempt
                {
                    copy.1 = progress;
                    self.report(News::StageProgress(stage, attempt, progress));
                }
            }
            Input::Copied(stage, attempt, outcome) => self.copied(stage, attempt, outcome),
            Input::Tick => {
                let fragments = self.fragments();
                self.report(News::NodeAlive(fragments));
            }
        }
        let mut changes = Vec::new();
        self.fragments.drain(&mut changes);
        self.gone.drain(&mut changes);
        self.stages.drain(&mut changes);
        self.counts.drain(&mut changes);
        let mut effects = Vec::new();
        if !changes.is_empty() {
            effects.push(Effect::Persist(changes));
        }
        effects.append(&mut self.effects);
        effects
    }

    fn report(&mut self, what: News) {
        self.count += 1;
        if self.count >= self.counts.get(NEXT).copied().unwrap_or(0) {
            self.counts.put(NEXT, self.count + COUNTS_TAKEN);
        }
        let report = Report {
            from: Peer::Node(self.id),
            count: self.count,
            what,
        };
        self.effects.push(Effect::Report(report));
    }

    fn resume(&mut self) {
        for (_, row) in self.fragments.iter() {
            match row.state {
                FragmentState::Making => self.effects.push(Effect::Create(row.plan.clone())),
                FragmentState::Removing => self.effects.push(Effect::Destroy(row.plan.clone())),
                FragmentState::Ready => {}
            }
        }
        for key in self.stages.keys() {
            let Some(row) = self.stages.get(key) else {
                continue;
            };
            match (&row.state, row.plan.clone()) {
                (StageState::Running, Some(plan)) => self.begin(plan),
                (StageState::Cancelling, _) => {
                    if let Some(row) = self.stages.get_mut(key) {
                        row.state = StageState::Cancelled;
                    }
                }
                _ => {}
            }
        }
        let fragments = self.fragments();
        self.report(News::NodeAlive(fragments));
    }

    fn order(&mut self, Order { heard, command }: Order) {
        let makes = matches!(command, Command::SetupFragment(_) | Command::StartStage(_));
        if makes && heard < self.counts.get(FIRST).copied().unwrap_or(0) {
            let fragments = self.fragments();
            return self.report(News::NodeAlive(fragments));
        }
        match command {
            Command::SetupFragment(plan) => self.setup(plan),
            Command::RemoveFragment(fragment) => self.remove(fragment),
            Command::StartStage(plan) => self.start(plan),
            Command::CancelStage(stage) => self.cancel(stage),
            // For hosts; a message that went astray.
            Command::Mount(_) | Command::Unmount(_) => {}
        }
    }

    fn setup(&mut self, plan: FragmentPlan) {
        let fragment = plan.fragment;
        if self.gone.get(fragment.0).is_some() {
            return self.report(News::FragmentGone(fragment));
        }
        match self.fragments.get(fragment.0).map(|row| row.state) {
            Some(FragmentState::Ready) => self.report(News::FragmentReady(fragment)),
            Some(FragmentState::Making | FragmentState::Removing) => {}
            None if plan.granules > self.granules.saturating_sub(self.used()) => {
                let reason = format!(
                    "{} granules are wanted, {} of {} are in use",
                    plan.granules,
                    self.used(),
                    self.granules
                );
                self.report(News::FragmentRefused(fragment, reason));
            }
            None => {
                let row = FragmentRow {
                    plan: plan.clone(),
                    state: FragmentState::Making,
                };
                self.fragments.put(fragment.0, row);
                self.effects.push(Effect::Create(plan));
            }
        }
    }

    fn created(&mut self, fragment: FragmentId, outcome: Result<(), String>) {
        let Some(row) = self.fragments.get(fragment.0) else {
            return;
        };
        if row.state != FragmentState::Making {
            return;
        }
        match outcome {
            Ok(()) => {
                if let Some(row) = self.fragments.get_mut(fragment.0) {
                    row.state = FragmentState::Ready;
                }
                self.report(News::FragmentReady(fragment));
            }
            Err(reason) => {
                self.fragments.remove(fragment.0);
                self.report(News::FragmentRefused(fragment, reason));
            }
        }
    }

    fn remove(&mut self, fragment: FragmentId) {
        let Some(row) = self.fragments.get_mut(fragment.0) else {
            self.bury(fragment);
            return self.report(News::FragmentGone(fragment));
        };
        row.state = FragmentState::Removing;
        let plan = row.plan.clone();
        let mut running = false;
        for stage in self.stages_of(plan.instance) {
            if let Some((attempt, _)) = self.copies.get(&stage) {
                running = true;
                self.effects.push(Effect::StopCopy(stage, *attempt));
            }
        }
        // A copy that still runs is waited for: its end comes back here.
        if !running {
            self.effects.push(Effect::Destroy(plan));
        }
    }

    fn destroyed(&mut self, fragment: FragmentId, outcome: Result<(), String>) {
        let Some(row) = self.fragments.get(fragment.0) else {
            return;
        };
        // A failure leaves the fragment as it is: the controller asks again.
        if row.state != FragmentState::Removing || outcome.is_err() {
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
        self.report(News::FragmentGone(fragment));
    }

    fn bury(&mut self, fragment: FragmentId) {
        self.gone.put(fragment.0, ());
        if self.gone.len() > GONE_KEPT {
            let oldest = self.gone.iter().next().map(|(key, ())| key);
            oldest.map(|key| self.gone.remove(key));
        }
    }

    fn has(&self, instance: InstanceId) -> bool {
        self.fragments
            .iter()
            .any(|(_, row)| row.plan.instance == instance)
    }

    fn usable(&self, instance: InstanceId) -> bool {
        let mut rows = self.fragments.iter().map(|(_, row)| row);
        rows.any(|row| row.plan.instance == instance && row.state == FragmentState::Ready)
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
