//! Stages: their records, their progress, and what is remembered of their failures.

use std::collections::{BTreeMap, BTreeSet};

use forebay_policy::pool::NodeId;

use super::job_index::JobStages;
use super::objects::{StageRecord, StageState};
use super::shares::{ShareEnd, StageShare};
use crate::messages::{
    FailedFile, FragmentId, InstanceId, SessionId, ShareTally, StageId, StageProgress, UnixMillis,
};
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// Limit on the failed files that are remembered per session; of stages that fail after that, only
/// the first file is.
const MAX_FAILED_FILES: usize = 65_536;

/// All stages.
#[derive(Clone, Debug)]
pub struct StageTable {
    records: Table<StageId, StageRecord>,
    /// Progress of stages with a mover, by share; of a stage that one node moves, share 0.
    progress: BTreeMap<(StageId, u32), StageProgress>,
    /// Follows from `records`.
    job_stages: JobStages,
    /// The stages in progress. Follows from `records`.
    in_progress: BTreeSet<StageId>,
    /// Number of failed files that are remembered, by session. Follows from `records`.
    failed_files: BTreeMap<SessionId, usize>,
}

impl Default for StageTable {
    fn default() -> StageTable {
        StageTable {
            records: Table::new("stages"),
            progress: BTreeMap::new(),
            job_stages: JobStages::default(),
            in_progress: BTreeSet::new(),
            failed_files: BTreeMap::new(),
        }
    }
}

impl StageTable {
    pub(super) fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        self.records.restore(record)
    }

    /// Computes what follows from the restored records.
    pub(super) fn finish_restore(&mut self) {
        for (id, stage) in self.records.iter() {
            if stage.copy_of.is_none() {
                self.job_stages.insert(stage.session, id, &stage.directive);
            }
            if stage.state.is_in_progress() {
                self.in_progress.insert(id);
            }
            *self.failed_files.entry(stage.session).or_default() += stage.failed_files.len();
        }
    }

    pub(super) fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.records.take_changes(changes);
    }

    /// Panics if the tables contradict each other. Costs time in proportion to their size.
    pub(super) fn check_invariants(&self) {
        let with_mover = |(id, _): &(StageId, u32)| {
            let stage = self.records.get(*id);
            stage.is_some_and(|stage| stage.state.has_mover())
        };
        assert!(self.progress.keys().all(with_mover), "progress of a stage without a mover");
        for (id, stage) in self.records.iter() {
            assert_eq!(
                self.in_progress.contains(&id),
                stage.state.is_in_progress(),
                "stages in progress are listed"
            );
            assert!(
                !stage.state.has_mover() || stage.node.is_some(),
                "a stage has a mover on no node"
            );
            let first = stage.shares.first().map(|share| share.node);
            assert!(first.is_none() || first == stage.node, "share 0 is on the stage's node");
            let nodes: BTreeSet<NodeId> = stage.nodes().collect();
            assert_eq!(nodes.len(), stage.nodes().count(), "a node has two shares of a stage");
            assert!(
                stage.attempt > 0 || !stage.state.is_in_progress(),
                "a stage was started without an attempt"
            );
        }
    }

    /// A stage.
    pub fn get(&self, id: StageId) -> Option<&StageRecord> {
        self.records.get(id)
    }

    /// All stages.
    pub fn iter(&self) -> impl Iterator<Item = (StageId, &StageRecord)> {
        self.records.iter()
    }

    /// The stages in progress.
    pub(super) fn in_progress(&self) -> impl Iterator<Item = (StageId, &StageRecord)> {
        self.in_progress.iter().filter_map(|id| Some((*id, self.records.get(*id)?)))
    }

    /// Stages that were changed or removed in this step.
    pub(super) fn changed(&self) -> impl Iterator<Item = StageId> {
        self.records.changed_keys()
    }

    /// Lists a stage among those in progress, or not, after a change of its state.
    fn note_state(&mut self, id: StageId) {
        match self.records.get(id).is_some_and(|stage| stage.state.is_in_progress()) {
            true => self.in_progress.insert(id),
            false => self.in_progress.remove(&id),
        };
    }

    /// The ids of the stages that match a condition.
    pub(super) fn ids(&self, matches: impl Fn(&StageRecord) -> bool) -> Vec<StageId> {
        let stages = self.records.iter();
        let found = stages.filter(|(_, stage)| matches(stage));
        found.map(|(id, _)| id).collect()
    }

    /// Progress of the current attempt; of an ended stage, at its end.
    pub(super) fn progress(&self, id: StageId, stage: &StageRecord) -> StageProgress {
        if stage.shares.is_empty() || !stage.state.has_mover() {
            return self.progress.get(&(id, 0)).copied().unwrap_or(stage.moved);
        }
        let of_share = |(index, share): (u32, &StageShare)| match share.end {
            Some(_) => share.moved,
            None => self.progress.get(&(id, index)).copied().unwrap_or_default(),
        };
        let progress = (0..).zip(&stage.shares).map(of_share);
        progress.reduce(|sum, more| sum.beside(&more)).unwrap_or_default()
    }

    /// Progress of a share of the current attempt.
    pub(super) fn progress_of_share(&self, id: StageId, index: u32) -> StageProgress {
        self.progress.get(&(id, index)).copied().unwrap_or_default()
    }

    /// The stages that running jobs have requested, by path.
    pub(super) fn job_stages(&self) -> &JobStages {
        &self.job_stages
    }

    pub(super) fn insert(&mut self, id: StageId, stage: StageRecord) {
        if stage.copy_of.is_none() {
            self.job_stages.insert(stage.session, id, &stage.directive);
        }
        self.records.insert_new(id, stage);
        self.note_state(id);
    }

    /// Queues a stage for a new attempt.
    pub(super) fn queue(&mut self, id: StageId, now: UnixMillis) {
        let Some(stage) = self.records.get_mut(id) else {
            return;
        };
        assert!(!stage.state.is_in_progress(), "a stage was queued twice");
        stage.state = StageState::Queued;
        stage.attempt += 1;
        stage.queued = now;
        for share in &mut stage.shares {
            *share = StageShare::of(share.node);
        }
        self.note_state(id);
    }

    /// Assigns a queued stage to the nodes that move its data, one or several. They are the same in
    /// every attempt, because each has its journal of what it has copied.
    pub(super) fn assign(&mut self, id: StageId, nodes: &[NodeId]) {
        if let Some(stage) = self.records.get_mut(id) {
            assert_eq!(stage.state, StageState::Queued);
            assert!(stage.node.is_none() || stage.nodes().eq(nodes.iter().copied()));
            stage.state = StageState::Running;
            stage.node = nodes.first().copied();
            if nodes.len() > 1 {
                stage.shares = nodes.iter().copied().map(StageShare::of).collect();
            }
        }
    }

    /// Notes that the copies of a share of an attempt are on stable storage.
    pub(super) fn record_tally(&mut self, id: StageId, index: u32, tally: ShareTally) {
        let share = self.share(id, index);
        // A repeated report changes no record.
        if share.is_none_or(|share| share.end.is_some() || share.tally == Some(tally)) {
            return;
        }
        if let Some(share) = self.share_mut(id, index) {
            share.tally = Some(tally);
        }
    }

    /// The mover of a share has ended, or is lost with its node. Returns whether that is news.
    pub(super) fn end_share(
        &mut self,
        id: StageId,
        index: u32,
        end: ShareEnd,
        moved: StageProgress,
    ) -> bool {
        if self.share(id, index).is_none_or(|share| share.end.is_some()) {
            return false;
        }
        self.progress.remove(&(id, index));
        if let Some(share) = self.share_mut(id, index) {
            (share.end, share.moved) = (Some(end), moved);
        }
        true
    }

    fn share(&self, id: StageId, index: u32) -> Option<&StageShare> {
        self.records.get(id)?.shares.get(usize::try_from(index).ok()?)
    }

    fn share_mut(&mut self, id: StageId, index: u32) -> Option<&mut StageShare> {
        self.records.get_mut(id)?.shares.get_mut(usize::try_from(index).ok()?)
    }

    fn forget_progress(&mut self, id: StageId) {
        let of_stage: Vec<_> = self.progress.range((id, 0)..=(id, u32::MAX)).collect();
        let keys: Vec<(StageId, u32)> = of_stage.into_iter().map(|(key, _)| *key).collect();
        for key in keys {
            self.progress.remove(&key);
        }
    }

    /// Has a stage stopped, unless it has ended successfully.
    pub(super) fn cancel(&mut self, id: StageId) {
        let next = match self.records.get(id).map(|stage| &stage.state) {
            // A queued stage has no mover: earlier attempts have ended.
            Some(StageState::Waiting | StageState::Failed(_) | StageState::Queued) => {
                StageState::Cancelled
            }
            Some(StageState::Running) => StageState::Cancelling,
            Some(StageState::Cancelling | StageState::Done | StageState::Cancelled) | None => {
                return;
            }
        };
        self.set_state(id, next);
    }

    /// Lets a stage-out run again: it has not moved what its job writes from now on.
    pub(super) fn reopen(&mut self, id: StageId) {
        self.set_state(id, StageState::Waiting);
    }

    /// Fails a stage that has no mover.
    pub(super) fn fail(&mut self, id: StageId, reason: String) {
        self.set_state(id, StageState::Failed(reason));
    }

    fn set_state(&mut self, id: StageId, state: StageState) {
        if !state.has_mover() {
            self.forget_progress(id);
        }
        if let Some(stage) = self.records.get_mut(id) {
            stage.state = state;
            stage.without_source = 0;
        }
        self.note_state(id);
    }

    pub(super) fn set_replica(&mut self, id: StageId, replica: Option<FragmentId>) {
        if let Some(stage) = self.records.get_mut(id) {
            stage.replica = replica;
        }
    }

    /// An instance was renumbered, and is on other nodes. No mover is at work on it.
    pub(super) fn move_to_instance(&mut self, old: InstanceId, new: InstanceId) {
        for id in self.ids(|stage| stage.instance == old) {
            if let Some(stage) = self.records.get_mut(id) {
                assert!(!stage.state.has_mover(), "a mover is at work on an instance that moves");
                stage.instance = new;
                stage.node = None;
            }
        }
    }

    /// Notes the progress of an attempt on a node. Returns the share, if the attempt runs.
    pub(super) fn record_progress(
        &mut self,
        id: StageId,
        node: NodeId,
        attempt: u32,
        now: StageProgress,
    ) -> Option<u32> {
        let stage = self.records.get(id)?;
        if stage.attempt != attempt || stage.state != StageState::Running {
            return None;
        }
        let index = if stage.shares.is_empty() { 0 } else { stage.share_of(node)? };
        if self.share(id, index).is_none_or(|share| share.end.is_none()) {
            self.progress.insert((id, index), now);
        }
        Some(index)
    }

    /// The mover of an attempt has ended, with these failed files, or is lost with its node.
    pub(super) fn end(
        &mut self,
        id: StageId,
        state: StageState,
        moved: StageProgress,
        failed: &[FailedFile],
    ) {
        assert!(!state.is_in_progress());
        let Some(stage) = self.records.get_mut(id) else {
            return;
        };
        let lacks_source = matches!(state, StageState::Failed(_)) && stage.lacks_source(failed);
        stage.without_source =
            if lacks_source { stage.without_source.saturating_add(1) } else { 0 };
        stage.state = state;
        stage.moved = moved;
        let remembered = self.failed_files.entry(stage.session).or_default();
        *remembered = remembered.saturating_sub(stage.failed_files.len());
        stage.failed_files.clear();
        self.forget_progress(id);
        self.note_state(id);
    }

    /// Remembers which files could not be staged.
    pub(super) fn record_failed_files(
        &mut self,
        id: StageId,
        attempt: u32,
        mut files: Vec<FailedFile>,
    ) {
        let Some(stage) = self.records.get(id) else {
            return;
        };
        let failed = matches!(stage.state, StageState::Failed(_));
        let is_copy = stage.copy_of.is_some();
        if !failed || is_copy || stage.attempt != attempt || stage.failed_files == files {
            return;
        }
        let remembered = self.failed_files.entry(stage.session).or_default();
        if *remembered + files.len() > MAX_FAILED_FILES {
            files.truncate(1);
        }
        *remembered += files.len();
        if let Some(stage) = self.records.get_mut(id) {
            stage.failed_files = files;
        }
    }

    /// Forgets stages of a session.
    pub(super) fn remove(&mut self, stages: &[StageId]) {
        for id in stages {
            self.records.remove(*id);
            self.in_progress.remove(id);
            self.forget_progress(*id);
        }
        self.job_stages.remove_stages(stages);
    }

    /// Forgets everything about a session whose stages have ended.
    pub(super) fn remove_session(&mut self, session: SessionId, stages: &[StageId]) {
        self.remove(stages);
        self.failed_files.remove(&session);
    }
}
