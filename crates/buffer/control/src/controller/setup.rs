//! Setup of sessions: checks, and the lookup of persistent instances.

use std::path::{Component, Path};

use forebay_job_script::{AccessMode, Direction, InstanceRef, InstanceType, Stage, StagePath};
use forebay_units::human;

use super::dispatch::Accepted;
use super::limits;
use super::machine::Controller;
use super::objects::{Session, StageState, Wait, is_replicated};
use super::request::{Failure, Lifetime, Setup, refuse};
use super::session_table::check_may_act;
use crate::messages::{InstanceId, Owner, SessionId, StageId};

/// Limit on the length of a session's token, in bytes.
pub(super) const MAX_TOKEN_LENGTH: usize = 64;

impl Controller {
    pub(super) fn set_up_session(
        &mut self,
        token: String,
        lifetime: Lifetime,
        owner: Owner,
        creator: String,
        setup: Setup,
        public: bool,
    ) -> Result<Accepted, Failure> {
        check_token(&token)?;
        if let Some((id, session)) = self.state.sessions.by_token(&token) {
            check_may_act(owner, session.owner, &session.description())?;
            self.check_same_setup(session, lifetime, &setup)?;
            self.take_over_session(id, creator)?;
            return Ok(Accepted::Wait(Wait::Ready(id)));
        }
        self.check_session_limits(owner, limits::setup_bytes(&setup))?;
        if lifetime == Lifetime::Persistent && setup.instance.as_ref().is_some_and(is_replicated) {
            refuse!(Invalid, "a persistent instance cannot be load-balanced: no job could fill it");
        }
        let persistents = self.persistent_instances(owner, &setup.persistents)?;
        self.check_stages(&setup)?;
        let allocated = match &setup.instance {
            None => None,
            Some(spec) => Some(self.allocate_granules(spec)?),
        };
        if let (Some(spec), Some(allocation)) = (&setup.instance, &allocated) {
            self.check_quotas(owner, spec, allocation.capacity())?;
        }
        // From here on nothing fails: a refused request changes nothing.
        let id = SessionId(self.state.next_id());
        let session =
            Session::new(token.clone(), lifetime, owner, creator, self.date(), setup.clone());
        self.state.usage.begin(id, &session);
        self.state.sessions.insert(id, session);
        if let (Some(spec), Some(allocation)) = (&setup.instance, allocated) {
            self.create_instance(id, spec, allocation, public);
            self.note_usage_instance(id);
        }
        for instance in persistents {
            self.use_instance(id, instance);
        }
        self.note_run(id);
        self.add_stages(id, setup.stages);
        Ok(Accepted::Wait(Wait::Ready(id)))
    }

    /// Refuses a setup that differs from that of an existing session of the same name, except in the
    /// account: a session counts for the account of its first request, and a repeated one may come
    /// when the batch system cannot tell the account.
    fn check_same_setup(
        &self,
        session: &Session,
        lifetime: Lifetime,
        setup: &Setup,
    ) -> Result<(), Failure> {
        let token = &session.token;
        if session.ending {
            refuse!(Busy, "`{token}` is still being torn down; try again");
        }
        let mut requested = setup.clone();
        if let (Some(spec), Some(own)) = (&mut requested.instance, &session.setup.instance) {
            spec.account.clone_from(&own.account);
        }
        if session.setup != requested || session.lifetime != lifetime {
            let end = match session.lifetime {
                Lifetime::Job => "end it first".to_owned(),
                Lifetime::Persistent => {
                    format!("use another name, or `forebay destroy-persistent {token}` first")
                }
            };
            refuse!(Exists, "there is already another {}; {end}", session.description());
        }
        Ok(())
    }

    /// Refuses a session beyond the limits, whose set-up has this many bytes.
    fn check_session_limits(&self, owner: Owner, setup_bytes: u64) -> Result<(), Failure> {
        let sessions = &self.state.sessions;
        let max = self.settings.max_sessions;
        if sessions.len() >= max {
            refuse!(Full, "limit reached: there are {max} sessions");
        }
        self.check_text_limits(owner, setup_bytes)?;
        if owner.uid == 0 || owner.uid == self.settings.operator {
            return Ok(());
        }
        let max = self.settings.max_user_sessions;
        let of_user = sessions.iter().filter(|(_, s)| s.owner.uid == owner.uid);
        if of_user.count() >= max {
            let uid = owner.uid;
            refuse!(Full, "limit reached: user {uid} has {max} sessions; end some first");
        }
        Ok(())
    }

    /// Refuses text of a session beyond the limits on what the sessions of a user, and all, store.
    pub(super) fn check_text_limits(&self, owner: Owner, bytes: u64) -> Result<(), Failure> {
        let sizes = self.state.sessions.text_sizes();
        let is_operator = owner.uid == 0 || owner.uid == self.settings.operator;
        let max = self.settings.max_user_session_bytes;
        if !is_operator && sizes.of_user(owner.uid).saturating_add(bytes) > max {
            refuse!(
                Full,
                "limit reached: the set-ups and stages of user {} would need more than {} in the \
                 controller; end some jobs, or stage whole directories",
                owner.uid,
                human::bytes(max)
            );
        }
        let max = self.settings.max_session_bytes;
        if sizes.total().saturating_add(bytes) > max {
            refuse!(
                Full,
                "limit reached: the set-ups and stages of all jobs need {} in the controller",
                human::bytes(max)
            );
        }
        Ok(())
    }

    /// Adds the stages of a job's script, which wait until they are requested.
    fn add_stages(&mut self, id: SessionId, stages: Vec<Stage>) {
        for directive in stages {
            let Some(instance) = self.stage_instance(id, directive.instance()) else {
                continue;
            };
            for replica in self.replicas_to_fill(instance) {
                let stage = self.add_stage(id, instance, directive.clone());
                self.state.stages.set_replica(stage, replica);
            }
        }
    }

    /// Continues an existing job under the name of another client, unless it is in use.
    fn take_over_session(&mut self, id: SessionId, creator: String) -> Result<(), Failure> {
        let Some(session) = self.state.sessions.get(id) else {
            return Ok(());
        };
        if session.last_creator() == creator || session.lifetime == Lifetime::Persistent {
            return Ok(());
        }
        let token = &session.token;
        let may_run = !self.settings.single_process || self.run_sessions.contains(&id);
        if may_run {
            if !session.activations.is_empty() {
                refuse!(
                    Busy,
                    "job `{token}` is mounted on {}: it runs, or was interrupted while it ran. \
                     Wait for its end; only if it does not run any more, end it with `forebay recover`",
                    session.hosts.join(", ")
                );
            }
            if self.has_stage_in_progress(session) {
                refuse!(Busy, "job `{token}` is being staged; wait until that has ended");
            }
        }
        if let Some(session) = self.state.sessions.get_mut(id) {
            session.runner = Some(creator);
        }
        self.note_run(id);
        Ok(())
    }

    /// Notes that a run uses a session, and forgets sessions that are gone.
    fn note_run(&mut self, id: SessionId) {
        if self.settings.single_process {
            let Controller { state, run_sessions, .. } = self;
            run_sessions.retain(|id| state.sessions.get(*id).is_some());
            run_sessions.insert(id);
        }
    }

    /// Whether a stage of a session has a mover or waits for one.
    pub(super) fn has_stage_in_progress(&self, session: &Session) -> bool {
        let in_progress = |id: &StageId| {
            let stage = self.state.stages.get(*id);
            stage.is_some_and(|stage| stage.state.is_in_progress())
        };
        session.stages.iter().any(in_progress)
    }

    /// Whether a stage-in of a session is still to be requested.
    pub(super) fn has_stage_in_to_request(&self, session: &Session) -> bool {
        let is_waiting = |id: &StageId| {
            let stage = self.state.stages.get(*id);
            stage.is_some_and(|stage| {
                stage.directive.direction == Direction::In && stage.state == StageState::Waiting
            })
        };
        session.stages.iter().any(is_waiting)
    }

    /// Refuses clients other than the one that has set the session up last, if one is given.
    pub(super) fn check_set_up_by(
        &self,
        caller: Owner,
        token: &str,
        creator: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(creator) = creator else {
            return Ok(());
        };
        let (_, session) = self.state.sessions.authorized(token, caller)?;
        if session.last_creator() == creator {
            return Ok(());
        }
        refuse!(Busy, "another run has taken over job `{token}`; a job runs once at a time")
    }

    /// The persistent instances of these names, if `owner` may use them.
    fn persistent_instances(
        &self,
        owner: Owner,
        names: &[String],
    ) -> Result<Vec<InstanceId>, Failure> {
        let mut found = Vec::new();
        for name in names {
            let session = self.state.sessions.by_token(name).map(|(_, s)| s);
            let session = session.filter(|s| s.lifetime == Lifetime::Persistent);
            let instance = session.and_then(|session| {
                let id = session.instance?;
                Some((session, id, self.state.storage.instance(id)?))
            });
            let Some((session, id, instance)) = instance else {
                refuse!(NotFound, "there is no persistent instance `{name}`; create it first");
            };
            if session.ending {
                refuse!(Busy, "the persistent instance `{name}` is being destroyed");
            }
            self.check_not_expired(session)?;
            let mut configurations = self.state.storage.configurations_of(instance);
            let is_for_group =
                configurations.any(|c| c.root_permissions & 0o070 != 0 && c.group == owner.gid);
            if !instance.public && !is_for_group {
                let object = format!("the persistent instance `{name}`");
                check_may_act(owner, session.owner, &object)?;
            }
            found.push(id);
        }
        Ok(found)
    }

    fn check_stages(&self, setup: &Setup) -> Result<(), Failure> {
        let max = self.settings.max_stages;
        if setup.stages.len() > max {
            refuse!(Invalid, "more than {max} stages; stage whole directories instead");
        }
        for stage in &setup.stages {
            self.check_pfs_paths(stage)?;
        }
        let striped = setup.instance.as_ref().is_some_and(|spec| {
            spec.kind == InstanceType::Scratch
                && spec.access.iter().any(|a| a.mode == AccessMode::Striped)
        });
        for stage in &setup.stages {
            let known = match stage.instance() {
                Some(InstanceRef::Job) => striped,
                Some(InstanceRef::LoadBalanced) => {
                    stage.direction == Direction::In
                        && setup.instance.as_ref().is_some_and(is_replicated)
                }
                Some(InstanceRef::Persistent(name)) => setup.persistents.contains(name),
                None => striped || !setup.persistents.is_empty(),
            };
            if !known {
                refuse!(
                    Invalid,
                    "line {}: the stage names an instance that the job does not have",
                    stage.line
                );
            }
        }
        Ok(())
    }

    /// Refuses paths of the parallel file system that are not absolute, or not below one of the
    /// directories from and to which the pool stages.
    pub(super) fn check_pfs_paths(&self, stage: &Stage) -> Result<(), Failure> {
        let line = match stage.line {
            // Requested by a running job.
            0 => String::new(),
            line => format!("line {line}: "),
        };
        for path in [&stage.source, &stage.destination] {
            let StagePath::Pfs(path) = path else { continue };
            if let Err(Failure { cause, reason }) = check_pfs_path(path, &self.settings.pfs_roots) {
                return Err(Failure::new(cause, line + &reason));
            }
        }
        Ok(())
    }
}

fn check_pfs_path(path: &str, roots: &[String]) -> Result<(), Failure> {
    let parsed = Path::new(path);
    if !parsed.is_absolute() {
        refuse!(Invalid, "`{path}` is not an absolute path");
    }
    if roots.is_empty() {
        return Ok(());
    }
    let mut components = parsed.components();
    if components.any(|part| matches!(part, Component::ParentDir)) {
        refuse!(
            Denied,
            "`{path}` contains `..`; this pool stages only below certain directories, so write \
             the path without `..`"
        );
    }
    if !roots.iter().any(|root| parsed.starts_with(root)) {
        refuse!(
            Denied,
            "`{path}` is not below a directory from and to which this pool stages: {}",
            roots.join(", ")
        );
    }
    Ok(())
}

/// Whether a session can have this name: it is a valid name of a directory.
pub fn is_valid_token(token: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let length = 1..=MAX_TOKEN_LENGTH;
    length.contains(&token.len()) && !token.starts_with('.') && token.chars().all(valid)
}

/// Refuses tokens that are not valid directory names.
fn check_token(token: &str) -> Result<(), Failure> {
    if !is_valid_token(token) {
        refuse!(
            Invalid,
            "the name of a session consists of 1 to 64 letters, digits and `_-.`, and \
                      does not begin with a dot"
        );
    }
    Ok(())
}
