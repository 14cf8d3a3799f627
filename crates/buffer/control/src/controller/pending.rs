//! Answers to requests whose wait is over.

use super::*;
use crate::messages::*;

impl Controller {
    pub(super) fn answer_pending_requests(&mut self) {
        // Only these: answered requests are remembered by the thousand.
        for client in self.pending_requests.clone() {
            let Some(record) = self.state.requests.get(client) else {
                continue;
            };
            let Some(wait) = record.wait.as_ref().filter(|_| record.outcome.is_none()) else {
                continue;
            };
            let late = self.now > record.deadline;
            let outcome = self.over(wait).or_else(|| {
                late.then(|| {
                    let seconds = self.now.ms_since(record.accepted) / 1000;
                    let reason = format!("not done after {seconds} s: {}", self.waiting_for(wait));
                    Err(Failure::new(Cause::TimedOut, reason))
                })
            });
            let Some(outcome) = outcome else { continue };
            let number = record.number;
            if let Some(record) = self.state.requests.get_mut(client) {
                record.outcome = Some(outcome.clone());
                record.wait = None;
            }
            self.pending_requests.remove(&client);
            self.effects.push(ControllerEffect::Reply {
                client,
                number,
                outcome,
            });
        }
    }

    /// How a wait ended, if it has.
    fn over(&self, wait: &Wait) -> Option<Outcome> {
        match wait {
            Wait::Ready(id) => self.ready(*id),
            Wait::Staged(stages) => self.staged(stages),
            Wait::Stopped(stages) => {
                let stopped = stages.iter().all(|id| {
                    self.state
                        .stages
                        .get(id.0)
                        .is_none_or(|stage| !stage.in_progress())
                });
                stopped.then_some(Ok(Answer::Done))
            }
            Wait::Mounted(activations) => self.mounted(activations),
            Wait::Unmounted(activations) => {
                let gone = activations
                    .iter()
                    .all(|id| self.state.activations.get(id.0).is_none());
                gone.then_some(Ok(Answer::Done))
            }
            Wait::TornDown(id) => {
                let Some(session) = self.state.sessions.get(id.0) else {
                    return Some(Ok(Answer::Done));
                };
                // What is left on nodes that cannot be reached is removed when they return; its
                // granules are not given to anyone before.
                let left = session
                    .instance
                    .filter(|i| self.state.instances.get(i.0).is_some_and(|i| i.ending))?;
                let mut fragments = self.state.fragments_of(left);
                fragments
                    .all(|(_, f)| !self.node_online(f.node))
                    .then_some(Ok(Answer::Done))
            }
        }
    }

    fn ready(&self, id: SessionId) -> Option<Outcome> {
        let gone = || {
            Some(Err(Failure::new(
                Cause::NotFound,
                "the session was taken down meanwhile",
            )))
        };
        let Some(session) = self.state.sessions.get(id.0) else {
            return gone();
        };
        if session.ending {
            return gone();
        }
        let Some(instance) = session.instance else {
            return Some(Ok(Answer::Session(id)));
        };
        if let Some(reason) = self
            .state
            .instances
            .get(instance.0)
            .and_then(|i| i.broken.clone())
        {
            return Some(Err(Failure::new(Cause::Failed, reason)));
        }
        self.state
            .is_ready(instance)
            .then_some(Ok(Answer::Session(id)))
    }

    fn staged(&self, stages: &[StageId]) -> Option<Outcome> {
        let mut problems = Vec::new();
        for id in stages {
            let Some(stage) = self.state.stages.get(id.0) else {
                let reason = "the session was taken down meanwhile";
                return Some(Err(Failure::new(Cause::NotFound, reason)));
            };
            match &stage.state {
                StageState::Done => {}
                StageState::Failed(reason) => match self.replica_name(stage) {
                    Some(name) => {
                        problems.push(describe(stage, &format!("copy on `{name}`: {reason}")));
                    }
                    None => problems.push(describe(stage, reason)),
                },
                StageState::Cancelled => problems.push(describe(stage, "it was cancelled")),
                _ => return None,
            }
        }
        if problems.is_empty() {
            return Some(Ok(Answer::Done));
        }
        Some(Err(Failure::new(Cause::Failed, problems.join("\n"))))
    }

    fn mounted(&self, activations: &[ActivationId]) -> Option<Outcome> {
        if let Err(unknown) = self.known(activations) {
            return Some(Err(unknown));
        }
        let mut problems = Vec::new();
        for id in activations {
            let Some(row) = self
                .state
                .activations
                .get(id.0)
                .filter(|row| row.ending.is_none())
            else {
                let reason = "it was unmounted meanwhile";
                return Some(Err(Failure::new(Cause::NotFound, reason)));
            };
            for (host, state) in &row.hosts {
                match state {
                    MountState::Mounted(_) => {}
                    MountState::Failed(reason) => problems.push(format!("host `{host}`: {reason}")),
                    MountState::Requested => return None,
                }
            }
        }
        if problems.is_empty() {
            return Some(Ok(Answer::Done));
        }
        Some(Err(Failure::new(Cause::Failed, problems.join("\n"))))
    }

    /// A controller that has just begun does not know who is there and waits for all hosts; those
    /// that have not come after a while do not exist.
    fn known(&self, activations: &[ActivationId]) -> Result<(), Failure> {
        let rows = activations.iter();
        let rows = rows.filter_map(|id| self.state.activations.get(id.0));
        let wanted = rows.flat_map(|row| &row.hosts);
        let wanted = wanted.filter(|(_, state)| matches!(state, MountState::Requested));
        let never = |host: &String| !self.peers.contains_key(&Peer::ComputeNode(host.clone()));
        let unknown = wanted.map(|(host, _)| host.clone()).filter(never);
        self.check_hosts_reported(&unknown.collect::<Vec<_>>())
    }

    fn waiting_for(&self, wait: &Wait) -> String {
        match wait {
            Wait::Ready(id) => {
                let instance = self.state.sessions.get(id.0).and_then(|s| s.instance);
                let missing = instance.map_or(0, |i| {
                    self.state
                        .fragments_of(i)
                        .filter(|(_, f)| f.state == FragmentState::Requested)
                        .count()
                });
                format!("{missing} storage node(s) have not made their part")
            }
            Wait::Staged(stages) | Wait::Stopped(stages) => {
                let running = stages.iter().filter_map(|id| self.state.stages.get(id.0));
                format!(
                    "{} stage(s) are under way",
                    running.filter(|s| s.in_progress()).count()
                )
            }
            Wait::Mounted(_) => "a host has not mounted it".to_owned(),
            Wait::Unmounted(_) => {
                "a host has not unmounted it; are files still open there?".to_owned()
            }
            Wait::TornDown(_) => "storage nodes have not removed their parts".to_owned(),
        }
    }
}

fn describe(stage: &StageRecord, reason: &str) -> String {
    use forebay_job_script::{Direction, StagePath};
    let which = match stage.directive.direction {
        Direction::In => "stage_in",
        Direction::Out => "stage_out",
    };
    match stage.directive.line {
        // Asked for by a running job or by `forebay stage`.
        0 => match &stage.directive.source {
            StagePath::Pfs(path) => format!("{which} of {path}: {reason}"),
            StagePath::Buffer(inside) => {
                let root = inside.instance.variable();
                format!("{which} of {root}/{}: {reason}", inside.path)
            }
        },
        line => format!("{which} of line {line}: {reason}"),
    }
}
