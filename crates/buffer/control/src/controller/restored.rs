//! A node's directory that is not the pool's, and a controller whose database was restored from a
//! backup: nothing is removed, and nothing is done, before an operator has decided.

use forebay_policy::pool::NodeId;

use super::dispatch::{Accepted, check_operator};
use super::machine::{Controller, ControllerEffect, ControllerInput};
use super::objects::{FragmentState, StageState};
use super::request::{Answer, Cause, Failure, Request, RequestEnvelope, refuse};
use crate::messages::{FragmentId, Owner, Peer, StateStamp};

impl Controller {
    /// Whether a report is about the directory that the pool knows as the node's. A node without
    /// fragments may have another one.
    pub(super) fn is_own_disk(&mut self, id: NodeId, disk: u64) -> bool {
        let Some(node) = self.state.storage.node(id) else {
            return true;
        };
        let known = node.disk;
        if known != Some(disk) {
            if known.is_some() && self.state.storage.has_fragments_on(id) {
                return false;
            }
            if let Some(node) = self.state.storage.node_mut(id) {
                node.disk = Some(disk);
            }
            if known.is_some() {
                self.contacts.forget_sequence(&Peer::StorageNode(id));
            }
        }
        self.contacts.record_right_disk(id);
        true
    }

    /// A fragment that its node had lost is there again, with its instance.
    pub(super) fn fragment_is_back(&mut self, id: FragmentId, sequence: u64) {
        let storage = &mut self.state.storage;
        storage.set_fragment_state(id, FragmentState::Ready(sequence));
        let Some(instance) = storage.fragment(id).map(|fragment| fragment.instance) else {
            return;
        };
        let is_lacking = |state| matches!(state, FragmentState::Lost | FragmentState::Forgotten);
        if !storage.fragments_of(instance).any(|(_, f)| is_lacking(f.state))
            && let Some(row) = storage.instance_mut(instance)
        {
            row.broken = None;
        }
    }

    /// A storage node has obeyed a state that this one does not follow from.
    pub(super) fn note_lost_state(&mut self, obeyed: StateStamp) {
        self.lost_revision = self.lost_revision.max(Some(obeyed.revision));
    }

    /// A step of a controller whose database was restored: it only waits for the operator. Nothing is
    /// made durable, so that the restored state stays recognisable after another start.
    pub(super) fn step_outdated(&mut self, input: ControllerInput) -> Vec<ControllerEffect> {
        match input {
            ControllerInput::Request(envelope) => {
                if envelope.request == Request::AcceptRestored {
                    self.accept_request(*envelope);
                } else {
                    let RequestEnvelope { id, .. } = *envelope;
                    let failure = Failure::new(Cause::Busy, OUTDATED);
                    self.effects.push(ControllerEffect::Reply(id, Err(failure)));
                }
            }
            ControllerInput::Report(report) => self.apply_report(report),
            ControllerInput::Use(_) | ControllerInput::Tick => {}
        }
        self.finish_step()
    }

    /// An operator accepts that what happened after the backup is lost. What the nodes have and this
    /// state does not know stays on them; stages that have not ended are cancelled or failed, for they may
    /// have been done, and their files changed since.
    pub(super) fn accept_restored(&mut self, caller: Owner) -> Result<Accepted, Failure> {
        check_operator(caller)?;
        let Some(lost) = self.lost_revision else {
            let silent = self.nodes_not_heard_of();
            if !silent.is_empty() {
                refuse!(
                    Busy,
                    "{} not reported since the controller's start, so it does not know whether its \
                     database is older; try again",
                    match &silent[..] {
                        [node] => format!("storage node `{node}` has"),
                        nodes => format!("storage nodes {} have", nodes.join(", ")),
                    }
                );
            }
            refuse!(
                NotFound,
                "the controller's database is not older than what its storage nodes have obeyed: \
                 there is nothing to accept"
            );
        };
        self.state.skip_lost(lost);
        self.lost_revision = None;
        self.epoch = Some((self.now.0, self.state.begin_epoch(self.now.0)));
        let reason = "the controller's database was restored from a backup while this stage had not \
                      ended: it may have been done since; request it again if it has not";
        let stages = &mut self.state.stages;
        // A mover may still be at work.
        for stage in stages.ids(|stage| stage.state.has_mover()) {
            stages.cancel(stage);
        }
        let is_to_come =
            |state: &StageState| matches!(state, StageState::Waiting | StageState::Queued);
        for stage in stages.ids(|stage| is_to_come(&stage.state)) {
            stages.fail(stage, reason.to_owned());
        }
        self.quarantine_replacements();
        Ok(Accepted::Answer(Answer::Done))
    }

    /// The names of the storage nodes in service that have not reported since the controller started.
    fn nodes_not_heard_of(&self) -> Vec<String> {
        let nodes = self.state.storage.nodes();
        let silent = nodes.filter(|(id, _)| {
            !self.state.storage.is_forgotten(*id)
                && !self.contacts.has_reported(&Peer::StorageNode(*id))
        });
        silent.map(|(_, node)| node.name.clone()).collect()
    }

    /// An operator decides that what only a lost state knew is removed from a node.
    pub(super) fn discard_unknown(
        &mut self,
        caller: Owner,
        node: NodeId,
    ) -> Result<Accepted, Failure> {
        check_operator(caller)?;
        self.state.storage.existing_node(node)?;
        if let Some(row) = self.state.storage.node_mut(node) {
            row.discards_unknown = true;
        }
        Ok(Accepted::Answer(Answer::Done))
    }
}

/// The answer to requests while the controller is outdated.
pub(super) const OUTDATED: &str = "the controller's database is older than what its storage nodes have obeyed: it was restored from \
     a backup, or belongs to another pool. Restore the latest one, or let an operator accept the loss \
     of what happened since with `forebay accept-restored`";
