//! Answers to requests whose wait is over.

use forebay_job_script::StagePath;

use super::machine::{Controller, ControllerEffect};
use super::objects::{FragmentState, MountState, RequestProgress, StageRecord, StageState, Wait};
use super::request::{Answer, Cause, Failure, Outcome, refuse};
use crate::messages::{ActivationId, Peer, SessionId, StageId};

impl Controller {
    pub(super) fn answer_pending_requests(&mut self) {
        for id in self.state.requests.pending() {
            let Some(record) = self.state.requests.get(id) else {
                continue;
            };
            let RequestProgress::Pending(wait) = &record.progress else {
                continue;
            };
            let is_late = self.now > record.deadline;
            let outcome = self.outcome_of(wait).or_else(|| {
                is_late.then(|| {
                    let seconds = self.now.ms_since(record.accepted) / 1000;
                    refuse!(TimedOut, "timeout after {seconds} s: {}", self.describe_wait(wait))
                })
            });
            if let Some(outcome) = outcome {
                self.state.requests.answer(id, outcome.clone());
                self.effects.push(ControllerEffect::Reply(id, outcome));
            }
        }
    }

    /// Outcome of a wait; `None` if it has not ended.
    fn outcome_of(&self, wait: &Wait) -> Option<Outcome> {
        match wait {
            Wait::Ready(id) => self.ready_outcome(*id),
            Wait::Staged(stages) => self.staged_outcome(stages),
            Wait::Stopped(stages) => {
                let stages = stages.iter();
                let mut stages = stages.filter_map(|id| self.state.stages.get(*id));
                let stopped = stages.all(|stage| !stage.state.is_in_progress());
                stopped.then_some(Ok(Answer::Done))
            }
            Wait::Mounted(activations) => self.mounted_outcome(activations),
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

    fn mounted_outcome(&self, activations: &[ActivationId]) -> Option<Outcome> {
        if let Err(unknown) = self.check_hosts_exist(activations) {
            return Some(Err(unknown));
        }
        let mut problems = Vec::new();
        for id in activations {
            let activation = self.state.sessions.activation(*id);
            let Some(activation) = activation.filter(|row| row.ending.is_none()) else {
                let reason = "unmounted in the meantime";
                return Some(Err(Failure::new(Cause::NotFound, reason)));
            };
            for (host, state) in &activation.hosts {
                match state {
                    MountState::Mounted(_) => {}
                    MountState::Failed(reason) => problems.push(format!("host `{host}`: {reason}")),
                    MountState::Requested => return None,
                }
            }
        }
        Some(done_or(&problems))
    }

    /// Refuses compute nodes that have never reported. A controller that has just started does not
    /// know yet which exist, and waits for all for a while.
    fn check_hosts_exist(&self, activations: &[ActivationId]) -> Result<(), Failure> {
        let activations = activations.iter();
        let activations = activations.filter_map(|id| self.state.sessions.activation(*id));
        let hosts = activations.flat_map(|activation| &activation.hosts);
        let requested = hosts.filter(|(_, state)| **state == MountState::Requested);
        let never = |host: &String| {
            let peer = Peer::ComputeNode(host.clone());
            !self.contacts.has_reported(&peer)
        };
        let unknown = requested.map(|(host, _)| host.clone()).filter(never);
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
            Wait::Mounted(_) => "a compute node has not mounted it".to_owned(),
            Wait::Unmounted(_) => {
                "a compute node has not unmounted it; are files still open there?".to_owned()
            }
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
