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
            Some(Space::Job) => session.instance,
            None => session.instance.or_else(|| claimed.first().copied()),
        }
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
            what,
            node: None,
            attempt,
            state,
            queued: self.now,
            moved: Progress::default(),
        };
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
            if matches!(stage.state, StageState::Waiting | StageState::Failed(_)) {
                if let Some(stage) = self.state.stages.get_mut(id.0) {
                    stage.state = StageState::Queued;
                    stage.attempt += 1;
                    stage.queued = self.now;
                }
            }
        }
        all
    }

    pub(super) fn stage_now(
        &mut self,
        caller: Owner,
        token: &str,
        what: Stage,
    ) -> Result<Begun, Failure> {
        let (id, session) = self.state.own_session(token, caller)?;
        self.usable(session)?;
        self.check_outside(&what)?;
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
        Ok(Begun::Answer(Answer::Stage(self.add_stage(
            id,
            instance,
            what,
            StageState::Queued,
        ))))
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
        let mut queued: BTreeMap<NodeId, Vec<Waiting>> = BTreeMap::new();
        for (id, stage) in self.state.stages.iter() {
            match (&stage.state, stage.node) {
                (StageState::Running | StageState::Cancelling, Some(node)) => {
                    *running.entry(node).or_default() += 1;
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
            let slots = self.settings.stages_per_node.saturating_sub(busy);
            for id in staging::next(&waiting, slots, &pressure) {
                if let Some(stage) = self.state.stages.get_mut(id) {
                    stage.state = StageState::Running;
                    stage.node = Some(node);
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
