//! Stages: asked for, queued, given to a node in the order that policy decides.

use std::collections::BTreeMap;

use forebay_model::jobscript::{Direction, Space, Stage};
use forebay_model::units::Bytes;
use forebay_policy::pool::NodeId;
use forebay_policy::staging::{self, Pressure, Waiting};

use super::requests::Begun;
use super::*;
use crate::protocol::*;

/// The pool counts as short of space for so long after a request was refused, in milliseconds.
const SHORT_FOR: u64 = 60_000;

impl Controller {
    /// The instance that a space means in a session; its own, or the only other one, if none is
    /// named.
    pub(super) fn stage_instance(
        &self,
        session: SessionId,
        space: Option<&Space>,
    ) -> Option<InstanceId> {
        let session = self.state.sessions.get(session.0)?;
        let claimed = self.instances_of(session);
        match space {
            Some(Space::Persistent(name)) => claimed.into_iter().find(|id| {
                self.state
                    .instances
                    .get(id.0)
                    .is_some_and(|i| &i.label == name)
            }),
            Some(Space::Job | Space::LoadBalanced) => session.instance,
            None => session.instance.or_else(|| claimed.first().copied()),
        }
    }

    /// How the paths of a session's stages name an instance.
    pub(super) fn space_of(&self, session: &Session, id: InstanceId) -> Option<Space> {
        let instance = self.state.instances.get(id.0)?;
        Some(match session.instance == Some(id) {
            true if instance.copied => Space::LoadBalanced,
            true => Space::Job,
            false => Space::Persistent(instance.label.clone()),
        })
    }

    pub(super) fn add_stage(
        &mut self,
        session: SessionId,
        instance: InstanceId,
        what: Stage,
        state: StageState,
    ) -> StageId {
        let id = StageId(self.state.number());
        let attempt = u32::from(state == StageState::Queued);
        let row = StageRecord {
            session,
            instance,
            copy: None,
            what,
            node: None,
            attempt,
            state,
            queued: self.now,
            moved: Progress::default(),
            unstaged: Vec::new(),
        };
        self.asked.note(session, id, &row.what);
        self.state.stages.put(id.0, row);
        if let Some(session) = self.state.sessions.get_mut(session.0) {
            session.stages.push(id);
        }
        id
    }

    pub(super) fn stage_in(&mut self, caller: Owner, token: &str) -> Result<Begun, Failure> {
        let (_, session) = self.state.own_session(token, caller)?;
        let session = session.clone();
        self.usable(&session)?;
        if session.written && !self.all_done(&session, Direction::In) {
            let reason = format!(
                "`{token}` has run already: staging in again could overwrite what it wrote"
            );
            return Err(Failure::new(Cause::Busy, reason));
        }
        Ok(Begun::Wait(Wait::Staged(
            self.queue(&session, Direction::In),
        )))
    }

    pub(super) fn stage_out(&mut self, caller: Owner, token: &str) -> Result<Begun, Failure> {
        let (_, session) = self.state.own_session(token, caller)?;
        let session = session.clone();
        self.usable(&session)?;
        if !session.activations.is_empty() {
            let reason = format!(
                "`{token}` is still mounted; unmount it first, so that all its data is here"
            );
            return Err(Failure::new(Cause::Busy, reason));
        }
        Ok(Begun::Wait(Wait::Staged(
            self.queue(&session, Direction::Out),
        )))
    }

    fn all_done(&self, session: &Session, direction: Direction) -> bool {
        let stages = session
            .stages
            .iter()
            .filter_map(|id| self.state.stages.get(id.0));
        let mut of = stages.filter(|s| s.what.direction == direction);
        of.all(|s| matches!(s.state, StageState::Done | StageState::Cancelled))
    }

    /// Queues the stages of a direction that are not done, and names all that are to be awaited.
    fn queue(&mut self, session: &Session, direction: Direction) -> Vec<StageId> {
        let mut all = Vec::new();
        for id in &session.stages {
            let Some(stage) = self.state.stages.get(id.0) else {
                continue;
            };
            if stage.what.direction != direction || stage.state == StageState::Cancelled {
                continue;
            }
            all.push(*id);
            if matches!(stage.state, StageState::Waiting | StageState::Failed(_))
                && let Some(stage) = self.state.stages.get_mut(id.0)
            {
                stage.state = StageState::Queued;
                stage.attempt += 1;
                stage.queued = self.now;
            }
        }
        all
    }

    /// Takes a stage that a running job asks for: to be moved now, or, if `Waiting`, at its end.
    pub(super) fn take_stage(
        &mut self,
        caller: Owner,
        token: &str,
        what: Stage,
        state: StageState,
    ) -> Result<Begun, Failure> {
        let (id, session) = self.state.own_session(token, caller)?;
        self.usable(session)?;
        self.check_outside(&what)?;
        if session.lifetime == Lifetime::Persistent {
            self.forget_ended_stages(id);
        }
        let (_, session) = self.state.own_session(token, caller)?;
        if session.stages.len() >= self.settings.max_stages {
            let reason = format!(
                "`{token}` has {} stages, the most there can be",
                session.stages.len()
            );
            return Err(Failure::new(Cause::Full, reason));
        }
        let instance = self.stage_instance(id, what.space()).ok_or_else(|| {
            Failure::new(
                Cause::NotFound,
                format!("`{token}` has no such instance to stage"),
            )
        })?;
        let row = self.state.instances.get(instance.0);
        if row.is_some_and(|row| row.copied) {
            let reason = format!(
                "the instance of `{token}` is load-balanced: only `stage_in` lines of its job fill it, \
                 before the job runs"
            );
            return Err(Failure::new(Cause::Invalid, reason));
        }
        if let Some(reason) = self.in_the_way(id, &what) {
            return Err(Failure::new(Cause::Busy, reason));
        }
        Ok(Begun::Answer(Answer::Stage(
            self.add_stage(id, instance, what, state),
        )))
    }

    /// Drops the oldest stages of a persistent instance that are over, so that it can be staged from
    /// and to for ever. Those of a job stay: its processes may ask for them until it ends.
    fn forget_ended_stages(&mut self, id: SessionId) {
        let Some(session) = self.state.sessions.get(id.0) else {
            return;
        };
        let over = |stage: &&StageId| {
            let stage = self.state.stages.get(stage.0);
            stage.is_none_or(|s| !s.in_progress() && s.state != StageState::Waiting)
        };
        let many = (session.stages.len() + 1).saturating_sub(self.settings.kept_stages);
        let old: Vec<StageId> = session
            .stages
            .iter()
            .filter(over)
            .take(many)
            .copied()
            .collect();
        if old.is_empty() {
            return;
        }
        for stage in &old {
            self.state.stages.remove(stage.0);
            self.progress.remove(stage);
            self.sent.remove(&commands::Subject::Stage(*stage));
        }
        self.asked.forget_stages(&old);
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.stages.retain(|stage| !old.contains(stage));
        }
    }

    /// Begins a stage that waits for the end of its job.
    pub(super) fn release_stage(&mut self, id: StageId) -> Result<Begun, Failure> {
        match self.state.stages.get_mut(id.0) {
            Some(stage) if stage.state == StageState::Waiting => {
                stage.state = StageState::Queued;
                stage.attempt += 1;
                stage.queued = self.now;
                Ok(Begun::Answer(Answer::Stage(id)))
            }
            _ => {
                let reason = format!("stage {} is not deferred", id.0);
                Err(Failure::new(Cause::Invalid, reason))
            }
        }
    }

    pub(super) fn limit_stages(
        &mut self,
        caller: Owner,
        token: &str,
        space: &Space,
        most: u32,
    ) -> Result<Begun, Failure> {
        let (id, _) = self.state.own_session(token, caller)?;
        if most == 0 {
            let reason = "at least one stage must be moved at a time";
            return Err(Failure::new(Cause::Invalid, reason));
        }
        let instance = self.stage_instance(id, Some(space)).ok_or_else(|| {
            let reason = format!("`{token}` has no such instance");
            Failure::new(Cause::NotFound, reason)
        })?;
        // Of this session alone: others that use a persistent instance have limits of their own.
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.stages_at_once.retain(|(of, _)| *of != instance);
            session.stages_at_once.push((instance, most));
        }
        Ok(Begun::Answer(Answer::Done))
    }

    pub(super) fn own_stage(&self, caller: Owner, stage: StageId) -> Result<(), Failure> {
        let owner = self
            .state
            .stages
            .get(stage.0)
            .and_then(|s| self.state.sessions.get(s.session.0))
            .map(|session| session.owner)
            .ok_or_else(|| {
                Failure::new(Cause::NotFound, format!("there is no stage {}", stage.0))
            })?;
        may_act_for(caller, owner, stage)
    }

    pub(super) fn cancel_stage(&mut self, id: StageId) {
        let Some(stage) = self.state.stages.get(id.0) else {
            return;
        };
        let next = match (&stage.state, stage.node) {
            (StageState::Waiting | StageState::Failed(_), _) => StageState::Cancelled,
            // A queued stage may have been with a node in an earlier attempt; no matter, that ended.
            (StageState::Queued, _) => StageState::Cancelled,
            (StageState::Running, _) => StageState::Cancelling,
            (StageState::Cancelling | StageState::Done | StageState::Cancelled, _) => return,
        };
        if let Some(stage) = self.state.stages.get_mut(id.0) {
            stage.state = next;
        }
    }

    /// Gives queued stages to nodes that have a mover free.
    pub(super) fn start_stages(&mut self) {
        let mut running: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut moved: BTreeMap<(SessionId, InstanceId), u32> = BTreeMap::new();
        let mut queued: BTreeMap<NodeId, Vec<Waiting>> = BTreeMap::new();
        for (id, stage) in self.state.stages.iter() {
            match (&stage.state, stage.node) {
                (StageState::Running | StageState::Cancelling, Some(node)) => {
                    *running.entry(node).or_default() += 1;
                    *moved.entry((stage.session, stage.instance)).or_default() += 1;
                }
                (StageState::Queued, _) => {
                    let Some(node) = self.mover_of(StageId(id), stage) else {
                        continue;
                    };
                    let size = Bytes(stage.moved.bytes_total);
                    let direction = stage.what.direction;
                    let waiting = Waiting {
                        id,
                        direction,
                        size,
                        since_ms: stage.queued.0,
                        needed_ms: None,
                    };
                    queued.entry(node).or_default().push(waiting);
                }
                _ => {}
            }
        }
        let short = self
            .short_of_space
            .is_some_and(|at| self.now.since(at) < SHORT_FOR);
        let pressure = Pressure {
            rate: self.settings.mover_rate,
            short_of_space: short,
        };
        for (node, waiting) in queued {
            let busy = running.get(&node).copied().unwrap_or(0);
            let mut slots = self.settings.stages_per_node.saturating_sub(busy);
            if slots == 0 {
                continue;
            }
            for id in staging::next(&waiting, waiting.len(), &pressure) {
                let Some(stage) = self.state.stages.get(id) else {
                    continue;
                };
                let (session, instance) = (stage.session, stage.instance);
                let row = self.state.sessions.get(session.0);
                let most = row.map_or(u32::MAX, |row| row.stages_at_once(instance));
                let of = moved.entry((session, instance)).or_default();
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

    /// The node that moves a stage's data: one that has a fragment of the instance, the same one
    /// at every try, so that what it has copied already counts.
    fn mover_of(&self, id: StageId, stage: &StageRecord) -> Option<NodeId> {
        if stage.node.is_some() {
            return stage.node;
        }
        let ready = |f: &Fragment| matches!(f.state, FragmentState::Ready(_));
        if let Some(copy) = stage.copy {
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

fn may_act_for(caller: Owner, owner: Owner, stage: StageId) -> Result<(), Failure> {
    super::state::may_act(caller, owner, &format!("stage {}", stage.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_model::jobscript::{BufferPath, StageKind, StagePath};

    /// How many of five queued stages of an instance are begun at once for a session with this
    /// limit, and for another one that has five of the same instance.
    fn begun(most: Option<u32>, stages_per_node: usize) -> (usize, usize) {
        let settings = Settings {
            stages_per_node,
            ..Settings::default()
        };
        let mut controller = Controller::restore(settings, Vec::new()).unwrap();
        let owner = Owner { uid: 7, gid: 7 };
        for (key, token) in [(1, "one"), (9, "other")] {
            let session = Session {
                token: token.into(),
                lifetime: Lifetime::Job,
                owner,
                creator: String::new(),
                runner: None,
                created: Instant(0),
                setup: Setup::default(),
                instance: Some(InstanceId(2)),
                registrations: Vec::new(),
                activations: Vec::new(),
                stages: Vec::new(),
                hosts: Vec::new(),
                written: false,
                ending: false,
                stages_at_once: Vec::new(),
            };
            controller.state.sessions.put(key, session);
        }
        let instance = Instance {
            session: SessionId(1),
            label: "job".into(),
            pool: "pool".into(),
            capacity: Bytes(1),
            public: false,
            copied: false,
            created: Instant(0),
            fragments: vec![FragmentId(3)],
            configurations: Vec::new(),
            broken: None,
            ending: false,
        };
        controller.state.instances.put(2, instance);
        let fragment = Fragment {
            instance: InstanceId(2),
            node: NodeId(0),
            granules: 1,
            state: FragmentState::Ready(1),
        };
        controller.state.fragments.put(3, fragment);
        if let Some(most) = most {
            let limited = controller.limit_stages(owner, "one", &Space::Job, most);
            assert!(limited.is_ok());
        }
        for session in [1, 9] {
            for name in 0..5 {
                let what = Stage {
                    direction: Direction::In,
                    kind: StageKind::File,
                    source: StagePath::Pfs("/pfs/a".into()),
                    destination: StagePath::Buffer(BufferPath {
                        space: Space::Job,
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
