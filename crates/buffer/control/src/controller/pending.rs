//! Answers to requests whose wait is over.

use std::collections::BTreeSet;

use forebay_job_script::StagePath;

use super::machine::{Controller, ControllerEffect};
use super::objects::{FragmentState, MountState, RequestProgress, StageRecord, StageState, Wait};
use super::request::{Answer, Cause, Failure, Outcome, RequestId, refuse};
use super::step_scope::StepScope;
use crate::messages::{ActivationId, Peer, SessionId, StageId};

impl Controller {
    /// Answers the requests whose wait is over. `accepted` is the request of this step.
    pub(super) fn answer_pending_requests(
        &mut self,
        scope: StepScope,
        accepted: Option<RequestId>,
    ) {
        let requests: BTreeSet<RequestId> = match scope {
            StepScope::All => self.state.requests.pending().into_iter().collect(),
            StepScope::Changed => {
                let sessions = scope.sessions(&self.state).into_iter();
                sessions.flat_map(|session| self.waits.of(session)).chain(accepted).collect()
            }
        };
        for id in requests {
            let Some(record) = self.state.requests.get(id) else {
                continue;
            };
            let RequestProgress::Pending(wait) = &record.progress else {
                continue;
            };
            let deadline = match self.is_held_mount(wait) {
                // As for the staging of its data.
                true => record.accepted.plus_ms(self.settings.staging_timeout_ms),
                false => record.deadline,
            };
            let is_late = self.now > deadline.max(record.deadline);
            let outcome = self.outcome_of(wait, scope).or_else(|| {
                is_late.then(|| {
                    let seconds = self.now.ms_since(record.accepted) / 1000;
                    refuse!(TimedOut, "timeout after {seconds} s: {}", self.describe_wait(wait))
                })
            });
            if let Some(outcome) = outcome {
                self.waits.remove(id);
                let until = self.now.plus_ms(self.settings.reply_retention_ms);
                self.state.requests.answer(id, outcome.clone(), until);
                self.effects.push(ControllerEffect::Reply(id, outcome));
            }
        }
    }

    /// Outcome of a wait; `None` if it has not ended.
    fn outcome_of(&self, wait: &Wait, scope: StepScope) -> Option<Outcome> {
        match wait {
            Wait::Ready(id) => self.ready_outcome(*id),
            Wait::Staged(stages) => self.staged_outcome(stages),
            Wait::Stopped(stages) => {
                let stages = stages.iter();
                let mut stages = stages.filter_map(|id| self.state.stages.get(*id));
                let stopped = stages.all(|stage| !stage.state.is_in_progress());
                stopped.then_some(Ok(Answer::Done))
            }
            Wait::Mounted(activations) => self.mounted_outcome(activations, scope),
            Wait::Unmounted(activations) => {
                let sessions = &self.state.sessions;
                let gone = |id: &ActivationId| sessions.activation(*id).is_none();
                activations.iter().all(gone).then_some(Ok(Answer::Done))
            }
            Wait::TornDown(id) => {
                let Some(session) = self.state.sessions.get(*id) else {
                    return Some(Ok(Answer::Done));
                };
                // Fragments on unreachable nodes are removed when these return; their granules are
                // not allocated again before that.
                let storage = &self.state.storage;
                let instance = session.instance?;
                storage.instance(instance).filter(|row| row.ending)?;
                let mut fragments = storage.fragments_of(instance);
                let unreachable = fragments.all(|(_, f)| !self.is_node_online(f.node));
                unreachable.then_some(Ok(Answer::Done))
            }
        }
    }

    fn ready_outcome(&self, id: SessionId) -> Option<Outcome> {
        let session = self.state.sessions.get(id);
        let Some(session) = session.filter(|session| !session.ending) else {
            return Some(torn_down());
        };
        let Some(instance) = session.instance else {
            return Some(Ok(Answer::Session(id)));
        };
        let broken = self.state.storage.instance(instance);
        if let Some(reason) = broken.and_then(|instance| instance.broken.clone()) {
            return Some(Err(Failure::new(Cause::Failed, reason)));
        }
        let ready = self.state.storage.is_ready(instance);
        ready.then_some(Ok(Answer::Session(id)))
    }

    fn staged_outcome(&self, stages: &[StageId]) -> Option<Outcome> {
        let mut problems = Vec::new();
        for id in stages {
            let Some(stage) = self.state.stages.get(*id) else {
                return Some(torn_down());
            };
            match &stage.state {
                StageState::Done => {}
                StageState::Failed(reason) => {
                    problems.push(match self.replica_name(stage) {
                        Some(node) => describe(stage, &format!("copy on `{node}`: {reason}")),
                        None => describe(stage, reason),
                    });
                }
                StageState::Cancelled => problems.push(describe(stage, "it was cancelled")),
                StageState::Waiting
                | StageState::Queued
                | StageState::Running
                | StageState::Cancelling => return None,
            }
        }
        Some(done_or(&problems))
    }

    fn mounted_outcome(&self, activations: &[ActivationId], scope: StepScope) -> Option<Outcome> {
        let mounts = &self.state.sessions.mounts;
        let requested = activations.iter().any(|id| mounts.counts(*id).requested > 0);
        // Only time makes a compute node's silence too long.
        if requested
            && scope.is_all()
            && let Err(unknown) = self.check_hosts_exist(activations)
        {
            return Some(Err(unknown));
        }
        let is_mounted = |id: &ActivationId| {
            self.state.sessions.activation(*id).is_some_and(|row| row.ending.is_none())
        };
        if !activations.iter().all(is_mounted) {
            let reason = "unmounted in the meantime";
            return Some(Err(Failure::new(Cause::NotFound, reason)));
        }
        if requested {
            return None;
        }
        let mut problems = Vec::new();
        let failed = activations.iter().filter(|id| mounts.counts(**id).failed > 0);
        for (_, mount) in failed.flat_map(|id| mounts.of(*id)) {
            if let MountState::Failed(reason) = &mount.state {
                problems.push(format!("host `{}`: {reason}", mount.host));
            }
        }
        Some(done_or(&problems))
    }

    /// Refuses compute nodes that have never reported. A controller that has just started does not
    /// know yet which exist, and waits for all for a while.
    fn check_hosts_exist(&self, activations: &[ActivationId]) -> Result<(), Failure> {
        let mounts = activations.iter().flat_map(|id| self.state.sessions.mounts.of(*id));
        let requested = mounts.filter(|(_, mount)| mount.state == MountState::Requested);
        let never = |host: &String| {
            let peer = Peer::ComputeNode(host.clone());
            !self.contacts.has_reported(&peer)
        };
        let unknown = requested.map(|(_, mount)| mount.host.clone()).filter(never);
        self.check_hosts_reported(&unknown.collect::<Vec<_>>())
    }

    fn describe_wait(&self, wait: &Wait) -> String {
        match wait {
            Wait::Ready(id) => {
                let session = self.state.sessions.get(*id);
                let instance = session.and_then(|session| session.instance);
                let missing = instance.map_or(0, |instance| {
                    let fragments = self.state.storage.fragments_of(instance);
                    fragments.filter(|(_, f)| f.state == FragmentState::Requested).count()
                });
                format!("{missing} storage node(s) have not created their fragment")
            }
            Wait::Staged(stages) | Wait::Stopped(stages) => {
                let stages = stages.iter().filter_map(|id| self.state.stages.get(*id));
                let in_progress = stages.filter(|stage| stage.state.is_in_progress());
                format!("{} stage(s) in progress", in_progress.count())
            }
            Wait::Mounted(activations) => match self.held_by_evacuation(activations) {
                Some(reason) => reason,
                None => "a compute node has not mounted it".to_owned(),
            },
            Wait::Unmounted(activations) => self.describe_unmounts(activations),
            Wait::TornDown(_) => "storage nodes have not removed their fragments".to_owned(),
        }
    }
}

fn torn_down() -> Outcome {
    refuse!(NotFound, "the session was torn down in the meantime")
}

fn done_or(problems: &[String]) -> Outcome {
    match problems.is_empty() {
        true => Ok(Answer::Done),
        false => Err(Failure::new(Cause::Failed, problems.join("\n"))),
    }
}

fn describe(stage: &StageRecord, reason: &str) -> String {
    let directive = format!("stage_{}", stage.directive.direction.name());
    match stage.directive.line {
        // Requested by a running job or with `forebay stage`.
        0 => match &stage.directive.source {
            StagePath::Pfs(path) => format!("{directive} of {path}: {reason}"),
            StagePath::Buffer(inside) => {
                let root = inside.instance.variable();
                format!("{directive} of {root}/{}: {reason}", inside.path)
            }
        },
        line => format!("{directive} of line {line}: {reason}"),
    }
}
