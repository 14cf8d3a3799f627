//! Activation of sessions: mounting and unmounting on compute nodes.

use std::collections::BTreeSet;

use forebay_job_script::{AccessMode, Direction, InstanceType};

use super::dispatch::Accepted;
use super::machine::Controller;
use super::objects::{Activation, Mount, MountState, Session, StageState, Wait};
use super::request::{Cause, Failure, refuse};
use super::step_scope::StepScope;
use crate::messages::{ActivationId, ConfigurationId, InstanceId, Owner, Peer, SessionId};

impl Controller {
    pub(super) fn activate_session(
        &mut self,
        caller: Owner,
        token: &str,
        hosts: Vec<String>,
    ) -> Result<Accepted, Failure> {
        let (id, session) = self.usable_session(token, caller)?;
        if hosts.is_empty() {
            refuse!(Invalid, "no compute node is named to mount on");
        }
        self.check_hosts_reported(&hosts)?;
        if self.has_stage_in_progress(&session) {
            refuse!(Busy, "`{token}` is still being staged; wait until that has ended");
        }
        if !session.written && self.has_stage_in_to_request(&session) {
            refuse!(
                Busy,
                "the stage-in of `{token}` was not requested; request it, and mount then"
            );
        }
        let activations = match session.activations.is_empty() {
            true => self.add_activations(id, &session, &hosts),
            false => {
                self.add_hosts(&session, &hosts)?;
                session.activations.clone()
            }
        };
        self.reopen_stage_outs(&session);
        if let Some(session) = self.state.sessions.get_mut(id) {
            session.written = true;
            session.hosts = hosts;
        }
        Ok(Accepted::Wait(Wait::Mounted(activations)))
    }

    /// Adds compute nodes to the activations of a session. Nodes that failed try again.
    fn add_hosts(&mut self, session: &Session, hosts: &[String]) -> Result<(), Failure> {
        let is_ending = |id: &ActivationId| {
            let activation = self.state.sessions.activation(*id);
            activation.is_some_and(|activation| activation.ending.is_some())
        };
        if session.activations.iter().any(is_ending) {
            refuse!(Busy, "`{}` is still being unmounted; try again", session.token);
        }
        for id in &session.activations {
            self.drop_unknown_hosts(*id, hosts);
            for host in hosts {
                self.request_mount(*id, host);
            }
        }
        Ok(())
    }

    /// Compute nodes that an earlier request named and that do not exist are no longer waited for.
    fn drop_unknown_hosts(&mut self, id: ActivationId, wanted: &[String]) {
        let wanted: BTreeSet<&String> = wanted.iter().collect();
        let is_unknown = |mount: &Mount| {
            mount.state == MountState::Requested
                && !wanted.contains(&mount.host)
                && !self.contacts.has_reported(&Peer::ComputeNode(mount.host.clone()))
        };
        let mounts = self.state.sessions.mounts.of(id).filter(|(_, mount)| is_unknown(mount));
        let unknown: Vec<String> = mounts.map(|(_, mount)| mount.host.clone()).collect();
        for host in unknown {
            self.state.sessions.mounts.remove(id, &host);
        }
    }

    /// Has a compute node mount an activation, unless it does so already.
    fn request_mount(&mut self, id: ActivationId, host: &str) {
        let generation = self.new_mount_generation(id, host);
        let mounts = &mut self.state.sessions.mounts;
        match mounts.get(id, host).map(|mount| &mount.state) {
            Some(MountState::Requested | MountState::Mounted(_)) => {}
            Some(MountState::Failed(_)) => {
                mounts.set_state(id, host, MountState::Requested);
                mounts.set_generation(id, host, generation);
                if let Some(Some(replica)) = mounts.replica_mut(id, host) {
                    replica.failed.clear();
                }
            }
            None => {
                let host = host.to_owned();
                let state = MountState::Requested;
                mounts.insert(id, Mount { host, state, generation, replica: None });
            }
        }
    }

    /// Adds an activation of each configuration that a session uses.
    fn add_activations(
        &mut self,
        session: SessionId,
        row: &Session,
        hosts: &[String],
    ) -> Vec<ActivationId> {
        let mut activations = Vec::new();
        for configuration in &row.configurations {
            let Some(mount) = self.mount_path(row, *configuration) else {
                continue;
            };
            let activation = Activation::new(session, *configuration, mount);
            let id = ActivationId(self.state.next_id());
            self.state.sessions.add_activation(id, activation);
            for host in hosts {
                self.request_mount(id, host);
            }
            activations.push(id);
        }
        activations
    }

    /// Lets completed stage-outs of a session run again, and those that had nothing to move: they
    /// have not moved what its job writes from now on.
    fn reopen_stage_outs(&mut self, session: &Session) {
        for id in &session.stages {
            let stage = self.state.stages.get(*id);
            if stage.is_some_and(|stage| {
                stage.directive.direction == Direction::Out
                    && (stage.state == StageState::Done
                        || stage.directive.line > 0 && stage.without_source > 0)
            }) {
                self.state.stages.reopen(*id);
            }
        }
    }

    /// Refuses compute nodes that have not reported for so long that they will hardly mount.
    pub(super) fn check_hosts_reported(&self, hosts: &[String]) -> Result<(), Failure> {
        let max_silence_ms = self.settings.host_dead_after_ms;
        let is_silent = |host: &&String| {
            let peer = Peer::ComputeNode((*host).clone());
            self.silence_ms(&peer) > max_silence_ms
        };
        // Each node is named once, also if several activations wait for it.
        let silent = hosts.iter().filter(is_silent);
        let silent: BTreeSet<String> = silent.map(|host| format!("`{host}`")).collect();
        if silent.is_empty() {
            return Ok(());
        }
        refuse!(
            NotFound,
            "no agent of {} has reported for {} s; start it there, or name other hosts",
            Vec::from_iter(silent).join(", "),
            max_silence_ms / 1000
        )
    }

    /// The session with this token, if `caller` may act for it and it can be used.
    pub(super) fn usable_session(
        &self,
        token: &str,
        caller: Owner,
    ) -> Result<(SessionId, Session), Failure> {
        let (id, session) = self.state.sessions.authorized(token, caller)?;
        self.check_usable(session)?;
        Ok((id, session.clone()))
    }

    /// Refuses a session that is ending or whose instances cannot be used.
    pub(super) fn check_usable(&self, session: &Session) -> Result<(), Failure> {
        let token = &session.token;
        if session.ending {
            refuse!(Busy, "`{token}` is being torn down");
        }
        for id in self.instances_of(session) {
            let instance = self.state.storage.instance(id);
            if let Some(reason) = instance.and_then(|instance| instance.broken.clone()) {
                return Err(Failure::new(Cause::Failed, reason));
            }
            if !self.state.storage.is_ready(id) {
                refuse!(Busy, "`{token}` is not set up yet; wait until it is");
            }
        }
        Ok(())
    }

    /// The instances that a session uses, in ascending order.
    pub(super) fn instances_of(&self, session: &Session) -> Vec<InstanceId> {
        let configurations = session.configurations.iter();
        let configurations = configurations.filter_map(|id| self.state.storage.configuration(*id));
        let instances: BTreeSet<InstanceId> = configurations.map(|c| c.instance).collect();
        instances.into_iter().collect()
    }

    /// The mount point of a configuration on a session's compute nodes; ends with `/`.
    pub(super) fn mount_path(&self, session: &Session, id: ConfigurationId) -> Option<String> {
        let configuration = self.state.storage.configuration(id)?;
        let instance = self.state.storage.instance(configuration.instance)?;
        let mode = match (&configuration.kind, configuration.mode) {
            (InstanceType::Cache { .. }, AccessMode::LoadBalanced) => "ldbal_cache",
            (InstanceType::Cache { .. }, AccessMode::Striped | AccessMode::Private) => {
                "striped_cache"
            }
            (InstanceType::Scratch, AccessMode::Private) => "private",
            (InstanceType::Scratch, AccessMode::LoadBalanced) => "ldbalance",
            (InstanceType::Scratch, AccessMode::Striped) => "ss",
        };
        let (root, token) = (&self.settings.mount_root, &session.token);
        Some(match session.instance == Some(configuration.instance) {
            true => format!("{root}/{token}/{mode}/"),
            false => format!("{root}/{token}/{}_{mode}/", instance.label),
        })
    }

    pub(super) fn deactivate_session(
        &mut self,
        caller: Owner,
        token: &str,
    ) -> Result<Accepted, Failure> {
        let (_, session) = self.state.sessions.authorized(token, caller)?;
        let activations = session.activations.clone();
        self.end_activations(&activations);
        Ok(Accepted::Wait(Wait::Unmounted(activations)))
    }

    /// Has activations unmounted on all compute nodes.
    pub(super) fn end_activations(&mut self, activations: &[ActivationId]) {
        for id in activations {
            let activation = self.state.sessions.activation(*id);
            let mounted = activation.is_some_and(|activation| activation.ending.is_none());
            if let (true, Some(activation)) = (mounted, self.state.sessions.activation_mut(*id)) {
                activation.ending = Some(self.now);
            }
        }
    }

    /// Removes activations that all compute nodes have unmounted.
    pub(super) fn remove_ended_activations(&mut self, scope: StepScope) {
        for id in scope.activations(&self.state) {
            let sessions = &mut self.state.sessions;
            let is_ending = sessions.activation(id).is_some_and(|row| row.ending.is_some());
            if is_ending && sessions.mounts.counts(id).total() == 0 {
                sessions.remove_activation(id);
            }
        }
    }
}
