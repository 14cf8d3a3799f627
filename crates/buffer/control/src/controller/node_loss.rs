//! Storage nodes that an operator gives up: data that only they had is lost, and everything else
//! continues without them. A node that returns nevertheless is emptied, and used again when it is
//! empty.

use forebay_job_script::Direction;
use forebay_policy::pool::NodeId;

use super::dispatch::Accepted;
use super::machine::Controller;
use super::objects::{Fragment, FragmentState, StageState};
use super::request::{Answer, Cause, Failure, InstanceLoss, refuse};
use crate::messages::{FragmentId, InstanceId, Peer};

impl Controller {
    /// Gives a node up. Refused while the node may be alive, and, unless `allow_data_loss`, while an
    /// instance has data on it that is nowhere else.
    pub(super) fn forget_node(
        &mut self,
        id: NodeId,
        allow_data_loss: bool,
    ) -> Result<Accepted, Failure> {
        let node = self.state.storage.existing_node(id)?;
        let name = node.name.clone();
        if node.forgotten.is_some() {
            // The request was repeated under another key.
            return Ok(Accepted::Answer(Answer::NodeForgotten(self.losses(id))));
        }
        self.check_offline(id, &name)?;
        let losses = self.losses(id);
        if !allow_data_loss && !losses.is_empty() {
            let losses: Vec<String> = losses.iter().map(InstanceLoss::to_string).collect();
            refuse!(
                Busy,
                "storage node `{name}` has the only copy of data of:\n  {}\nIf it will never come \
                 back, `forebay forget {name} --lost` gives that data up",
                losses.join("\n  ")
            );
        }
        for (fragment, instance) in self.fragments_on(id) {
            self.lose_fragment(fragment, instance, &name);
        }
        let last_sequence = self.contacts.last_sequence(&Peer::StorageNode(id));
        if let Some(node) = self.state.storage.node_mut(id) {
            node.forgotten = Some(last_sequence);
        }
        self.end_stages_on(id, &name);
        Ok(Accepted::Answer(Answer::NodeForgotten(losses)))
    }

    fn check_offline(&self, id: NodeId, name: &str) -> Result<(), Failure> {
        let peer = Peer::StorageNode(id);
        if !self.is_online(&peer) {
            return Ok(());
        }
        let seconds = self.settings.offline_after_ms / 1000;
        let reason = match self.contacts.has_reported(&peer) {
            true => format!(
                "storage node `{name}` is not offline: it has reported in the last {seconds} s; \
                 `forebay drain {name}` keeps new instances off it"
            ),
            false => format!(
                "the controller has just started, and gives storage node `{name}` {seconds} s to \
                 report; try again then"
            ),
        };
        Err(Failure::new(Cause::Busy, reason))
    }

    fn fragments_on(&self, node: NodeId) -> Vec<(FragmentId, InstanceId)> {
        let fragments = self.state.storage.fragments_on(node);
        fragments.map(|(id, fragment)| (id, fragment.instance)).collect()
    }

    /// Whether data is lost with a fragment: it was in use, is still wanted, and has no other copy.
    fn is_only_copy(&self, id: FragmentId, instance: InstanceId) -> bool {
        let storage = &self.state.storage;
        let (Some(fragment), Some(row)) = (storage.fragment(id), storage.instance(instance)) else {
            return false;
        };
        let others = || storage.fragments_of(instance).filter(|(other, _)| *other != id);
        let is_requested = |f: &Fragment| f.state == FragmentState::Requested;
        match fragment.state {
            // The data are still in the instance that it is to replace.
            _ if row.replaces.is_some() => false,
            FragmentState::Forgotten => true,
            FragmentState::Ready(_) if row.ending => false,
            FragmentState::Ready(_) if row.replicated => {
                !others().any(|(_, f)| f.is_ready() || is_requested(f))
            }
            // An instance that never had all its fragments was never used; it is created again.
            FragmentState::Ready(_) => {
                row.broken.is_some() || !others().any(|(_, f)| is_requested(f))
            }
            FragmentState::Requested | FragmentState::Lost | FragmentState::Ending => false,
        }
    }

    /// The instances that have, or had, their only copy of some data on a node.
    fn losses(&self, node: NodeId) -> Vec<InstanceLoss> {
        let fragments = self.fragments_on(node).into_iter();
        let lost = fragments.filter(|(id, instance)| self.is_only_copy(*id, *instance));
        lost.filter_map(|(_, id)| self.loss_of(id)).collect()
    }

    fn loss_of(&self, id: InstanceId) -> Option<InstanceLoss> {
        let instance = self.state.storage.instance(id)?;
        let session = self.state.sessions.get(instance.session)?;
        let unfinished = self.state.stages.ids(|stage| {
            stage.instance == id
                && stage.directive.direction == Direction::Out
                && !stage.state.is_settled()
        });
        let users = self.state.other_sessions_using(id).into_iter();
        let users = users.filter_map(|id| Some(self.state.sessions.get(id)?.token.clone()));
        Some(InstanceLoss {
            label: instance.label.clone(),
            lifetime: session.lifetime,
            owner: session.owner,
            unfinished_outs: u32::try_from(unfinished.len()).unwrap_or(u32::MAX),
            users: users.collect(),
        })
    }

    /// Does without a fragment whose node is given up, or gives up its instance. Fragments that are
    /// ending or not yet created are handled as the state of the instance requires.
    fn lose_fragment(&mut self, id: FragmentId, instance: InstanceId, node: &str) {
        let state = self.state.storage.fragment(id).map(|f| f.state);
        let is_ready = matches!(state, Some(FragmentState::Ready(_)));
        if !is_ready && state != Some(FragmentState::Lost) {
            return;
        }
        if is_ready && !self.is_only_copy(id, instance) {
            if !self.give_up_replica(id, instance) {
                self.abandon_instance(instance);
            }
            return;
        }
        let storage = &mut self.state.storage;
        storage.set_fragment_state(id, FragmentState::Forgotten);
        let Some(row) = storage.instance_mut(instance) else {
            return;
        };
        let reason = format!(
            "storage node `{node}`, which held a part of `{}`, is lost for good: an operator has \
             given it up",
            row.label
        );
        // More definite than any earlier reason.
        row.broken = Some(reason.clone());
        let queued = self
            .state
            .stages
            .ids(|stage| stage.instance == instance && stage.state == StageState::Queued);
        for stage in queued {
            self.state.stages.fail(stage, reason.clone());
        }
    }

    /// Ends the stages whose data a node moved.
    fn end_stages_on(&mut self, node: NodeId, name: &str) {
        let moved_here = self
            .state
            .stages
            .ids(|stage| stage.state.is_in_progress() && stage.nodes().any(|moves| moves == node));
        for id in moved_here {
            let Some(stage) = self.state.stages.get(id) else {
                continue;
            };
            if stage.state.has_mover() && stage.share_of(node).is_some() {
                self.lose_share(id, node, name);
                continue;
            }
            let state = match stage.state == StageState::Cancelling {
                true => StageState::Cancelled,
                false => StageState::Failed(mover_is_lost(name)),
            };
            let stages = &mut self.state.stages;
            let moved = stages.get(id).map(|stage| stages.progress(id, stage));
            let moved = moved.unwrap_or_default();
            stages.end(id, state, moved, &[]);
        }
    }

    /// Adds to the reason of a stage's failure that its instance is lost, if so.
    pub(super) fn describe_loss(&self, instance: InstanceId, reason: String) -> String {
        let storage = &self.state.storage;
        let mut fragments = storage.fragments_of(instance);
        let is_lost = fragments.any(|(_, f)| f.state == FragmentState::Forgotten);
        let broken = storage.instance(instance).and_then(|row| row.broken.as_ref());
        match broken.filter(|_| is_lost) {
            Some(broken) => format!("{reason}; {broken}"),
            None => reason,
        }
    }

    /// A node has reported: one that was given up is used again when it has no fragment left of
    /// before.
    pub(super) fn readmit_node(&mut self, id: NodeId, sequence: u64, empty: bool) {
        let node = self.state.storage.node(id);
        let forgotten = node.and_then(|node| node.forgotten);
        let has_returned = forgotten.is_some_and(|last_sequence| sequence > last_sequence);
        if has_returned
            && empty
            && let Some(node) = self.state.storage.node_mut(id)
        {
            node.forgotten = None;
        }
    }
}

/// The reason of a stage whose mover is lost with its node.
pub(super) fn mover_is_lost(node: &str) -> String {
    format!("storage node `{node}`, which moved it, is lost for good: an operator has given it up")
}
