//! Sessions that live and end: mounted, unmounted, taken down when that is safe.

use std::collections::BTreeSet;

use forebay_job_script::{AccessMode, Direction, InstanceType};
use forebay_policy::removal::{self, InstanceUses};

use super::dispatch::Accepted;
use super::state::check_may_act;
use super::*;
use crate::messages::*;

impl Controller {
    pub(super) fn activate_session(
        &mut self,
        caller: Owner,
        token: &str,
        hosts: Vec<String>,
    ) -> Result<Accepted, Failure> {
        let (id, session) = self.state.authorized_session(token, caller)?;
        let session = session.clone();
        if hosts.is_empty() {
            return Err(Failure::new(Cause::Invalid, "no host is named to mount on"));
        }
        self.check_usable(&session)?;
        self.check_hosts_reported(&hosts)?;
        let running = |stage: &StageId| {
            self.state
                .stages
                .get(stage.0)
                .is_some_and(StageRecord::in_progress)
        };
        if session.stages.iter().any(running) {
            let reason = format!("`{token}` is still being staged; wait for it first");
            return Err(Failure::new(Cause::Busy, reason));
        }
        self.add_hosts(&session, &hosts)?;
        let activations = match session.activations.is_empty() {
            true => self.new_activations(id, &session, &hosts),
            false => session.activations.clone(),
        };
        self.reopen_stage_outs(&session);
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.activations = activations.clone();
            session.written = true;
            session.hosts = hosts;
        }
        Ok(Accepted::Wait(Wait::Mounted(activations)))
    }

    /// Has what a session has mounted already mounted on these hosts, too. Hosts that failed are
    /// asked again.
    fn add_hosts(&mut self, session: &Session, hosts: &[String]) -> Result<(), Failure> {
        for activation in &session.activations {
            let Some(row) = self.state.activations.get_mut(activation.0) else {
                continue;
            };
            if row.ending.is_some() {
                let reason = format!("`{}` is still being unmounted; try again", session.token);
                return Err(Failure::new(Cause::Busy, reason));
            }
            // Hosts that an earlier attempt named and that do not exist are no longer waited for.
            let peers = &self.peers;
            row.hosts.retain(|host, state| {
                !matches!(state, MountState::Requested)
                    || hosts.contains(host)
                    || peers.contains_key(&Peer::ComputeNode(host.clone()))
            });
            for host in hosts {
                let state = row
                    .hosts
                    .entry(host.clone())
                    .or_insert(MountState::Requested);
                if matches!(state, MountState::Failed(_)) {
                    *state = MountState::Requested;
                    if let Some(copy) = row.replicas.get_mut(host) {
                        copy.failed.clear();
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes an activation of each configuration that a session has a claim on.
    fn new_activations(
        &mut self,
        id: SessionId,
        session: &Session,
        hosts: &[String],
    ) -> Vec<ActivationId> {
        let mut activations = Vec::new();
        for registration in &session.registrations {
            let Some(claim) = self.state.registrations.get(registration.0) else {
                continue;
            };
            let configuration = claim.configuration;
            let Some(mount) = self.mount_path(session, configuration) else {
                continue;
            };
            let wanted = hosts
                .iter()
                .map(|host| (host.clone(), MountState::Requested));
            let row = Activation {
                session: id,
                configuration,
                mount,
                hosts: wanted.collect(),
                ending: None,
                replicas: BTreeMap::new(),
            };
            let activation = ActivationId(self.state.next_id());
            self.state.activations.insert(activation.0, row);
            activations.push(activation);
        }
        activations
    }

    /// What a job writes from now on is not what was staged out before.
    fn reopen_stage_outs(&mut self, session: &Session) {
        let out = |s: &StageRecord| {
            s.directive.direction == Direction::Out && s.state == StageState::Done
        };
        for id in &session.stages {
            if self.state.stages.get(id.0).is_some_and(out)
                && let Some(stage) = self.state.stages.get_mut(id.0)
            {
                stage.state = StageState::Waiting;
            }
        }
    }

    /// Refuses hosts that have been silent for so long that they will hardly mount anything.
    pub(super) fn check_hosts_reported(&self, hosts: &[String]) -> Result<(), Failure> {
        let most = self.settings.host_dead_after_ms;
        let silent = |host: &&String| self.silence(&Peer::ComputeNode((*host).clone())) > most;
        // A host is asked for once for each view.
        let silent: BTreeSet<String> = hosts
            .iter()
            .filter(silent)
            .map(|host| format!("`{host}`"))
            .collect();
        if silent.is_empty() {
            return Ok(());
        }
        let reason = format!(
            "no agent of {} has reported for {} s; start it there, or name other hosts",
            Vec::from_iter(silent).join(", "),
            most / 1000
        );
        Err(Failure::new(Cause::NotFound, reason))
    }

    /// Refuses a session that is ending or whose instances cannot be used.
    pub(super) fn check_usable(&self, session: &Session) -> Result<(), Failure> {
        if session.ending {
            let reason = format!("`{}` is being taken down", session.token);
            return Err(Failure::new(Cause::Busy, reason));
        }
        for instance in self.instances_of(session) {
            if let Some(reason) = self
                .state
                .instances
                .get(instance.0)
                .and_then(|i| i.broken.clone())
            {
                return Err(Failure::new(Cause::Failed, reason));
            }
            if !self.state.is_ready(instance) {
                let reason = format!("`{}` is not set up yet; wait for it first", session.token);
                return Err(Failure::new(Cause::Busy, reason));
            }
        }
        Ok(())
    }

    /// The instances on which a session has a claim, each once.
    pub(super) fn instances_of(&self, session: &Session) -> Vec<InstanceId> {
        let claims = session
            .registrations
            .iter()
            .filter_map(|id| self.state.registrations.get(id.0));
        let configurations =
            claims.filter_map(|c| self.state.configurations.get(c.configuration.0));
        let mut instances: Vec<InstanceId> = configurations.map(|c| c.instance).collect();
        instances.sort();
        instances.dedup();
        instances
    }

    /// Where a session's hosts mount a configuration; ends with `/`.
    pub(super) fn mount_path(
        &self,
        session: &Session,
        configuration: ConfigurationId,
    ) -> Option<String> {
        let row = self.state.configurations.get(configuration.0)?;
        let instance = self.state.instances.get(row.instance.0)?;
        let persistent =
            (session.instance != Some(row.instance)).then_some(instance.label.as_str());
        let short = match (&row.kind, row.mode) {
            (InstanceType::Cache { .. }, AccessMode::LoadBalanced) => "ldbal_cache",
            (InstanceType::Cache { .. }, _) => "striped_cache",
            (_, AccessMode::Private) => "private",
            (_, AccessMode::LoadBalanced) => "ldbalance",
            (_, _) => "ss",
        };
        let (root, token) = (&self.settings.mount_root, &session.token);
        Some(match persistent {
            None => format!("{root}/{token}/{short}/"),
            Some(name) => format!("{root}/{token}/{name}_{short}/"),
        })
    }

    pub(super) fn deactivate_session(
        &mut self,
        caller: Owner,
        token: &str,
    ) -> Result<Accepted, Failure> {
        let (id, session) = self.state.authorized_session(token, caller)?;
        let activations = session.activations.clone();
        self.end_activations(id);
        Ok(Accepted::Wait(Wait::Unmounted(activations)))
    }

    pub(super) fn end_activations(&mut self, session: SessionId) {
        let of = self.state.sessions.get(session.0);
        for activation in of.map(|s| s.activations.clone()).unwrap_or_default() {
            let mounted = self
                .state
                .activations
                .get(activation.0)
                .is_some_and(|a| a.ending.is_none());
            if let (true, Some(row)) = (mounted, self.state.activations.get_mut(activation.0)) {
                row.ending = Some(self.now);
            }
        }
    }

    pub(super) fn tear_down_session(
        &mut self,
        caller: Owner,
        token: &str,
        hurry: bool,
        lifetime: Lifetime,
    ) -> Result<Accepted, Failure> {
        let Some((id, session)) = self
            .state
            .session(token)
            .filter(|(_, s)| s.lifetime == lifetime)
        else {
            if lifetime == Lifetime::Job {
                return Ok(Accepted::Answer(Answer::Done)); // Asked again after it was done.
            }
            let reason = format!("there is no persistent instance `{token}`");
            return Err(Failure::new(Cause::NotFound, reason));
        };
        check_may_act(caller, session.owner, &format!("`{token}`"))?;
        if session.ending {
            return Ok(Accepted::Wait(Wait::TornDown(id)));
        }
        let outs: Vec<&StageRecord> = session
            .stages
            .iter()
            .filter_map(|stage| self.state.stages.get(stage.0))
            .filter(|s| s.directive.direction == Direction::Out)
            .filter(|s| !matches!(s.state, StageState::Done | StageState::Cancelled))
            .collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let failed = outs
            .iter()
            .filter(|s| matches!(s.state, StageState::Failed(_)))
            .count();
        let others = session
            .instance
            .map(|i| self.state.other_sessions_using(i).len())
            .unwrap_or(0);
        let uses = InstanceUses {
            // A persistent instance is written by the jobs that use it, not by its own session.
            written: session.written || lifetime == Lifetime::Persistent,
            unfinished_stage_outs: count(outs.len()),
            failed_stage_outs: count(failed),
            other_sessions: count(others),
        };
        removal::check_removal(&uses, hurry)
            .map_err(|keep| Failure::new(Cause::Busy, format!("`{token}` is kept: {keep}")))?;
        let stages = session.stages.clone();
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.ending = true;
        }
        self.end_activations(id);
        for stage in stages {
            self.cancel_stage(stage);
        }
        Ok(Accepted::Wait(Wait::TornDown(id)))
    }
}
