//! Storage nodes that an operator gives up: what only they held is lost, everything else goes on
//! without them. One that comes back all the same is emptied, and is taken back when it is empty.

use std::fmt;

use forebay_job_script::Direction;
use forebay_policy::pool::NodeId;
use serde::{Deserialize, Serialize};

use super::dispatch::Accepted;
use super::*;
use crate::messages::*;

/// An instance that is lost with a storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceLoss {
    /// The job's id or the persistent instance's name.
    pub label: String,
    /// Which of the two.
    pub lifetime: Lifetime,
    /// Whose it is.
    pub owner: Owner,
    /// Its stage-outs that are not done.
    pub unfinished_outs: u32,
    /// Jobs other than its own that use it.
    pub users: Vec<String>,
}

impl fmt::Display for InstanceLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.lifetime {
            Lifetime::Job => "job",
            Lifetime::Persistent => "persistent instance",
        };
        write!(f, "{what} `{}` of user {}", self.label, self.owner.uid)?;
        if self.unfinished_outs > 0 {
            write!(f, ", {} stage-out(s) not done", self.unfinished_outs)?;
        }
        if !self.users.is_empty() {
            write!(f, ", used by {}", self.users.join(", "))?;
        }
        Ok(())
    }
}

impl Controller {
    /// Gives a node up. Refused while it may be alive, and, unless `lost`, while an instance has
    /// data on it that is nowhere else.
    pub(super) fn forget_node(&mut self, node: NodeId, lost: bool) -> Result<Accepted, Failure> {
        let row = self.state.nodes.get(u64::from(node.0));
        let row = row.ok_or_else(|| {
            let reason = format!("there is no storage node {}", node.0);
            Failure::new(Cause::NotFound, reason)
        })?;
        let name = row.name.clone();
        if row.forgotten.is_some() {
            // Asked again.
            return Ok(Accepted::Answer(Answer::NodeForgotten(self.losses(node))));
        }
        let peer = Peer::StorageNode(node);
        if self.is_online(&peer) {
            let seconds = self.settings.offline_after_ms / 1000;
            let reason = match self.peers.contains_key(&peer) {
                true => format!(
                    "storage node `{name}` is not offline: it has reported in the last {seconds} s; \
                     `forebay drain {name}` keeps new instances off it"
                ),
                false => format!(
                    "the controller has just started, and gives storage node `{name}` {seconds} s to \
                     report; try again then"
                ),
            };
            return Err(Failure::new(Cause::Busy, reason));
        }
        let losses = self.losses(node);
        if !lost && !losses.is_empty() {
            let losses: Vec<String> = losses.iter().map(InstanceLoss::to_string).collect();
            let reason = format!(
                "storage node `{name}` has the only copy of data of:\n  {}\nIf it will never come \
                 back, `forebay forget {name} --lost` gives that data up",
                losses.join("\n  ")
            );
            return Err(Failure::new(Cause::Busy, reason));
        }
        for (fragment, instance) in self.fragments_on(node) {
            self.lose(fragment, instance, &name);
        }
        let heard = self.peers.get(&peer).map_or(0, |view| view.last_sequence);
        if let Some(row) = self.state.nodes.get_mut(u64::from(node.0)) {
            row.forgotten = Some(heard);
        }
        self.end_stages_of(node, &name);
        Ok(Accepted::Answer(Answer::NodeForgotten(losses)))
    }

    fn fragments_on(&self, node: NodeId) -> Vec<(FragmentId, InstanceId)> {
        let fragments = self.state.fragments.iter();
        fragments
            .filter(|(_, f)| f.node == node)
            .map(|(id, f)| (FragmentId(id), f.instance))
            .collect()
    }

    /// Whether data goes with a fragment: it was in use, is still wanted, and there is no other copy.
    fn is_only_copy(&self, id: FragmentId, instance: InstanceId) -> bool {
        let (Some(fragment), Some(row)) = (
            self.state.fragments.get(id.0),
            self.state.instances.get(instance.0),
        ) else {
            return false;
        };
        let others = || {
            let others = self.state.fragments_of(instance);
            others.filter(move |(other, _)| *other != id)
        };
        let wanted = |f: &Fragment| f.state == FragmentState::Requested;
        let there = |f: &Fragment| matches!(f.state, FragmentState::Ready(_));
        match fragment.state {
            FragmentState::Forgotten => true,
            FragmentState::Ready(_) if row.ending => false,
            FragmentState::Ready(_) if row.replicated => {
                !others().any(|(_, f)| there(f) || wanted(f))
            }
            // One with parts that were never made was never used; it is begun anew.
            FragmentState::Ready(_) => row.broken.is_some() || !others().any(|(_, f)| wanted(f)),
            FragmentState::Requested | FragmentState::Lost | FragmentState::Ending => false,
        }
    }

    /// The instances that have, or had, their only copy of something on a node.
    fn losses(&self, node: NodeId) -> Vec<InstanceLoss> {
        let fragments = self.fragments_on(node).into_iter();
        let lost = fragments.filter(|(id, instance)| self.is_only_copy(*id, *instance));
        lost.filter_map(|(_, id)| self.loss(id)).collect()
    }

    fn loss(&self, id: InstanceId) -> Option<InstanceLoss> {
        let instance = self.state.instances.get(id.0)?;
        let session = self.state.sessions.get(instance.session.0)?;
        let stages = self.state.stages.iter().map(|(_, stage)| stage);
        let unfinished = stages.filter(|stage| {
            stage.instance == id
                && stage.directive.direction == Direction::Out
                && !matches!(stage.state, StageState::Done | StageState::Cancelled)
        });
        let users = self.state.other_sessions_using(id).into_iter();
        let users = users.filter_map(|id| Some(self.state.sessions.get(id.0)?.token.clone()));
        Some(InstanceLoss {
            label: instance.label.clone(),
            lifetime: session.lifetime,
            owner: session.owner,
            unfinished_outs: u32::try_from(unfinished.count()).unwrap_or(u32::MAX),
            users: users.collect(),
        })
    }

    /// What becomes of a fragment whose node is given up, and of its instance. Fragments that are
    /// ending, or are still to be made, are dealt with as the instance's state says.
    fn lose(&mut self, id: FragmentId, instance: InstanceId, name: &str) {
        let state = self.state.fragments.get(id.0).map(|f| f.state);
        if !matches!(state, Some(FragmentState::Ready(_) | FragmentState::Lost)) {
            return;
        }
        let only = self.is_only_copy(id, instance);
        if !only && matches!(state, Some(FragmentState::Ready(_))) {
            if !self.give_up_replica(id, instance) {
                self.abandon_instance(instance);
            }
            return;
        }
        if let Some(fragment) = self.state.fragments.get_mut(id.0) {
            fragment.state = FragmentState::Forgotten;
        }
        let Some(row) = self.state.instances.get_mut(instance.0) else {
            return;
        };
        let reason = format!(
            "storage node `{name}`, which held a part of `{}`, is lost for good: an operator has \
             given it up",
            row.label
        );
        // That it will not come back says more than what was known before.
        row.broken = Some(reason.clone());
        let stages = self.state.stages.iter();
        let queued: Vec<u64> = stages
            .filter(|(_, s)| s.instance == instance && s.state == StageState::Queued)
            .map(|(id, _)| id)
            .collect();
        for stage in queued {
            if let Some(stage) = self.state.stages.get_mut(stage) {
                stage.state = StageState::Failed(reason.clone());
            }
        }
    }

    /// Stages that a node moved have ended with it.
    fn end_stages_of(&mut self, node: NodeId, name: &str) {
        let stages = self.state.stages.iter();
        let of: Vec<StageId> = stages
            .filter(|(_, stage)| stage.node == Some(node) && stage.in_progress())
            .map(|(id, _)| StageId(id))
            .collect();
        for id in of {
            let Some(stage) = self.state.stages.get_mut(id.0) else {
                continue;
            };
            stage.state = match stage.state {
                StageState::Cancelling => StageState::Cancelled,
                _ => StageState::Failed(format!(
                    "storage node `{name}`, which moved it, is lost for good: an operator has given \
                     it up"
                )),
            };
            if let Some(progress) = self.progress.remove(&id) {
                stage.moved = progress;
            }
        }
    }

    /// Why a stage failed; if its instance is lost, that too.
    pub(super) fn describe_loss(&self, instance: InstanceId, reason: String) -> String {
        let lost = |f: &Fragment| f.state == FragmentState::Forgotten;
        let row = self.state.instances.get(instance.0);
        let known = row.and_then(|row| row.broken.as_ref());
        match known.filter(|_| self.state.fragments_of(instance).any(|(_, f)| lost(f))) {
            Some(known) => format!("{reason}; {known}"),
            None => reason,
        }
    }

    /// A fragment is to go; one that is lost already has gone.
    pub(super) fn end_fragment(&mut self, id: FragmentId) {
        match self.state.fragments.get_mut(id.0) {
            Some(f) if f.state == FragmentState::Forgotten => self.drop_fragment(id),
            Some(fragment) => fragment.state = FragmentState::Ending,
            None => {}
        }
    }

    /// Nodes that are given up are not waited for. If one comes back, it is told to remove what it
    /// has before it gets anything.
    pub(super) fn drop_forgotten_fragments(&mut self) {
        let fragments = self.state.fragments.iter();
        let gone: Vec<FragmentId> = fragments
            .filter(|(_, f)| f.state == FragmentState::Ending && self.state.is_forgotten(f.node))
            .map(|(id, _)| FragmentId(id))
            .collect();
        for id in gone {
            self.drop_fragment(id);
        }
    }

    /// A node reports: one that was given up is in service again when it has nothing left of what
    /// it had.
    pub(super) fn readmit_node(&mut self, node: NodeId, count: u64, empty: bool) {
        let row = self.state.nodes.get(u64::from(node.0));
        let returned = row
            .and_then(|row| row.forgotten)
            .is_some_and(|heard| count > heard);
        if returned
            && empty
            && let Some(row) = self.state.nodes.get_mut(u64::from(node.0))
        {
            row.forgotten = None;
        }
    }
}
