//! Stages that several storage nodes move together.
//!
//! Each node with a share copies its part of the files (see `forebay-stage`). When all have reported
//! that their copies are on stable storage, and what they have seen agrees, the node with share 0
//! finishes the stage, and then the others end. If a node cannot copy its share, the others stop.
//!
//! The nodes that share a stage are chosen when it starts for the first time, and recorded: each has a
//! journal of its copies.

use std::collections::{BTreeMap, BTreeSet};

use forebay_job_script::{AccessMode, StageKind};
use forebay_policy::pool::NodeId;
use forebay_protocol::random::keyed_block;
use serde::{Deserialize, Serialize};

use super::machine::Controller;
use super::node_loss::mover_is_lost;
use super::objects::{StageRecord, StageState};
use super::sent_commands::CommandTarget;
use crate::messages::{
    FailedFile, ShareDecision, ShareOrder, SharePlan, ShareTally, StageFailure, StageId,
    StageProgress,
};

/// The reason if the nodes have seen different sources.
const DISAGREE: &str = "its storage nodes have seen different files at the source: these changed while \
     they were staged, or the file system does not show the same names, times and inode numbers on \
     all nodes; stage again when no program writes to them, or with `staging.nodes_per_stage = 1`";

/// End of a share of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareEnd {
    /// Nothing is left to do.
    Done,
    /// It failed.
    Failed(StageFailure),
    /// It was stopped.
    Cancelled,
}

/// The share of one storage node in an attempt of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageShare {
    /// The storage node.
    pub node: NodeId,
    /// Sums over the source and the copies of the node, once these are on stable storage.
    pub tally: Option<ShareTally>,
    /// Its end.
    pub end: Option<ShareEnd>,
    /// Progress at its end.
    pub moved: StageProgress,
}

impl StageShare {
    /// A share of which nothing is copied yet.
    pub fn of(node: NodeId) -> StageShare {
        StageShare { node, tally: None, end: None, moved: StageProgress::default() }
    }
}

impl Controller {
    /// Whether several nodes may move the data of a stage.
    pub(super) fn is_shareable(&self, stage: &StageRecord) -> bool {
        let storage = &self.state.storage;
        let Some(instance) = storage.instance(stage.instance) else {
            return false;
        };
        let copies_files = match stage.directive.kind {
            StageKind::File | StageKind::Directory | StageKind::List => true,
            // Logs are applied in the order of their entries.
            StageKind::Log => false,
        };
        let mut configurations = storage.configurations_of(instance);
        copies_files
            && self.settings.max_nodes_per_stage > 1
            && stage.replica.is_none()
            && stage.copy_of.is_none()
            && !instance.replicated
            && instance.fragments.len() > 1
            && configurations.any(|configuration| configuration.mode == AccessMode::Striped)
    }

    /// The nodes that are to move the data of a stage, of which `first` is one that has a free mover.
    /// The others have so many that single stages do not wait for shared ones.
    pub(super) fn nodes_for_stage(
        &self,
        stage: &StageRecord,
        first: NodeId,
        running: &BTreeMap<NodeId, usize>,
    ) -> Vec<NodeId> {
        if stage.node.is_some() {
            return stage.nodes().collect();
        }
        if !self.is_shareable(stage) || !self.contacts.shares_stages(first) {
            return vec![first];
        }
        let limit = (self.settings.max_stages_per_node / 2).max(1);
        let has_movers = |node: &NodeId| {
            self.is_node_online(*node)
                && self.contacts.shares_stages(*node)
                && running.get(node).copied().unwrap_or(0) < limit
        };
        let fragments = self.state.storage.fragments_of(stage.instance);
        let ready = fragments.filter(|(_, fragment)| fragment.is_ready());
        let nodes: Vec<NodeId> = ready.map(|(_, fragment)| fragment.node).collect();
        let at = nodes.iter().position(|node| *node == first).unwrap_or(0);
        let others = nodes.iter().cycle().skip(at + 1).take(nodes.len().saturating_sub(1));
        let others = others.copied().filter(has_movers);
        let nodes = std::iter::once(first).chain(others);
        nodes.take(self.settings.max_nodes_per_stage).collect()
    }

    /// The share of a stage in a command, if several nodes move its data.
    pub(super) fn share_plan(
        &self,
        id: StageId,
        stage: &StageRecord,
        index: u32,
    ) -> Option<SharePlan> {
        if stage.shares.is_empty() {
            return None;
        }
        let attempt = (1 << 127) | (u128::from(id.0) << 32) | u128::from(stage.attempt);
        let block = keyed_block(&self.settings.secret, attempt);
        let key = block.iter().take(8).fold(0, |key, byte| (key << 8) | u64::from(*byte));
        let count = u32::try_from(stage.shares.len()).ok()?;
        Some(SharePlan { index, count, key })
    }

    /// The node of a share that can be sent commands for it. A node that was replaced by one of an
    /// earlier release cannot.
    pub(super) fn mover_of(&self, stage: &StageRecord, index: u32) -> Option<NodeId> {
        let node = stage_node(stage, index)?;
        (stage.shares.is_empty() || self.contacts.shares_stages(node)).then_some(node)
    }

    /// The copies of a share are on stable storage.
    pub(super) fn share_copied(
        &mut self,
        node: NodeId,
        id: StageId,
        attempt: u32,
        progress: StageProgress,
        tally: ShareTally,
    ) {
        let stages = &mut self.state.stages;
        let Some(share) = stages.record_progress(id, node, attempt, progress) else {
            return;
        };
        stages.record_tally(id, share, tally);
        self.sent.postpone(&CommandTarget::StartStage(id, share), self.now);
    }

    /// The mover of a node has ended. Returns whether it had a share of the stage. `attempt` is
    /// `None` if it has ended for good.
    pub(super) fn share_ended(
        &mut self,
        node: NodeId,
        id: StageId,
        attempt: Option<u32>,
        end: ShareEnd,
        moved: StageProgress,
    ) -> bool {
        let stages = &mut self.state.stages;
        let Some(stage) = stages.get(id).filter(|stage| !stage.shares.is_empty()) else {
            return false;
        };
        let is_current = attempt.is_none_or(|attempt| attempt == stage.attempt);
        if let Some(share) = stage.share_of(node)
            && is_current
            && stage.state.has_mover()
            && stages.end_share(id, share, end, moved)
        {
            self.end_shared_stage(id);
        }
        true
    }

    /// A node with a share is given up.
    pub(super) fn lose_share(&mut self, id: StageId, node: NodeId, name: &str) {
        let stages = &mut self.state.stages;
        let Some(stage) = stages.get(id) else {
            return;
        };
        let Some(share) = stage.share_of(node) else {
            return;
        };
        // After share 0 nothing is left to do.
        let end = match is_finished(stage) {
            true => ShareEnd::Done,
            false if stage.state == StageState::Cancelling => ShareEnd::Cancelled,
            false => ShareEnd::Failed(mover_is_lost(name).into()),
        };
        let moved = stages.progress_of_share(id, share);
        if stages.end_share(id, share, end, moved) {
            self.end_shared_stage(id);
        }
    }

    /// Ends a stage of which all shares have ended.
    fn end_shared_stage(&mut self, id: StageId) {
        let Some(stage) = self.state.stages.get(id) else {
            return;
        };
        let ends: Option<Vec<&ShareEnd>> =
            stage.shares.iter().map(|share| share.end.as_ref()).collect();
        let Some(ends) = ends else {
            return;
        };
        let mut files = Vec::new();
        let state = match failure_of(stage) {
            _ if ends.iter().all(|end| **end == ShareEnd::Done) => StageState::Done,
            None if is_finished(stage) => StageState::Done,
            None => StageState::Cancelled,
            Some(failure) => {
                files = failure.files;
                StageState::Failed(failure.reason)
            }
        };
        let moved = stage.shares.iter().map(|share| share.moved);
        let moved = moved.reduce(|sum, more| sum.beside(&more)).unwrap_or_default();
        let attempt = stage.attempt;
        self.stage_ended(id, attempt, state, moved, &files);
        self.state.stages.record_failed_files(id, attempt, files);
    }
}

/// The node of a share, or of the whole stage.
pub(super) fn stage_node(stage: &StageRecord, index: u32) -> Option<NodeId> {
    stage.nodes().nth(usize::try_from(index).ok()?)
}

/// Whether share 0, and with it the stage, is done, except that other movers wait.
fn is_finished(stage: &StageRecord) -> bool {
    let first = stage.shares.first();
    first.is_some_and(|share| share.end == Some(ShareEnd::Done))
}

/// The tallies of all shares, if all have copied what is theirs.
fn tallies_of(stage: &StageRecord) -> Option<Vec<ShareTally>> {
    stage.shares.iter().map(|share| share.tally).collect()
}

/// The reasons of all shares that have failed, and the files that they name.
fn failure_of(stage: &StageRecord) -> Option<StageFailure> {
    let failed = stage.shares.iter().filter_map(|share| match &share.end {
        Some(ShareEnd::Failed(failure)) => Some(failure),
        Some(ShareEnd::Done | ShareEnd::Cancelled) | None => None,
    });
    let failed: Vec<&StageFailure> = failed.collect();
    if failed.is_empty() {
        return None;
    }
    let mut reasons: Vec<&str> = Vec::new();
    let lines = failed.iter().flat_map(|failure| failure.reason.lines());
    for line in lines.filter(|line| *line != StageFailure::STOPPED) {
        if !reasons.contains(&line) {
            reasons.push(line);
        }
    }
    if reasons.is_empty() {
        reasons.push(DISAGREE);
    }
    let mut named = BTreeSet::new();
    let files = failed.iter().flat_map(|failure| failure.files.iter());
    let files: Vec<FailedFile> = files.filter(|file| named.insert(&file.path)).cloned().collect();
    Some(StageFailure::new(reasons.join("\n"), files, StageProgress::default()))
}

/// The decision on a share, if there is one: what its mover is to do, or `None` to stop.
fn decision_on(stage: &StageRecord, index: u32) -> Option<Option<ShareDecision>> {
    let has_failed =
        |share: &StageShare| matches!(share.end, Some(ShareEnd::Failed(_) | ShareEnd::Cancelled));
    let Some(tallies) = tallies_of(stage) else {
        return stage.shares.iter().any(has_failed).then_some(None);
    };
    let decision = ShareTally::decide(&tallies);
    if index == 0 || !decision.complete {
        return Some(Some(decision));
    }
    match stage.shares.first() {
        Some(first) if has_failed(first) => Some(None),
        _ => is_finished(stage).then_some(Some(decision)),
    }
}

/// The order to a share, if one is due.
pub(super) fn share_order(id: StageId, stage: &StageRecord, index: u32) -> Option<ShareOrder> {
    let share = stage.shares.get(usize::try_from(index).ok()?)?;
    let decision = decision_on(stage, index)?;
    let tally = share.tally.unwrap_or_default();
    Some(ShareOrder { stage: id, attempt: stage.attempt, tally, decision })
}

/// The commands that a stage needs.
pub(super) fn stage_commands(id: StageId, stage: &StageRecord) -> Vec<CommandTarget> {
    let has_order = |index| !stage.shares.is_empty() && decision_on(stage, index).is_some();
    let command = |index: u32| match stage.state {
        StageState::Cancelling => Some(CommandTarget::CancelStage(id, index)),
        StageState::Running if has_order(index) => Some(CommandTarget::EndShare(id, index)),
        StageState::Running => Some(CommandTarget::StartStage(id, index)),
        StageState::Waiting
        | StageState::Queued
        | StageState::Done
        | StageState::Failed(_)
        | StageState::Cancelled => None,
    };
    if stage.shares.is_empty() {
        return stage.node.and_then(|_| command(0)).into_iter().collect();
    }
    let shares = (0..).zip(&stage.shares).filter(|(_, share)| share.end.is_none());
    shares.filter_map(|(index, _)| command(index)).collect()
}
