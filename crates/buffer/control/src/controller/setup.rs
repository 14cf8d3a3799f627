//! Sessions set up: what is asked for is checked, and persistent instances are looked up.

use forebay_job_script::{AccessMode, Direction, InstanceRef, InstanceType, Stage, StagePath};

use super::dispatch::Accepted;
use super::instances::is_replicated;
use super::state::check_may_act;
use super::*;
use crate::messages::*;

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
        if let Some((id, session)) = self.state.session(&token) {
            check_may_act(owner, session.owner, &format!("session `{token}`"))?;
            return self.set_up_again(id, lifetime, creator, &setup);
        }
        self.has_room_for_session(owner)?;
        if lifetime == Lifetime::Persistent && setup.instance.as_ref().is_some_and(is_replicated) {
            let reason = "a persistent instance cannot be load-balanced: no job could fill it";
            return Err(Failure::new(Cause::Invalid, reason));
        }
        let persistents = self.persistents(owner, &setup.persistents)?;
        self.check_stages(&setup)?;
        let allocated = match &setup.instance {
            None => None,
            Some(spec) => Some(self.allocate_granules(spec)?),
        };
        // From here on nothing fails: a refused request leaves nothing behind.
        let id = SessionId(self.state.next_id());
        let (name, asked) = (token.clone(), setup.clone());
        let session = Session::new(name, lifetime, owner, creator, self.now, asked);
        self.state.sessions.insert(id.0, session);
        if let (Some(spec), Some((pool, shares))) = (&setup.instance, allocated) {
            self.create_instance(id, token, owner, spec, pool, shares, public);
        }
        for instance in persistents {
            self.register_session(id, instance);
        }
        self.add_stages(id, setup.stages);
        Ok(Accepted::Wait(Wait::Ready(id)))
    }

    /// The same is set up again: because an answer was lost, or by somebody who takes the job over.
    fn set_up_again(
        &mut self,
        id: SessionId,
        lifetime: Lifetime,
        creator: String,
        setup: &Setup,
    ) -> Result<Accepted, Failure> {
        let Some(session) = self.state.sessions.get(id.0) else {
            return Ok(Accepted::Wait(Wait::Ready(id)));
        };
        let token = &session.token;
        if session.ending {
            let reason = format!("`{token}` is still being taken down; try again");
            return Err(Failure::new(Cause::Busy, reason));
        }
        if session.setup != *setup || session.lifetime != lifetime {
            let reason = format!("there is another session `{token}` already; end it first");
            return Err(Failure::new(Cause::Exists, reason));
        }
        let other = session.runner.as_ref().unwrap_or(&session.creator) != &creator;
        if other && lifetime == Lifetime::Job {
            self.take_over(id, creator)?;
        }
        Ok(Accepted::Wait(Wait::Ready(id)))
    }

    /// Refuses a session that would be one too many.
    fn has_room_for_session(&self, owner: Owner) -> Result<(), Failure> {
        if self.state.sessions.len() >= self.settings.max_sessions {
            let reason = format!(
                "there are {} sessions, the most there can be",
                self.settings.max_sessions
            );
            return Err(Failure::new(Cause::Full, reason));
        }
        if owner.uid == 0 || owner.uid == self.settings.operator {
            return Ok(());
        }
        let most = self.settings.max_user_sessions;
        let sessions = self.state.sessions.iter();
        let own = sessions.filter(|(_, session)| session.owner.uid == owner.uid);
        if own.count() >= most {
            let reason = format!(
                "user {} has {most} sessions, the most a user may have; end some",
                owner.uid
            );
            return Err(Failure::new(Cause::Full, reason));
        }
        Ok(())
    }

    /// The stages of a job's script, which wait until they are asked for.
    fn add_stages(&mut self, id: SessionId, stages: Vec<Stage>) {
        for what in stages {
            let Some(instance) = self.stage_instance(id, what.instance()) else {
                continue;
            };
            for copy in self.replicas_to_fill(instance) {
                let stage = self.add_stage(id, instance, what.clone(), StageState::Waiting);
                if let Some(stage) = self.state.stages.get_mut(stage.0) {
                    stage.replica = copy;
                }
            }
        }
    }

    /// A job that is there already goes on in another name, unless it is under way.
    fn take_over(&mut self, id: SessionId, creator: String) -> Result<(), Failure> {
        let Some(session) = self.state.sessions.get(id.0) else {
            return Ok(());
        };
        let token = &session.token;
        let staged = |stage: &StageId| {
            let stage = self.state.stages.get(stage.0);
            stage.is_some_and(StageRecord::in_progress)
        };
        // In a pool that is one process's alone whoever mounted it before has ended.
        if !self.settings.single_process && !session.activations.is_empty() {
            let reason = format!(
                "job `{token}` is mounted on {}: it runs, or was interrupted while it ran. Wait for \
                 its end, or have `forebay recover --job-id {token}` end it",
                session.hosts.join(", ")
            );
            return Err(Failure::new(Cause::Busy, reason));
        }
        if !self.settings.single_process && session.stages.iter().any(staged) {
            let reason = format!("job `{token}` is being staged; wait for the end of that");
            return Err(Failure::new(Cause::Busy, reason));
        }
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.runner = Some(creator);
        }
        Ok(())
    }

    /// Refuses who has not set a session up last.
    pub(super) fn check_set_up_by(
        &self,
        caller: Owner,
        token: &str,
        creator: &str,
    ) -> Result<(), Failure> {
        let (_, session) = self.state.authorized_session(token, caller)?;
        if session.runner.as_ref().unwrap_or(&session.creator) == creator {
            return Ok(());
        }
        let reason = format!("another run has taken job `{token}` over; it runs once at a time");
        Err(Failure::new(Cause::Busy, reason))
    }

    /// The persistent instances of these names, if `owner` may use them.
    fn persistents(&self, owner: Owner, names: &[String]) -> Result<Vec<InstanceId>, Failure> {
        let mut found = Vec::new();
        for name in names {
            let session = self
                .state
                .session(name)
                .filter(|(_, s)| s.lifetime == Lifetime::Persistent);
            let session = session.and_then(|(_, s)| Some((s, s.instance?)));
            let instance =
                session.and_then(|(s, id)| Some((s, id, self.state.instances.get(id.0)?)));
            let Some((session, id, instance)) = instance else {
                let reason = format!("there is no persistent instance `{name}`; create it first");
                return Err(Failure::new(Cause::NotFound, reason));
            };
            if session.ending {
                let reason = format!("the persistent instance `{name}` is being destroyed");
                return Err(Failure::new(Cause::Busy, reason));
            }
            let group = owner.gid == session.owner.gid;
            if !instance.public && !group {
                check_may_act(
                    owner,
                    session.owner,
                    &format!("the persistent instance `{name}`"),
                )?;
            }
            found.push(id);
        }
        Ok(found)
    }

    fn check_stages(&self, setup: &Setup) -> Result<(), Failure> {
        if setup.stages.len() > self.settings.max_stages {
            let reason = format!(
                "more than {} stages; stage directories",
                self.settings.max_stages
            );
            return Err(Failure::new(Cause::Invalid, reason));
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
                let reason = format!(
                    "line {}: the stage names an instance that the job does not have",
                    stage.line
                );
                return Err(Failure::new(Cause::Invalid, reason));
            }
        }
        Ok(())
    }

    /// Refuses paths of the parallel file system that are not absolute, or not below the
    /// directories for it.
    pub(super) fn check_pfs_paths(&self, stage: &Stage) -> Result<(), Failure> {
        let allowed = &self.settings.pfs_roots;
        for path in [&stage.source, &stage.destination] {
            let StagePath::Pfs(path) = path else { continue };
            let path = std::path::Path::new(path);
            if !path.is_absolute() {
                let reason = format!("`{}` is no absolute path", path.display());
                return Err(Failure::new(Cause::Invalid, reason));
            }
            if allowed.is_empty() {
                continue;
            }
            let plain = path
                .components()
                .all(|part| !matches!(part, std::path::Component::ParentDir));
            let shown = path.display();
            let wrong = if !plain {
                format!(
                    "`{shown}` has `..` in it, and this pool stages only from and to certain \
                         directories; write the path without `..`"
                )
            } else if !allowed.iter().any(|directory| path.starts_with(directory)) {
                let allowed = allowed.join(", ");
                format!(
                    "`{shown}` is not below a directory from and to which this pool stages: \
                         {allowed}"
                )
            } else {
                continue;
            };
            let line = match stage.line {
                // Not asked for by a script.
                0 => String::new(),
                line => format!("line {line}: "),
            };
            return Err(Failure::new(Cause::Denied, line + &wrong));
        }
        Ok(())
    }
}

/// Whether a session may be called so: its name becomes that of a directory.
fn check_token(token: &str) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if token.is_empty() || token.len() > 64 || token.starts_with('.') || !token.chars().all(plain) {
        let reason =
            "a session's name has 1 to 64 letters, digits and `_-.` and does not begin with a dot";
        return Err(Failure::new(Cause::Invalid, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_job_script::{BufferPath, StageKind};

    #[test]
    fn paths_that_are_not_staged_are_refused_for_what_is_wrong_with_them() {
        let settings = Settings {
            pfs_roots: vec!["/lus/a".into(), "/lus/b".into()],
            ..Settings::default()
        };
        let controller = Controller::restore(settings, Vec::new()).unwrap();
        let refused = |path: &str, line| {
            let stage = Stage {
                direction: Direction::In,
                kind: StageKind::File,
                source: StagePath::Pfs(path.into()),
                destination: StagePath::Buffer(BufferPath {
                    instance: InstanceRef::Job,
                    path: "x".into(),
                }),
                line,
            };
            let failure = controller.check_pfs_paths(&stage).err();
            failure
                .map(|failure| failure.to_string())
                .unwrap_or_default()
        };
        assert_eq!(refused("/lus/a/in", 3), "");
        let told = refused("/lus/c/in", 3);
        assert!(
            told.starts_with("line 3: `/lus/c/in` is not below a"),
            "{told}"
        );
        assert!(told.ends_with("/lus/a, /lus/b"), "{told}");
        let told = refused("/lus/a/../a/in", 0);
        assert!(
            told.starts_with("`/lus/a/../a/in` has `..` in it"),
            "{told}"
        );
        assert!(refused("in", 0).contains("no absolute path"));
    }
}
