//! Reports of storage nodes and hosts.

use super::*;
use crate::messages::*;

/// Files that could not be staged and are remembered, in one session.
const MOST_UNSTAGED: usize = 65_536;

impl Controller {
    pub(super) fn apply_report(&mut self, report: Report) {
        let Report {
            from,
            sequence: count,
            body: what,
        } = report;
        let view = self.peers.entry(from.clone()).or_default();
        view.last_report_at = self.now;
        // A report that was overtaken says nothing that a later one did not.
        let newest = count > view.last_sequence;
        view.last_sequence = view.last_sequence.max(count);
        match (what, &from) {
            (ReportBody::StorageHeartbeat(fragments), Peer::StorageNode(node)) if newest => {
                self.node_alive(*node, count, &fragments);
            }
            (ReportBody::ComputeHeartbeat(mounts), Peer::ComputeNode(host)) if newest => {
                self.host_alive(host, count, &mounts);
            }
            (ReportBody::FragmentReady(id), Peer::StorageNode(_)) => {
                let wanted = self.state.fragments.get(id.0).map(|f| f.state);
                if wanted == Some(FragmentState::Requested)
                    && let Some(fragment) = self.state.fragments.get_mut(id.0)
                {
                    fragment.state = FragmentState::Ready(count);
                }
            }
            (ReportBody::FragmentRemoved(id), Peer::StorageNode(node)) => {
                self.fragment_gone(id, *node)
            }
            (ReportBody::StageProgress(id, attempt, progress), Peer::StorageNode(_)) => {
                let current = self.state.stages.get(id.0).is_some_and(|stage| {
                    stage.attempt == attempt && stage.state == StageState::Running
                });
                if current {
                    self.progress.insert(id, progress);
                    self.last_sent
                        .insert(commands::CommandTarget::Stage(id), self.now);
                }
            }
            (ReportBody::StageDone(id, attempt, moved), Peer::StorageNode(_)) => {
                self.stage_ended(id, attempt, StageState::Done, moved);
            }
            (ReportBody::StageFailed(id, attempt, trouble), Peer::StorageNode(_)) => {
                let StageFailure {
                    reason,
                    files,
                    moved,
                } = trouble;
                self.stage_ended(id, attempt, StageState::Failed(reason), moved);
                self.note_unstaged(id, attempt, files);
            }
            (ReportBody::StageCancelled(id), Peer::StorageNode(_)) => {
                if let Some(attempt) = self.state.stages.get(id.0).map(|stage| stage.attempt) {
                    self.stage_ended(id, attempt, StageState::Cancelled, StageProgress::default());
                }
            }
            (ReportBody::Mounted(id, turn), Peer::ComputeNode(host)) => {
                self.mount_state(id, turn, host, MountState::Mounted(count));
            }
            (ReportBody::MountFailed(id, turn, reason), Peer::ComputeNode(host)) => {
                self.mount_state(id, turn, host, MountState::Failed(reason));
            }
            (ReportBody::Unmounted(id), Peer::ComputeNode(host)) => self.unmounted(id, host),
            // There is no room now: asked again until there is or the request times out.
            (ReportBody::FragmentRefused(..), _) => {}
            // Old, or from a peer that cannot say such a thing.
            _ => {}
        }
    }

    fn node_alive(&mut self, node: NodeId, count: u64, present: &[FragmentId]) {
        let mut empty = true;
        for id in present {
            // Removed here, never made durable, or given up with the node: nobody can use it.
            let known = self.state.fragments.get(id.0);
            if known.is_none_or(|f| f.state == FragmentState::Forgotten) {
                self.send_command(Peer::StorageNode(node), Command::RemoveFragment(*id));
                empty = false;
            }
        }
        self.readmit_node(node, count, empty);
        let lost: Vec<FragmentId> = self
            .state
            .fragments
            .iter()
            .filter(|(id, f)| f.node == node && !present.contains(&FragmentId(*id)))
            .filter(|(_, f)| matches!(f.state, FragmentState::Ready(since) if since < count))
            .map(|(id, _)| FragmentId(id))
            .collect();
        for id in lost {
            let Some(fragment) = self.state.fragments.get_mut(id.0) else {
                continue;
            };
            fragment.state = FragmentState::Lost;
            let instance = fragment.instance;
            let name = self
                .state
                .nodes
                .get(u64::from(node.0))
                .map_or("?", |n| &n.name)
                .to_owned();
            if let Some(instance) = self.state.instances.get_mut(instance.0) {
                let reason = format!(
                    "storage node `{name}` lost its part of `{}`",
                    instance.label
                );
                instance.broken.get_or_insert(reason);
            }
        }
    }

    fn host_alive(&mut self, host: &str, count: u64, present: &[ActivationId]) {
        let peer = Peer::ComputeNode(host.to_owned());
        for id in present {
            let wanted = self
                .state
                .activations
                .get(id.0)
                .is_some_and(|a| a.hosts.contains_key(host));
            if !wanted {
                self.send_command(peer.clone(), Command::Unmount(*id));
            }
        }
        let missing = |id: &ActivationId, row: &Activation| {
            let since = match row.hosts.get(host) {
                Some(MountState::Mounted(since)) => *since,
                _ => return false,
            };
            since < count && !present.contains(id)
        };
        let lost: Vec<u64> = self
            .state
            .activations
            .iter()
            .filter(|(id, row)| missing(&ActivationId(*id), row))
            .map(|(id, _)| id)
            .collect();
        for id in lost {
            let Some(row) = self.state.activations.get_mut(id) else {
                continue;
            };
            if row.ending.is_some() {
                row.hosts.remove(host);
            } else {
                row.hosts.insert(host.to_owned(), MountState::Requested);
            }
        }
    }

    fn fragment_gone(&mut self, id: FragmentId, node: NodeId) {
        let Some(fragment) = self.state.fragments.get(id.0) else {
            return;
        };
        if fragment.state != FragmentState::Ending || fragment.node != node {
            return;
        }
        self.drop_fragment(id);
    }

    /// A fragment is not there any more.
    pub(super) fn drop_fragment(&mut self, id: FragmentId) {
        let Some(fragment) = self.state.fragments.remove(id.0) else {
            return;
        };
        self.last_sent
            .remove(&commands::CommandTarget::Fragment(id));
        if let Some(instance) = self.state.instances.get_mut(fragment.instance.0) {
            instance.fragments.retain(|f| *f != id);
        }
    }

    fn stage_ended(&mut self, id: StageId, attempt: u32, state: StageState, moved: StageProgress) {
        let Some(stage) = self.state.stages.get(id.0) else {
            return;
        };
        let expected = matches!(stage.state, StageState::Running | StageState::Cancelling);
        if stage.attempt != attempt || !expected {
            return;
        }
        // A stage that failed while it was being stopped has stopped.
        let stopping = stage.state == StageState::Cancelling;
        let state = match state {
            StageState::Failed(_) if stopping => StageState::Cancelled,
            StageState::Failed(reason) => {
                StageState::Failed(self.describe_loss(stage.instance, reason))
            }
            state => state,
        };
        if let Some(stage) = self.state.stages.get_mut(id.0) {
            stage.state = state;
            stage.moved = moved;
            let known = self.failed_files.entry(stage.session).or_default();
            *known = known.saturating_sub(stage.failed_files.len());
            stage.failed_files.clear();
        }
        self.progress.remove(&id);
        self.last_sent.remove(&commands::CommandTarget::Stage(id));
    }

    /// Remembers which files were in a failed stage's way. A session remembers some 65,536 of them;
    /// of stages that fail after that, the first file alone.
    fn note_unstaged(&mut self, id: StageId, attempt: u32, mut files: Vec<FailedFile>) {
        let Some(stage) = self.state.stages.get(id.0) else {
            return;
        };
        let failed = matches!(stage.state, StageState::Failed(_));
        if !failed || stage.attempt != attempt || stage.failed_files == files {
            return;
        }
        let known = self.failed_files.entry(stage.session).or_default();
        if *known + files.len() > MOST_UNSTAGED {
            files.truncate(1);
        }
        *known += files.len();
        if let Some(stage) = self.state.stages.get_mut(id.0) {
            stage.failed_files = files;
        }
    }

    fn mount_state(&mut self, id: ActivationId, turn: u32, host: &str, state: MountState) {
        let row = self.state.activations.get(id.0);
        let wanted = row.is_some_and(|row| {
            let last = row.replicas.get(host).map_or(0, |copy| copy.generation);
            row.hosts.get(host) == Some(&MountState::Requested) && turn == last
        });
        if !wanted {
            return;
        }
        // A host that cannot mount one copy may be able to mount another.
        let state = match state {
            MountState::Failed(_) if self.has_other_replica(id, host) => MountState::Requested,
            state => state,
        };
        let Some(row) = self.state.activations.get_mut(id.0) else {
            return;
        };
        if let (MountState::Mounted(_), Some(copy)) = (&state, row.replicas.get_mut(host)) {
            copy.failed.clear();
        }
        row.hosts.insert(host.to_owned(), state);
    }

    fn unmounted(&mut self, id: ActivationId, host: &str) {
        let ending = self
            .state
            .activations
            .get(id.0)
            .is_some_and(|row| row.ending.is_some() && row.hosts.contains_key(host));
        if let (true, Some(row)) = (ending, self.state.activations.get_mut(id.0)) {
            row.hosts.remove(host);
        }
    }
}
