//! Scheduling of stages: queued stages are assigned to storage nodes in the order that the policy
//! decides. Other nodes of an instance may share a stage (`shares.rs`).

use std::collections::BTreeMap;

use forebay_job_script::Direction;
use forebay_policy::pool::NodeId;
use forebay_policy::staging::{PendingStage, start_order};

use super::machine::Controller;
use super::objects::{StageRecord, StageState};
use super::stalled_stages::counted_movers;
use crate::messages::{InstanceId, SessionId, StageId};

/// The pool counts as short of space for this long after a request was refused.
const SHORTAGE_MS: u64 = 60_000;

/// Number of stages that have a mover.
#[derive(Default)]
struct RunningStages {
    /// Those that count against the limit of their nodes.
    of_node: BTreeMap<NodeId, usize>,
    of_session: BTreeMap<(SessionId, InstanceId), u32>,
}

impl Controller {
    /// Assigns queued stages to nodes that have a free mover.
    pub(super) fn start_stages(&mut self) {
        let shortage = self.short_of_space_at;
        let short_of_space = shortage.is_some_and(|at| self.now.ms_since(at) < SHORTAGE_MS);
        self.stalled_stages.observe(&self.state.stages, self.now);
        let RunningStages { mut of_node, mut of_session } = self.running_stages();
        let max = self.settings.max_stages_per_node;
        for (node, queued) in self.queued_stages() {
            for id in start_order(&queued, short_of_space) {
                let moving = of_node.get(&node).copied().unwrap_or(0);
                if moving >= max {
                    break;
                }
                let id = StageId(id);
                let Some(stage) = self.state.stages.get(id) else {
                    continue;
                };
                let session = self.state.sessions.get(stage.session);
                let limit = session
                    .map_or(u32::MAX, |session| session.max_concurrent_stages_of(stage.instance));
                let key = (stage.session, stage.instance);
                let running = of_session.entry(key).or_default();
                if *running < limit {
                    *running += 1;
                    let nodes = self.nodes_for_stage(stage, node, &of_node);
                    for node in &nodes {
                        *of_node.entry(*node).or_default() += 1;
                    }
                    self.state.stages.assign(id, &nodes);
                }
            }
        }
    }

    fn running_stages(&self) -> RunningStages {
        let mut running = RunningStages::default();
        let mut stalled: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (id, stage) in self.state.stages.in_progress() {
            if stage.state.has_mover() {
                let key = (stage.session, stage.instance);
                *running.of_session.entry(key).or_default() += 1;
                let of_node = match self.stalled_stages.contains(id, self.now) {
                    true => &mut stalled,
                    false => &mut running.of_node,
                };
                for node in stage.busy_nodes() {
                    *of_node.entry(node).or_default() += 1;
                }
            }
        }
        for (node, stalled) in stalled {
            let moving = running.of_node.entry(node).or_default();
            *moving = counted_movers(*moving, stalled, self.settings.max_stages_per_node);
        }
        running
    }

    /// The stages that wait for a mover, by the node that is to move them.
    fn queued_stages(&self) -> BTreeMap<NodeId, Vec<PendingStage>> {
        let mut queued: BTreeMap<NodeId, Vec<PendingStage>> = BTreeMap::new();
        let stages = self.state.stages.in_progress();
        for (id, stage) in stages.filter(|(_, stage)| stage.state == StageState::Queued) {
            if self.state.evacuations.is_held(stage.instance) {
                continue;
            }
            let is_out = stage.directive.direction == Direction::Out;
            if is_out && !self.unconfirmed_fences(stage.instance).is_empty() {
                continue;
            }
            let Some(node) = self.mover_node(id, stage) else {
                continue;
            };
            queued.entry(node).or_default().push(PendingStage {
                id: id.0,
                direction: stage.directive.direction,
                since_ms: stage.queued.0,
            });
        }
        queued
    }

    /// The node that moves a stage's data, perhaps with others: a node with a fragment of the
    /// instance, and the same one in every attempt, so that it can resume.
    fn mover_node(&self, id: StageId, stage: &StageRecord) -> Option<NodeId> {
        if stage.node.is_some() {
            return stage.node;
        }
        if let Some(replica) = stage.replica {
            let fragment = self.state.storage.fragment(replica);
            return fragment.filter(|f| f.is_ready()).map(|f| f.node);
        }
        let fragments = self.state.storage.fragments_of(stage.instance);
        let ready = fragments.filter(|(_, fragment)| fragment.is_ready());
        let nodes: Vec<NodeId> = ready.map(|(_, fragment)| fragment.node).collect();
        let count = u64::try_from(nodes.len()).ok()?;
        let index = id.0.checked_rem(count)?;
        nodes.get(usize::try_from(index).ok()?).copied()
    }
}
