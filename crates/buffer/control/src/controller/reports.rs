//! Reports of storage nodes and compute nodes.

use std::collections::BTreeSet;

use forebay_policy::pool::NodeId;

use super::contacts::MoverAbilities;
use super::machine::Controller;
use super::objects::{FragmentState, Mount, MountState, StageState};
use super::sent_commands::CommandTarget;
use super::shares::ShareEnd;
use crate::messages::{
    ActivationId, ComputeCommand, ComputeReport, FailedFile, FragmentId, Peer, Report,
    StageFailure, StageId, StageProgress, StorageCommand, StorageReport,
};

impl Controller {
    pub(super) fn apply_report(&mut self, report: Report) {
        let (peer, sequence) = (report.sender(), report.sequence());
        if let Report::Storage { node, disk, .. } = report
            && !self.is_own_disk(node, disk)
        {
            return self.contacts.record_wrong_disk(node);
        }
        // The heartbeat of a report that was overtaken is outdated.
        let newest = self.contacts.record_report(peer, sequence, self.now);
        match report {
            Report::Storage { node, body, .. } => {
                self.apply_storage_report(node, sequence, newest, body);
            }
            Report::Compute { host, body, .. } => {
                self.apply_compute_report(&host, sequence, newest, body);
            }
        }
    }

    fn apply_storage_report(
        &mut self,
        node: NodeId,
        sequence: u64,
        newest: bool,
        body: StorageReport,
    ) {
        match body {
            StorageReport::Heartbeat { obeyed, .. } if !self.state.is_known(&obeyed) => {
                self.note_lost_state(obeyed);
            }
            StorageReport::Heartbeat {
                fragments,
                written,
                obeyed: _,
                copies_instances,
                shares_stages,
            } => {
                if newest {
                    let abilities = MoverAbilities { copies_instances, shares_stages };
                    self.contacts.record_abilities(node, abilities);
                    self.contacts.record_written(node, written);
                    self.compare_fragments(node, sequence, &fragments);
                }
            }
            StorageReport::FragmentReady(id) => self.fragment_ready(id, node, sequence),
            // The command is repeated until there is space or the request times out.
            StorageReport::FragmentRefused(..) => {}
            StorageReport::FragmentRemoved(id) => self.fragment_removed(id, node),
            StorageReport::HostsFenced(id, through) => self.hosts_fenced(id, through),
            StorageReport::StageProgress(id, attempt, progress) => {
                let stages = &mut self.state.stages;
                if let Some(share) = stages.record_progress(id, node, attempt, progress) {
                    let target = CommandTarget::StartStage(id, share);
                    self.sent.postpone(&target, self.now);
                }
            }
            StorageReport::ShareCopied(id, attempt, progress, tally) => {
                self.share_copied(node, id, attempt, progress, tally);
            }
            StorageReport::StageDone(id, attempt, moved) => {
                if !self.share_ended(node, id, Some(attempt), ShareEnd::Done, moved) {
                    self.stage_ended(id, attempt, StageState::Done, moved, &[]);
                }
            }
            StorageReport::StageFailed(id, attempt, failure) => {
                let StageFailure { reason, files, moved } = failure;
                // The limits hold for reports of any peer.
                let failure = StageFailure::new(reason.clone(), files, moved);
                let files = failure.files.clone();
                if self.share_ended(node, id, Some(attempt), ShareEnd::Failed(failure), moved) {
                    return;
                }
                self.stage_ended(id, attempt, StageState::Failed(reason), moved, &files);
                self.state.stages.record_failed_files(id, attempt, files);
            }
            StorageReport::StageCancelled(id) => {
                let moved = StageProgress::default();
                if self.share_ended(node, id, None, ShareEnd::Cancelled, moved) {
                    return;
                }
                if let Some(attempt) = self.state.stages.get(id).map(|stage| stage.attempt) {
                    self.stage_ended(id, attempt, StageState::Cancelled, moved, &[]);
                }
            }
        }
    }

    fn apply_compute_report(
        &mut self,
        host: &str,
        sequence: u64,
        newest: bool,
        body: ComputeReport,
    ) {
        match body {
            ComputeReport::Heartbeat(mounts) => {
                if newest {
                    self.compare_mounts(host, sequence, &mounts);
                }
                self.repeat_mounts_of_later_reports(host, (sequence, newest), &mounts);
            }
            ComputeReport::Mounted(id, generation) => {
                self.set_mount_state(id, generation, host, MountState::Mounted(sequence));
            }
            ComputeReport::MountFailed(id, generation, reason) => {
                self.set_mount_state(id, generation, host, MountState::Failed(reason));
            }
            ComputeReport::Unmounted(id) => self.unmounted(id, host),
        }
    }

    /// Compares the fragments that a storage node has with those that it should have.
    fn compare_fragments(&mut self, node: NodeId, sequence: u64, present: &[FragmentId]) {
        let mut empty = true;
        let mut unknown = Vec::new();
        let listed: BTreeSet<FragmentId> = present.iter().copied().collect();
        let discards = self.state.storage.node(node).is_some_and(|node| node.discards_unknown);
        for id in present {
            // Removed, or given up with the node: no longer in use.
            let known = self.state.storage.fragment(*id);
            let is_unknown = match known.map(|fragment| (fragment.node, fragment.state)) {
                Some((of, _)) if of != node => true,
                Some((_, FragmentState::Forgotten)) => false,
                Some((_, FragmentState::Lost)) => {
                    self.fragment_is_back(*id, sequence);
                    continue;
                }
                Some(_) => continue,
                None => self.state.is_lost_id(id.0),
            };
            empty = false;
            if is_unknown {
                unknown.push(*id);
            }
            if discards || !is_unknown {
                self.send_to_storage_node(node, StorageCommand::RemoveFragment(*id));
            }
        }
        if discards
            && unknown.is_empty()
            && let Some(row) = self.state.storage.node_mut(node)
        {
            row.discards_unknown = false;
        }
        self.contacts.record_unknown(node, unknown);
        self.readmit_node(node, sequence, empty);
        let fragments = self.state.storage.fragments_on(node);
        let of_node = fragments.filter(|(id, _)| !listed.contains(id));
        let lost = of_node
            .filter(|(_, f)| matches!(f.state, FragmentState::Ready(since) if since < sequence));
        let lost: Vec<_> = lost.map(|(id, f)| (id, f.instance)).collect();
        for (id, instance) in lost {
            let storage = &mut self.state.storage;
            storage.set_fragment_state(id, FragmentState::Lost);
            let label = storage.instance(instance).map_or("?", |row| &row.label);
            let name = storage.node_name(node);
            let reason = format!("storage node `{name}` lost its part of `{label}`");
            storage.mark_broken(instance, reason);
        }
    }

    /// Compares the mounts that a compute node has with those that it should have.
    fn compare_mounts(&mut self, host: &str, sequence: u64, present: &[ActivationId]) {
        for id in present {
            let activation = self.state.sessions.activation(*id);
            // A job that only a lost state of the controller knew may be running.
            let is_unknown = activation.is_none() && self.state.is_lost_id(id.0);
            if !is_unknown && self.state.sessions.mounts.get(*id, host).is_none() {
                self.send_to_compute_node(host.to_owned(), ComputeCommand::Unmount(*id));
            }
        }
        let is_lost = |id: &ActivationId, mount: &Mount| {
            let mounted = matches!(mount.state, MountState::Mounted(since) if since < sequence);
            mounted && !present.contains(id)
        };
        let mounts = self.state.sessions.mounts.on_host(host);
        let lost = mounts.filter(|(id, mount)| is_lost(id, mount));
        let lost: Vec<ActivationId> = lost.map(|(id, _)| id).collect();
        for id in lost {
            let activation = self.state.sessions.activation(id);
            let is_ending = activation.is_some_and(|activation| activation.ending.is_some());
            let mounts = &mut self.state.sessions.mounts;
            match is_ending {
                true => mounts.remove(id, host),
                false => mounts.set_state(id, host, MountState::Requested),
            }
        }
        self.replace_refused_mounts(host);
    }

    /// Repeats the commands for mounts that a heartbeat does not list, although a report with a higher
    /// sequence number had them. If the heartbeat is late, they change nothing. If it is of an agent whose
    /// clock was behind that of the one before when it started, the agent learns the higher number.
    fn repeat_mounts_of_later_reports(
        &mut self,
        host: &str,
        (sequence, newest): (u64, bool),
        present: &[ActivationId],
    ) {
        let sessions = &self.state.sessions;
        let is_ending = |id| sessions.activation(id).is_none_or(|of| of.ending.is_some());
        let mut highest = 0;
        let mut plans = Vec::new();
        for (id, mount) in sessions.mounts.on_host(host) {
            let MountState::Mounted(since) = mount.state else { continue };
            if (since >= sequence || !newest) && !present.contains(&id) && !is_ending(id) {
                highest = highest.max(since);
                plans.extend(self.mount_plan(id, mount));
            }
        }
        // A restarted controller has it from its records only.
        self.contacts.raise_sequence(&Peer::ComputeNode(host.to_owned()), highest);
        for plan in plans {
            self.send_to_compute_node(host.to_owned(), ComputeCommand::Mount(plan));
        }
    }

    fn fragment_ready(&mut self, id: FragmentId, node: NodeId, sequence: u64) {
        let fragment = self.state.storage.fragment(id);
        if fragment.is_some_and(|f| f.state == FragmentState::Requested && f.node == node) {
            let ready = FragmentState::Ready(sequence);
            self.state.storage.set_fragment_state(id, ready);
        }
    }

    fn fragment_removed(&mut self, id: FragmentId, node: NodeId) {
        let fragment = self.state.storage.fragment(id);
        if fragment.is_some_and(|f| f.state == FragmentState::Ending && f.node == node) {
            self.remove_fragment(id);
        }
    }

    /// Forgets a fragment that no longer exists.
    pub(super) fn remove_fragment(&mut self, id: FragmentId) {
        self.state.storage.remove_fragment(id);
        self.sent.forget(&CommandTarget::CreateFragment(id));
    }

    pub(super) fn stage_ended(
        &mut self,
        id: StageId,
        attempt: u32,
        state: StageState,
        moved: StageProgress,
        failed: &[FailedFile],
    ) {
        let Some(stage) = self.state.stages.get(id) else {
            return;
        };
        if stage.attempt != attempt || !stage.state.has_mover() {
            return;
        }
        let stopping = stage.state == StageState::Cancelling;
        let state = match state {
            // A stage that failed while it was being stopped has stopped.
            StageState::Failed(_) if stopping => StageState::Cancelled,
            StageState::Failed(reason) => {
                StageState::Failed(self.describe_loss(stage.instance, reason))
            }
            state => state,
        };
        let (session, direction) = (stage.session, stage.directive.direction);
        if stage.copy_of.is_none() {
            self.record_stage_use(session, direction, &moved, state == StageState::Done);
        }
        self.state.stages.end(id, state, moved, failed);
        self.sent.forget(&CommandTarget::StartStage(id, 0));
    }

    fn set_mount_state(
        &mut self,
        id: ActivationId,
        generation: u64,
        host: &str,
        state: MountState,
    ) {
        let Some(mount) = self.state.sessions.mounts.get(id, host) else {
            return;
        };
        // A host may have a newer mount than a controller that was restored from a backup asks for.
        let is_newer = mount.replica.is_none()
            && generation > mount.generation
            && matches!(state, MountState::Mounted(_));
        let current = mount.replica.as_ref().map(|replica| replica.generation.into());
        let is_current = generation == current.unwrap_or(mount.generation);
        if mount.state != MountState::Requested || !(is_current || is_newer) {
            return;
        }
        if is_newer {
            self.state.sessions.mounts.set_generation(id, host, generation);
        }
        // A compute node that cannot mount one replica may be able to mount another.
        let state = match state {
            MountState::Failed(_) if self.has_other_replica(id, host) => MountState::Requested,
            state => state,
        };
        let mounts = &mut self.state.sessions.mounts;
        if let MountState::Mounted(_) = &state
            && let Some(Some(replica)) = mounts.replica_mut(id, host)
        {
            replica.failed.clear();
        }
        mounts.set_state(id, host, state);
    }

    fn unmounted(&mut self, id: ActivationId, host: &str) {
        let activation = self.state.sessions.activation(id);
        if activation.is_some_and(|activation| activation.ending.is_some()) {
            self.state.sessions.mounts.remove(id, host);
        }
    }
}
