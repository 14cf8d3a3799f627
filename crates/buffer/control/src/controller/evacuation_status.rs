//! Obstacles to an evacuation, and the status of the instances that are to leave storage nodes.

use std::collections::BTreeSet;

use forebay_policy::pool::{self, NodeId};
use forebay_units::{Bytes, human};
use serde::{Deserialize, Serialize};

use super::machine::Controller;
use super::objects::{FragmentState, RequestProgress, StageState, Wait};
use super::request::Lifetime;
use crate::messages::{ActivationId, InstanceId, Owner, SessionId, StageProgress};

/// Step of the evacuation of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvacuationStep {
    /// It belongs to a job, and ends with it.
    EndsWithJob,
    /// It cannot be moved now.
    Waiting,
    /// Its new fragments are being created.
    Preparing,
    /// Its data are copied, or are to be when a mover is free.
    Copying,
    /// It has moved, or is removed, and its old fragments are being removed.
    Leaving,
}

impl EvacuationStep {
    /// All steps.
    pub const ALL: [EvacuationStep; 5] = [
        EvacuationStep::EndsWithJob,
        EvacuationStep::Waiting,
        EvacuationStep::Preparing,
        EvacuationStep::Copying,
        EvacuationStep::Leaving,
    ];

    /// A word for it, as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            EvacuationStep::EndsWithJob => "ends_with_job",
            EvacuationStep::Waiting => "waiting",
            EvacuationStep::Preparing => "preparing",
            EvacuationStep::Copying => "copying",
            EvacuationStep::Leaving => "leaving",
        }
    }
}

/// An instance with data on a drained node from which instances are to move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvacuationStatus {
    /// The instance.
    pub instance: InstanceId,
    /// Job id or name of the persistent instance.
    pub label: String,
    /// Owner; `None` if its session has ended.
    pub owner: Option<Owner>,
    /// The drained nodes with its fragments.
    pub nodes: Vec<NodeId>,
    /// Bytes allocated on these nodes.
    pub allocated: Bytes,
    /// Storage nodes to which it moves.
    pub targets: Vec<NodeId>,
    /// Step.
    pub step: EvacuationStep,
    /// Why it does not move now, or why the last attempt failed.
    pub reason: Option<String>,
    /// Progress of the copy of the whole instance.
    pub progress: StageProgress,
    /// Sessions that wait to mount it until it has moved.
    pub waiting: Vec<String>,
}

impl Controller {
    /// Why an instance that is to move cannot be moved now, apart from space on other nodes.
    pub(super) fn evacuation_obstacle(&self, source: InstanceId) -> Option<String> {
        let storage = &self.state.storage;
        let row = storage.instance(source)?;
        if let Some(reason) = &row.broken {
            return Some(format!("it cannot be copied: {reason}"));
        }
        if !storage.fragments_of(source).all(|(_, fragment)| fragment.is_ready()) {
            return Some("it is still being made".to_owned());
        }
        let fragments = storage.fragments_of(source).map(|(_, fragment)| fragment.node);
        let nodes: BTreeSet<NodeId> = fragments.collect();
        let offline = nodes.iter().filter(|node| !self.is_node_online(**node)).copied();
        let offline = self.node_names(offline);
        if !offline.is_empty() {
            return Some(format!("storage nodes with its data are offline: {offline}"));
        }
        let old = nodes.iter().filter(|node| !self.contacts.copies_instances(**node)).copied();
        let old = self.node_names(old);
        if !old.is_empty() {
            return Some(format!("the storage daemons of {old} are of an older release"));
        }
        if let Some(users) = self.mounted_by(source) {
            return Some(format!("it is in use: {users}"));
        }
        let mut stages = self.state.stages.in_progress();
        if let Some((_, stage)) = stages.find(|(_, stage)| stage.instance == source) {
            let session = self.state.sessions.get(stage.session);
            let token = session.map_or("?", |session| session.token.as_str());
            return Some(format!("data are being staged for `{token}`"));
        }
        if !self.unconfirmed_fences(source).is_empty() {
            return Some(
                "storage nodes have not confirmed that they refuse a dead host".to_owned(),
            );
        }
        let (until, reason) = self.retry_time(source)?;
        let seconds = until.ms_since(self.now) as f64 / 1e3;
        Some(format!(
            "another attempt in {}; the last one failed: {reason}",
            human::seconds(seconds)
        ))
    }

    /// The sessions that have an instance mounted, and where, for messages.
    fn mounted_by(&self, source: InstanceId) -> Option<String> {
        let sessions = &self.state.sessions;
        let activations = self.state.activations_of(source);
        let users: Vec<String> = activations
            .map(|(id, activation)| {
                let session = sessions.get(activation.session);
                let token = session.map_or("?", |session| session.token.as_str());
                let hosts: BTreeSet<&str> =
                    sessions.mounts.of(id).map(|(_, mount)| mount.host.as_str()).collect();
                match (hosts.first(), hosts.len()) {
                    (None, _) => format!("by `{token}`"),
                    (Some(host), 1) => format!("by `{token}` on {host}"),
                    (Some(host), n) => format!("by `{token}` on {host} and {} others", n - 1),
                }
            })
            .collect();
        const NAMED: usize = 3;
        match users.len() {
            0 => None,
            n if n > NAMED => {
                Some(format!("{}, and {} more", users[..NAMED].join(", "), n - NAMED))
            }
            _ => Some(users.join(", ")),
        }
    }

    /// Tokens of the sessions that have requested mounts of an instance that is held.
    pub(super) fn jobs_waiting_for(&self, source: InstanceId) -> Vec<String> {
        let sessions = &self.state.sessions;
        let activations = self.state.activations_of(source);
        let waits = activations.filter(|(_, activation)| activation.ending.is_none());
        let tokens: BTreeSet<SessionId> = waits.map(|(_, row)| row.session).collect();
        let tokens = tokens.into_iter().filter_map(|id| sessions.get(id));
        tokens.map(|session| session.token.clone()).collect()
    }

    /// Why these activations are not mounted, if an instance of theirs moves.
    pub(super) fn held_by_evacuation(&self, activations: &[ActivationId]) -> Option<String> {
        let activations = activations.iter().filter_map(|id| self.state.sessions.activation(*id));
        let instances = activations.filter_map(|row| self.state.instance_mounted_by(row));
        let mut held = instances.filter(|id| self.state.evacuations.is_held(*id));
        held.next().map(|id| self.describe_hold(id))
    }

    /// Whether a request waits for the mount of an instance that moves.
    pub(super) fn is_held_mount(&self, wait: &Wait) -> bool {
        match wait {
            Wait::Mounted(activations) => self.held_by_evacuation(activations).is_some(),
            Wait::Ready(_)
            | Wait::Staged(_)
            | Wait::Stopped(_)
            | Wait::Unmounted(_)
            | Wait::TornDown(_) => false,
        }
    }

    /// Gives requests that wait for mounts of a held instance, which can be mounted now, the usual
    /// time.
    pub(super) fn extend_held_mounts(&mut self, source: InstanceId) {
        let deadline = self.now.plus_ms(self.settings.request_timeout_ms);
        for id in self.state.requests.pending() {
            let record = self.state.requests.get(id);
            let Some(RequestProgress::Pending(Wait::Mounted(activations))) =
                record.map(|record| &record.progress)
            else {
                continue;
            };
            let mounts_source = |row| self.state.instance_mounted_by(row) == Some(source);
            let is_of_source = activations
                .iter()
                .any(|id| self.state.sessions.activation(*id).is_some_and(mounts_source));
            if is_of_source {
                self.state.requests.extend(id, deadline);
            }
        }
    }

    /// Why an instance that is held is not mounted now.
    fn describe_hold(&self, source: InstanceId) -> String {
        let label = self.state.storage.instance(source).map_or("?", |row| row.label.as_str());
        let from = self.node_names(self.nodes_to_leave(source).into_iter());
        let stage = self.state.evacuations.get(source).and_then(|evacuation| {
            Some((evacuation.stage, self.state.stages.get(evacuation.stage)?))
        });
        let progress = stage.map(|(id, stage)| self.state.stages.progress(id, stage));
        let progress = progress.unwrap_or_default();
        format!(
            "`{label}` moves off storage node {from}, which is drained; {} are copied so far",
            human::bytes(progress.bytes)
        )
    }

    /// The instances with data on drained nodes from which instances are to move.
    pub(super) fn evacuation_status(&self) -> Vec<EvacuationStatus> {
        let storage = &self.state.storage;
        let left = storage.nodes().filter(|(_, node)| node.drained && node.evacuates);
        let fragments = left.flat_map(|(id, _)| storage.fragments_on(id));
        let present = fragments.filter(|(_, f)| f.state != FragmentState::Forgotten);
        let instances: BTreeSet<InstanceId> = present.map(|(_, f)| f.instance).collect();
        let movable = self.instances_to_move();
        let instances = instances.into_iter();
        instances.filter_map(|id| self.evacuation_of(id, movable.contains(&id))).collect()
    }

    /// The nodes that have not created their new fragment, or not confirmed that they refuse clients.
    fn unready_nodes(&self, source: InstanceId, replacement: InstanceId) -> String {
        let storage = &self.state.storage;
        let missing = storage.fragments_of(replacement).filter(|(_, f)| !f.is_ready());
        let missing = missing.map(|(_, fragment)| fragment.node);
        let unconfirmed = self.unconfirmed_fences(source).into_iter();
        let unconfirmed = unconfirmed.filter_map(|id| Some(storage.fragment(id)?.node));
        let nodes: BTreeSet<NodeId> = missing.chain(unconfirmed).collect();
        self.node_names(nodes.into_iter())
    }

    fn evacuation_of(&self, id: InstanceId, is_movable: bool) -> Option<EvacuationStatus> {
        let storage = &self.state.storage;
        let row = storage.instance(id)?;
        let session = self.state.sessions.get(row.session);
        let nodes = self.nodes_to_leave(id);
        let granularity = storage.pool(Some(&row.pool)).ok()?.granularity;
        let fragments = storage.fragments_of(id).filter(|(_, f)| nodes.contains(&f.node));
        let granules = fragments.map(|(_, f)| f.granules).fold(0, u64::saturating_add);
        let evacuation = self.state.evacuations.get(id);
        let stage = evacuation.and_then(|e| Some((e.stage, self.state.stages.get(e.stage)?)));
        let is_jobs = session.is_some_and(|session| session.lifetime == Lifetime::Job);
        let (step, reason) = match stage {
            Some((_, stage)) => match &stage.state {
                StageState::Waiting => {
                    let nodes = self.unready_nodes(id, stage.instance);
                    let reason = format!("storage nodes are preparing the copy: {nodes}");
                    (EvacuationStep::Preparing, (!nodes.is_empty()).then_some(reason))
                }
                StageState::Failed(reason) => {
                    let reason = format!("it is tried again soon; the copy failed: {reason}");
                    (EvacuationStep::Copying, Some(reason))
                }
                _ => (EvacuationStep::Copying, None),
            },
            None if is_movable => {
                let obstacle = self.evacuation_obstacle(id);
                let obstacle = obstacle.or_else(|| self.replacement_shares(id).err());
                let reason = obstacle.unwrap_or_else(|| "other instances move first".to_owned());
                (EvacuationStep::Waiting, Some(reason))
            }
            None if is_jobs && !row.ending => {
                let reason = format!("job `{}` has not ended", row.label);
                (EvacuationStep::EndsWithJob, Some(reason))
            }
            None => (EvacuationStep::Leaving, None),
        };
        let targets = evacuation.map(|e| storage.fragments_of(e.replacement).map(|(_, f)| f.node));
        Some(EvacuationStatus {
            instance: id,
            label: row.label.clone(),
            owner: session.map(|session| session.owner),
            nodes: nodes.into_iter().collect(),
            allocated: pool::bytes_in(granules, granularity).unwrap_or(Bytes(u64::MAX)),
            targets: targets.into_iter().flatten().collect(),
            step,
            reason,
            progress: stage
                .map(|(id, stage)| self.state.stages.progress(id, stage))
                .unwrap_or_default(),
            waiting: match evacuation {
                Some(_) => self.jobs_waiting_for(id),
                None => Vec::new(),
            },
        })
    }
}
