//! Movers: queued stages are given to storage nodes, in the order that policy decides.

use std::collections::BTreeMap;

use forebay_policy::pool::NodeId;
use forebay_policy::staging::{self, PendingStage};

use super::*;
use crate::messages::*;

/// The pool counts as short of space for so long after a request was refused, in milliseconds.
const SHORT_FOR: u64 = 60_000;

/// How many stages are being moved.
#[derive(Default)]
struct Moving {
    on_node: BTreeMap<NodeId, usize>,
    of_session: BTreeMap<(SessionId, InstanceId), u32>,
}

impl Controller {
    /// Gives queued stages to nodes that have a mover free.
    pub(super) fn start_stages(&mut self) {
        let short = self
            .short_of_space
            .is_some_and(|at| self.now.ms_since(at) < SHORT_FOR);
        let Moving {
            on_node,
            mut of_session,
        } = self.moving();
        for (node, waiting) in self.queued() {
            let busy = on_node.get(&node).copied().unwrap_or(0);
            let mut slots = self.settings.max_stages_per_node.saturating_sub(busy);
            if slots == 0 {
                continue;
            }
            for id in staging::start_order(&waiting, short) {
                let Some(stage) = self.state.stages.get(id) else {
                    continue;
                };
                let (session, instance) = (stage.session, stage.instance);
                let row = self.state.sessions.get(session.0);
                let most = row.map_or(u32::MAX, |row| row.max_concurrent_stages_of(instance));
                let of = of_session.entry((session, instance)).or_default();
                if *of >= most {
                    continue;
                }
                if let Some(stage) = self.state.stages.get_mut(id) {
                    stage.state = StageState::Running;
                    stage.node = Some(node);
                    *of += 1;
                    slots -= 1;
                }
                if slots == 0 {
                    break;
                }
            }
        }
    }

    /// How many stages are being moved.
    fn moving(&self) -> Moving {
        let mut moving = Moving::default();
        for (_, stage) in self.state.stages.iter() {
            if let (StageState::Running | StageState::Cancelling, Some(node)) =
                (&stage.state, stage.node)
            {
                let of = (stage.session, stage.instance);
                *moving.on_node.entry(node).or_default() += 1;
                *moving.of_session.entry(of).or_default() += 1;
            }
        }
        moving
    }

    /// The stages that wait for a mover, by the node that is to move them.
    fn queued(&self) -> BTreeMap<NodeId, Vec<PendingStage>> {
        let mut queued: BTreeMap<NodeId, Vec<PendingStage>> = BTreeMap::new();
        let stages = self.state.stages.iter();
        for (id, stage) in stages.filter(|(_, stage)| stage.state == StageState::Queued) {
            let Some(node) = self.mover_of(StageId(id), stage) else {
                continue;
            };
            queued.entry(node).or_default().push(PendingStage {
                id,
                direction: stage.directive.direction,
                since_ms: stage.queued.0,
            });
        }
        queued
    }

    /// The node that moves a stage's data: one that has a fragment of the instance, the same one
    /// at every try, so that what it has copied already counts.
    fn mover_of(&self, id: StageId, stage: &StageRecord) -> Option<NodeId> {
        if stage.node.is_some() {
            return stage.node;
        }
        let ready = |f: &Fragment| matches!(f.state, FragmentState::Ready(_));
        if let Some(copy) = stage.replica {
            let fragment = self.state.fragments.get(copy.0);
            return fragment.filter(|f| ready(f)).map(|f| f.node);
        }
        let nodes: Vec<NodeId> = self
            .state
            .fragments_of(stage.instance)
            .filter(|(_, f)| ready(f))
            .map(|(_, f)| f.node)
            .collect();
        let count = u64::try_from(nodes.len()).ok().filter(|n| *n > 0)?;
        nodes.get(usize::try_from(id.0 % count).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_job_script::{BufferPath, Direction, InstanceRef, Stage, StageKind, StagePath};
    use forebay_units::Bytes;

    /// How many of five queued stages of an instance are begun at once for a session with this
    /// limit, and for another one that has five of the same instance.
    fn begun(most: Option<u32>, stages_per_node: usize) -> (usize, usize) {
        let settings = Settings {
            max_stages_per_node: stages_per_node,
            ..Settings::default()
        };
        let mut controller = Controller::restore(settings, Vec::new()).unwrap();
        let owner = Owner { uid: 7, gid: 7 };
        for (key, token) in [(1, "one"), (9, "other")] {
            let mut session = Session::new(
                token.into(),
                Lifetime::Job,
                owner,
                String::new(),
                UnixMillis(0),
                Setup::default(),
            );
            session.instance = Some(InstanceId(2));
            controller.state.sessions.insert(key, session);
        }
        let instance = Instance {
            session: SessionId(1),
            label: "job".into(),
            pool: "pool".into(),
            capacity: Bytes(1),
            public: false,
            replicated: false,
            created: UnixMillis(0),
            fragments: vec![FragmentId(3)],
            configurations: Vec::new(),
            broken: None,
            ending: false,
        };
        controller.state.instances.insert(2, instance);
        let fragment = Fragment {
            instance: InstanceId(2),
            node: NodeId(0),
            granules: 1,
            state: FragmentState::Ready(1),
        };
        controller.state.fragments.insert(3, fragment);
        if let Some(most) = most {
            let limited = controller.limit_stages(owner, "one", &InstanceRef::Job, most);
            assert!(limited.is_ok());
        }
        for session in [1, 9] {
            for name in 0..5 {
                let what = Stage {
                    direction: Direction::In,
                    kind: StageKind::File,
                    source: StagePath::Pfs("/pfs/a".into()),
                    destination: StagePath::Buffer(BufferPath {
                        instance: InstanceRef::Job,
                        path: name.to_string(),
                    }),
                    line: 0,
                };
                let (session, instance) = (SessionId(session), InstanceId(2));
                controller.add_stage(session, instance, what, StageState::Queued);
            }
        }
        controller.start_stages();
        // Those that are begun count for those that are to be.
        controller.start_stages();
        let running = |session| {
            let stages = controller.state.stages.iter();
            let of = stages.filter(|(_, stage)| stage.session == SessionId(session));
            of.filter(|(_, stage)| stage.state == StageState::Running)
                .count()
        };
        (running(1), running(9))
    }

    #[test]
    fn a_session_has_no_more_stages_at_a_time_than_it_and_its_node_permit() {
        assert_eq!(begun(None, 4), (4, 0));
        assert_eq!(begun(Some(9), 2), (2, 0));
        assert_eq!(begun(None, 0), (0, 0));
    }

    #[test]
    fn a_limit_of_one_session_does_not_hold_for_another() {
        assert_eq!(begun(Some(3), 4), (3, 1));
        assert_eq!(begun(Some(1), 9), (1, 5));
    }
}
