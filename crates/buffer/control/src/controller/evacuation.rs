//! Evacuation: persistent instances move off storage nodes that an operator drains.
//!
//! ```text
//! idle -> replacement allocated (from here on the instance is held) -> its fragments exist, and the
//!   old ones refuse all clients but movers -> one stage copies all data, durable and read back -> the replacement takes the place of the
//!   instance, in one commit -> the old fragments are removed
//! ```
//!
//! Fragments are created with the positions of all fragments of their instance and with its id, so
//! an instance moves as a whole: to other fragments under another id. What a node has is destroyed
//! only after the commit, and the replacement only before it. An attempt that ends without the
//! commit leaves the instance as it was.

use std::collections::BTreeSet;

use forebay_policy::pool::NodeId;

use super::evacuation_table::{Evacuation, PostponedEvacuation};
use super::expiry::Notice;
use super::machine::Controller;
use super::objects::{Instance, StageState};
use super::request::Lifetime;
use super::step_scope::StepScope;
use crate::messages::{ActivationId, FragmentId, InstanceId, Peer, SessionId, StageId, UnixMillis};

/// Instances that move at a time. Each occupies its granules twice, and is mounted nowhere.
const MAX_CONCURRENT: usize = 4;
/// Attempts of a copy before it is given up and the instance can be mounted again.
const MAX_ATTEMPTS: u32 = 3;
/// Time between two attempts of a copy.
pub(super) const ATTEMPT_INTERVAL_MS: u64 = 10_000;
/// Time after which a copy that was given up is made anew, doubled with each failure.
const FIRST_DELAY_MS: u64 = 60_000;
pub(super) const MAX_DELAY_MS: u64 = 3_600_000;
/// Time for which a copy waits for a node that does not report. A restarted daemon continues the copy.
const SILENT_NODE_MS: u64 = 600_000;

impl Controller {
    /// Continues the evacuations, and looks for instances to move when time has passed.
    pub(super) fn advance_evacuations(&mut self, scope: StepScope) {
        for source in self.state.evacuations.running() {
            self.advance_evacuation(source);
        }
        if !scope.is_all() {
            return;
        }
        self.sweep_evacuations();
        for source in self.instances_to_move() {
            if self.state.evacuations.count() >= MAX_CONCURRENT {
                return;
            }
            if !self.state.evacuations.is_held(source)
                && self.evacuation_obstacle(source).is_none()
                && let Ok(shares) = self.replacement_shares(source)
            {
                self.begin_evacuation(source, &shares);
            }
        }
    }

    /// Persistent instances with data on nodes from which they are to move.
    pub(super) fn instances_to_move(&self) -> BTreeSet<InstanceId> {
        let storage = &self.state.storage;
        let left = storage.nodes().filter(|(_, node)| node.drained && node.evacuates);
        let fragments = left.flat_map(|(id, _)| storage.fragments_on(id));
        let instances: BTreeSet<InstanceId> = fragments.map(|(_, f)| f.instance).collect();
        instances.into_iter().filter(|id| self.is_movable(*id)).collect()
    }

    /// Whether an instance is the present one of a persistent session that goes on.
    fn is_movable(&self, id: InstanceId) -> bool {
        let session = self.state.storage.session_of(id);
        let session = session.and_then(|session| self.state.sessions.get(session));
        session.is_some_and(|session| {
            session.lifetime == Lifetime::Persistent
                && session.instance == Some(id)
                && !session.ending
        })
    }

    /// The drained nodes from which an instance is to move.
    pub(super) fn nodes_to_leave(&self, id: InstanceId) -> BTreeSet<NodeId> {
        let storage = &self.state.storage;
        let fragments = storage.fragments_of(id);
        let is_left =
            |node: &NodeId| storage.node(*node).is_some_and(|node| node.drained && node.evacuates);
        fragments.map(|(_, fragment)| fragment.node).filter(is_left).collect()
    }

    fn advance_evacuation(&mut self, source: InstanceId) {
        let Some(evacuation) = self.state.evacuations.get(source).cloned() else {
            return;
        };
        let storage = &self.state.storage;
        if !self.is_movable(source) || self.nodes_to_leave(source).is_empty() {
            return self.cancel_evacuation(source, "it is not to be moved any more");
        }
        if let Some(reason) = storage.instance(source).and_then(|row| row.broken.clone()) {
            return self.cancel_evacuation(source, &format!("data are lost: {reason}"));
        }
        let replacement = storage.instance(evacuation.replacement);
        if let Some(reason) = replacement.and_then(|row| row.broken.clone()) {
            return self.postpone_evacuation(source, reason);
        }
        let exists = storage.is_ready(evacuation.replacement);
        let state = self.state.stages.get(evacuation.stage).map(|stage| stage.state.clone());
        if exists && state == Some(StageState::Done) {
            return self.switch_to_replacement(source, &evacuation);
        }
        if let Some(reason) = self.silent_node(source, &evacuation) {
            return self.postpone_evacuation(source, reason);
        }
        if !self.nodes_to_leave(evacuation.replacement).is_empty() {
            let reason = "a node to which it was to move is drained, too";
            return self.cancel_evacuation(source, reason);
        }
        match state {
            // Without clients, the old fragments do not change any more.
            Some(StageState::Waiting) if exists && self.unconfirmed_fences(source).is_empty() => {
                self.state.stages.queue(evacuation.stage, self.now);
            }
            Some(StageState::Waiting | StageState::Queued | StageState::Running) => {}
            Some(StageState::Failed(reason)) => self.copy_failed(source, &evacuation, reason),
            Some(StageState::Done | StageState::Cancelling | StageState::Cancelled) | None => {
                self.postpone_evacuation(source, "the copy was stopped".to_owned());
            }
        }
    }

    /// A node of the instance or its replacement that has not reported for long; not so long if a job
    /// waits for the instance.
    fn silent_node(&self, source: InstanceId, evacuation: &Evacuation) -> Option<String> {
        let patience_ms = match self.jobs_waiting_for(source).is_empty() {
            true => SILENT_NODE_MS,
            false => self.settings.offline_after_ms,
        };
        let fragments = self.state.storage.fragments_of(evacuation.replacement);
        let mut fragments = fragments.chain(self.state.storage.fragments_of(source));
        let (_, silent) = fragments.find(|(_, fragment)| {
            self.silence_ms(&Peer::StorageNode(fragment.node)) > patience_ms
        })?;
        let name = self.state.storage.node_name(silent.node);
        Some(format!("storage node `{name}`, from or to which it was to move, is offline"))
    }

    /// Tries the copy again, or gives it up if a job waits for the instance or it has failed often.
    fn copy_failed(&mut self, source: InstanceId, evacuation: &Evacuation, reason: String) {
        let failures = evacuation.failures + u32::from(evacuation.retry_at.is_none());
        if failures >= MAX_ATTEMPTS || !self.jobs_waiting_for(source).is_empty() {
            return self.postpone_evacuation(source, reason);
        }
        let is_due = evacuation.retry_at.is_some_and(|at| self.now >= at);
        if is_due {
            self.state.stages.queue(evacuation.stage, self.now);
        }
        let retry_at = match evacuation.retry_at {
            Some(_) if is_due => None,
            Some(at) => Some(at),
            None => Some(self.now.plus_ms(ATTEMPT_INTERVAL_MS)),
        };
        let next = Evacuation { failures, retry_at, ..evacuation.clone() };
        if next != *evacuation
            && let Some(row) = self.state.evacuations.get_mut(source)
        {
            *row = next;
        }
    }

    /// The copy is complete, durable and verified: it becomes the instance, and the old fragments are
    /// removed.
    fn switch_to_replacement(&mut self, source: InstanceId, evacuation: &Evacuation) {
        let Evacuation { replacement, stage, .. } = *evacuation;
        let targets = self.state.storage.fragments_of(replacement).map(|(_, f)| f.node);
        let targets = self.node_names(targets);
        let moved = self.state.stages.get(stage).map(|stage| stage.moved).unwrap_or_default();
        let outcome = format!("done: {} files, {} bytes, to {targets}", moved.files, moved.bytes);
        self.note_evacuation(source, outcome);
        self.extend_held_mounts(source);
        self.state.evacuations.end(source);
        self.state.evacuations.forget_failures(source);
        self.state.stages.remove(&[stage]);
        self.state.stages.move_to_instance(source, replacement);
        self.state.storage.replace_instance(source, replacement);
        // No mount of before is left. Generations go on from there, as they never decrease.
        self.state.fences.remove_instance(source);
        self.fence_all_hosts(replacement);
        self.renew_held_mounts(replacement);
        for id in self.sessions_naming(source) {
            let Some(session) = self.state.sessions.get_mut(id) else { continue };
            let is_own = session.instance == Some(source);
            if is_own {
                session.instance = Some(replacement);
            }
            if let Some(limit) = session.stage_limits.remove(&source) {
                session.stage_limits.insert(replacement, limit);
            }
            if is_own {
                self.note_usage_instance(id);
            }
        }
        self.looks_at_all = true;
    }

    /// The sessions whose records have the id of an instance: its own, and those with a limit on its
    /// stages.
    fn sessions_naming(&self, id: InstanceId) -> Vec<SessionId> {
        let sessions = self.state.sessions.iter();
        let naming = sessions
            .filter(|(_, row)| row.instance == Some(id) || row.stage_limits.contains_key(&id));
        naming.map(|(id, _)| id).collect()
    }

    /// Mounts that have waited get the generation of those that are requested now.
    fn renew_held_mounts(&mut self, instance: InstanceId) {
        let activations = self.state.activations_of(instance);
        let mounts = activations.flat_map(|(id, _)| self.state.sessions.mounts.of(id));
        let mounts: Vec<(ActivationId, String)> =
            mounts.map(|(id, mount)| (id.activation, mount.host.clone())).collect();
        for (id, host) in mounts {
            let generation = self.new_mount_generation(id, &host);
            self.state.sessions.mounts.set_generation(id, &host, generation);
        }
    }

    /// Ends an evacuation whose instance stays where it is; the incomplete copy is removed.
    pub(super) fn cancel_evacuation(&mut self, source: InstanceId, reason: &str) {
        if self.drop_replacement(source) {
            self.note_evacuation(source, format!("cancelled: {reason}"));
        }
        self.state.evacuations.forget_failures(source);
    }

    /// Gives an attempt up, so that the instance can be mounted. It is made anew later.
    pub(super) fn postpone_evacuation(&mut self, source: InstanceId, reason: String) {
        if !self.drop_replacement(source) {
            return;
        }
        let times = self.state.evacuations.postponed(source).map_or(0, |last| last.times) + 1;
        let delay_ms = FIRST_DELAY_MS.saturating_mul(1 << (times - 1).min(10)).min(MAX_DELAY_MS);
        self.note_evacuation(source, format!("failed: {reason}"));
        let until = self.now.plus_ms(delay_ms);
        let postponed = PostponedEvacuation { until, times, reason };
        self.state.evacuations.postpone(source, postponed);
    }

    /// Removes a replacement and stops its copy. Returns whether there was one.
    fn drop_replacement(&mut self, source: InstanceId) -> bool {
        self.extend_held_mounts(source);
        let Some(evacuation) = self.state.evacuations.end(source) else {
            return false;
        };
        self.state.stages.cancel(evacuation.stage);
        self.state.storage.end_instance(evacuation.replacement);
        self.looks_at_all = true;
        true
    }

    /// An operator has drained a node, or put it back into service: what failed before is tried again
    /// at once.
    pub(super) fn retry_evacuations(&mut self, node: NodeId) {
        let fragments = self.state.storage.fragments_on(node);
        let instances: Vec<InstanceId> = fragments.map(|(_, f)| f.instance).collect();
        for id in instances {
            self.state.evacuations.forget_failures(id);
        }
    }

    /// Forgets failures of instances that are not to be moved, copies that have ended, and
    /// replacements of nothing.
    fn sweep_evacuations(&mut self) {
        for id in self.state.evacuations.all_postponed() {
            if !self.is_movable(id) || self.nodes_to_leave(id).is_empty() {
                self.state.evacuations.forget_failures(id);
            }
        }
        let ended =
            self.state.stages.ids(|stage| stage.copy_of.is_some() && !stage.state.has_mover());
        let is_unused = |id: &StageId| !self.state.evacuations.has_copy(*id);
        let ended: Vec<StageId> = ended.into_iter().filter(is_unused).collect();
        if !ended.is_empty() {
            self.state.stages.remove(&ended);
        }
        let is_unused = |id: InstanceId, row: &Instance| {
            let evacuation = row.replaces.map(|source| self.state.evacuations.get(source));
            !row.ending && evacuation.is_some_and(|known| known.is_none_or(|e| e.replacement != id))
        };
        let instances = self.state.storage.instances();
        let unused = instances.filter(|(id, row)| is_unused(*id, row));
        let unused: Vec<InstanceId> = unused.map(|(id, _)| id).collect();
        for id in unused {
            self.state.storage.end_instance(id);
        }
    }

    /// The database was restored from a backup: the replacements that it knows may have become the
    /// instances since, and users may have written to them. Their nodes keep them until an operator has
    /// them discarded.
    pub(super) fn quarantine_replacements(&mut self) {
        for source in self.state.evacuations.running() {
            let Some(evacuation) = self.state.evacuations.end(source) else { continue };
            let fragments = self.state.storage.fragments_of(evacuation.replacement);
            let fragments: Vec<FragmentId> = fragments.map(|(id, _)| id).collect();
            for id in fragments {
                self.state.note_lost_id(id.0);
                self.remove_fragment(id);
            }
            self.state.storage.remove_instance(evacuation.replacement);
            self.state.stages.cancel(evacuation.stage);
            let reason = "the database was restored from a backup; a copy is kept as unknown data";
            self.note_evacuation(source, format!("cancelled: {reason}"));
        }
        self.looks_at_all = true;
    }

    /// Names of storage nodes, for messages.
    pub(super) fn node_names(&self, nodes: impl Iterator<Item = NodeId>) -> String {
        let names: Vec<&str> = nodes.map(|node| self.state.storage.node_name(node)).collect();
        names.join(", ")
    }

    pub(super) fn note_evacuation(&mut self, source: InstanceId, outcome: String) {
        let from = self.node_names(self.nodes_to_leave(source).into_iter());
        let row = self.state.storage.instance(source);
        let label = row.map_or("?", |row| row.label.as_str());
        let uid = self.state.owner_of(source).map_or(0, |owner| owner.uid);
        let from = if from.is_empty() { from } else { format!(" off {from}") };
        let object = format!("instance {label} of user {uid}{from}");
        self.notices.push(Notice { action: "evacuate", object, outcome });
    }

    /// Time at which an instance that could not be moved is tried again.
    pub(super) fn retry_time(&self, source: InstanceId) -> Option<(UnixMillis, &str)> {
        let postponed = self.state.evacuations.postponed(source)?;
        (postponed.until > self.now).then_some((postponed.until, postponed.reason.as_str()))
    }
}
