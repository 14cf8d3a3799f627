//! The steps of a job's life, one after the other, and what is done when one fails.

use std::time::Instant;

use forebay_job_script::{Direction, JobScript};
use forebay_protocol::staging::{JOB_VARIABLE, SOCKET_VARIABLE};

use super::wait::{self, Interrupt, Observer};
use super::{OnFailure, PoolHandle, RunError, RunOptions, RunPhase, process, script};
use forebay_control::controller::{
    Cause, Failure, InstanceSpec, Lifetime, Request, Setup, StageState, StageStatus, mount_variable,
};
use forebay_control::messages::StageProgress;
use forebay_daemon::ControllerClient;
use forebay_daemon::job_api::JobApi;

/// A job's life in a pool, as far as it has come.
pub(super) struct JobLife<'a> {
    pool: &'a PoolHandle,
    token: &'a str,
    /// The name in which this run makes its session; no other run has it.
    creator: String,
    /// Whose the session is, once that is known.
    standing: Option<Standing>,
    observer: &'a mut dyn Observer,
    interrupt: &'a Interrupt,
    phases: Vec<RunPhase>,
}

/// What a job's token stands for in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// No job of this user.
    Nothing,
    /// The session that this run has made.
    Own,
    /// A session that was there before; it may hold results.
    Earlier,
}

/// How a step ended that did not succeed.
pub(super) enum StepError {
    Failed(Failure),
    Interrupted,
}

/// The step that stopped a job's life, and how it ended.
type Stopped = (&'static str, StepError);

impl<'a> JobLife<'a> {
    /// One that has not begun.
    pub fn new(
        pool: &'a PoolHandle,
        token: &'a str,
        observer: &'a mut dyn Observer,
        interrupt: &'a Interrupt,
    ) -> JobLife<'a> {
        JobLife {
            pool,
            token,
            creator: script::new_creator(),
            standing: None,
            observer,
            interrupt,
            phases: Vec::new(),
        }
    }

    /// Where time went.
    pub fn into_phases(self) -> Vec<RunPhase> {
        self.phases
    }

    /// From the set-up to the end. Returns the script's exit status, and whether results are kept.
    pub fn lead(
        &mut self,
        script: &JobScript,
        options: &RunOptions,
    ) -> Result<(i32, bool), RunError> {
        self.create_persistents(script)?;
        self.prepare(script, options)
            .map_err(|(step, stop)| self.abandon(step, stop))?;
        let Some(code) = self.run_script(script, options)? else {
            return Err(RunError::Interrupted(self.token.to_owned(), true));
        };
        let kept = self
            .finish(code, options.on_failure)
            .map_err(|(step, stop)| self.keep(step, stop))?;
        if !kept {
            self.destroy_persistents(script)?;
        }
        Ok((code, kept))
    }

    /// All that is done before the script runs.
    fn prepare(&mut self, script: &JobScript, options: &RunOptions) -> Result<(), Stopped> {
        let token = || self.token.to_owned();
        let set_up = Request::Setup {
            token: token(),
            owner: self.control().caller(),
            creator: self.creator.clone(),
            setup: Setup::from_script(script),
        };
        let stage_in = Request::StageIn { token: token() };
        self.step("set up", set_up, None)?;
        self.standing = self.look().ok();
        if self.standing == Some(Standing::Earlier) {
            self.observer.note(&format!(
                "job {} is in the pool already, and goes on with the data it has there",
                self.token
            ));
        }
        if script.stages(Direction::In).next().is_some() {
            self.step("stage in", stage_in, Some(Direction::In))?;
        }
        let hosts = self
            .hosts(options)
            .map_err(|failure| ("mount", StepError::Failed(failure)))?;
        if let PoolHandle::Shared(remote) = self.pool
            && !remote
                .host()
                .is_some_and(|own| hosts.iter().any(|host| host == own))
        {
            self.observer.warning(&format!(
                "the script runs on this host, but its buffer is mounted on {} only",
                hosts.join(", ")
            ));
        }
        let mount = Request::Activate {
            token: self.token.to_owned(),
            hosts,
            creator: Some(self.creator.clone()),
        };
        self.step("mount", mount, None)
    }

    /// All that is done after the script has ended with `code`, but for persistent instances.
    /// Returns whether its results are kept in the pool.
    fn finish(&mut self, code: i32, on_failure: OnFailure) -> Result<bool, Stopped> {
        self.step("unmount", self.leave(), None)?;
        let failed = code != 0;
        let kept = match on_failure {
            OnFailure::StageOut => false,
            OnFailure::Keep => failed,
            OnFailure::Discard => failed && self.standing != Some(Standing::Own),
        };
        if kept {
            return Ok(true);
        }
        let discard = failed && on_failure == OnFailure::Discard;
        if !discard && self.has_stages_out() {
            let token = self.token.to_owned();
            self.step(
                "stage out",
                Request::StageOut { token },
                Some(Direction::Out),
            )?;
        }
        self.step("tear down", self.end(discard), None)?;
        Ok(false)
    }

    /// The job is to be unmounted, unless another run has taken it over.
    fn leave(&self) -> Request {
        Request::Deactivate {
            token: self.token.to_owned(),
            creator: Some(self.creator.clone()),
        }
    }

    /// The job is to be taken down, unless another run has taken it over.
    fn end(&self, hurry: bool) -> Request {
        Request::Teardown {
            token: self.token.to_owned(),
            creator: Some(self.creator.clone()),
            hurry,
        }
    }

    fn control(&self) -> &'a dyn ControllerClient {
        self.pool.controller()
    }

    fn hosts(&self, options: &RunOptions) -> Result<Vec<String>, Failure> {
        if !options.hosts.is_empty() {
            return Ok(options.hosts.clone());
        }
        let own = self.pool.host().map(|host| vec![host.to_owned()]);
        own.ok_or_else(|| {
            let reason = "there is no agent of the pool on this host; start one, or name hosts \
                          that have one with --hosts";
            Failure::new(Cause::NotFound, reason)
        })
    }

    /// Whether anything is to be staged out that is not, by the script or by what ran in it.
    fn has_stages_out(&self) -> bool {
        let left = |stage: &StageStatus| {
            stage.token == self.token
                && stage.direction == Direction::Out
                && !matches!(stage.state, StageState::Done | StageState::Cancelled)
        };
        // If in doubt, yes.
        self.control()
            .status()
            .map_or(true, |status| status.stages.iter().any(left))
    }

    /// Makes the persistent instances that the script asks for.
    fn create_persistents(&mut self, script: &JobScript) -> Result<(), RunError> {
        for created in &script.creates {
            let spec = InstanceSpec {
                capacity: created.capacity,
                kind: forebay_job_script::InstanceType::Scratch,
                access: created.access.clone(),
                pool: created.pool.clone(),
                preference: forebay_policy::allocate::Preference::Bandwidth,
                modifiers: Default::default(),
            };
            let request = Request::CreatePersistent {
                name: created.name.clone(),
                owner: self.control().caller(),
                spec,
                public: false,
            };
            self.control()
                .request(request)
                .map_err(|failure| RunError::Step("create_persistent", failure))?;
        }
        Ok(())
    }

    /// Destroys the persistent instances that the script wants destroyed.
    fn destroy_persistents(&mut self, script: &JobScript) -> Result<(), RunError> {
        for destroyed in &script.destroys {
            let request = Request::DestroyPersistent {
                name: destroyed.name.clone(),
                hurry: destroyed.hurry,
            };
            self.control()
                .request(request)
                .map_err(|failure| RunError::Step("destroy_persistent", failure))?;
        }
        Ok(())
    }

    /// Asks for one step and waits, showing progress.
    fn step(
        &mut self,
        name: &'static str,
        request: Request,
        direction: Option<Direction>,
    ) -> Result<(), Stopped> {
        self.observer.phase(name);
        let begun = Instant::now();
        let outcome = wait::await_step(
            self.control(),
            request,
            |stage| stage.token == self.token,
            self.interrupt,
            self.observer,
        );
        let mut moved = StageProgress::default();
        if let (Some(direction), Ok(status)) = (direction, self.control().status()) {
            moved = wait::sum_progress(&status, self.token, direction);
        }
        self.phases.push(RunPhase {
            name,
            time: begun.elapsed(),
            moved,
        });
        outcome.map_err(|stop| (name, stop))
    }

    /// Whose the job's session is.
    fn look(&self) -> Result<Standing, Failure> {
        let status = self.control().status()?;
        let caller = self.control().caller().uid;
        let found = status
            .sessions
            .iter()
            .filter(|session| session.lifetime == Lifetime::Job && session.token == self.token)
            .find(|session| session.owner.uid == caller || caller == 0);
        Ok(match found {
            None => Standing::Nothing,
            Some(session) if session.creator == self.creator => Standing::Own,
            Some(_) => Standing::Earlier,
        })
    }

    /// Ends a job whose script has not run. A session that this run has made can have no results
    /// and is taken down; one that was there before is unmounted at most, and keeps its data. One
    /// that another run has taken over meanwhile is left to that.
    fn abandon(&mut self, step: &'static str, stop: StepError) -> RunError {
        let token = self.token.to_owned();
        let standing = match self.standing {
            Some(standing) => Ok(standing),
            None => self.look(),
        };
        let done = match &standing {
            Ok(Standing::Nothing) => Ok(()),
            Ok(Standing::Own) => self.control().request(self.end(true)).map(drop),
            Ok(Standing::Earlier) if matches!(step, "mount" | "run") => {
                self.control().request(self.leave()).map(drop)
            }
            Ok(Standing::Earlier) => Ok(()),
            Err(failure) => Err(failure.clone()),
        };
        if done.as_ref().is_err_and(|f| f.cause == Cause::Busy) {
            // Another run has the job: nothing of this one is left.
            return match stop {
                StepError::Failed(failure) => RunError::Step(step, failure),
                StepError::Interrupted => RunError::Interrupted(token, false),
            };
        }
        if let Err(failure) = &done {
            self.observer.warning(&format!(
                "what was set up for job {token} could not be taken down: {failure}"
            ));
        }
        match (stop, standing) {
            (StepError::Failed(failure), Ok(Standing::Earlier)) => {
                RunError::ExistingJobKept(step, failure, token)
            }
            (StepError::Failed(failure), _) if done.is_err() => {
                RunError::MayRemain(step, failure, token)
            }
            (StepError::Failed(failure), _) => RunError::Step(step, failure),
            (StepError::Interrupted, standing) => {
                let kept = done.is_err() || matches!(standing, Ok(Standing::Earlier));
                RunError::Interrupted(token, kept)
            }
        }
    }

    /// Why the job did not go through after its script has run. What there is of it is kept, unless
    /// somebody else has taken it down.
    fn keep(&self, step: &'static str, stop: StepError) -> RunError {
        let token = self.token.to_owned();
        match stop {
            StepError::Failed(failure) if matches!(self.look(), Ok(Standing::Nothing)) => {
                RunError::Step(step, failure)
            }
            StepError::Failed(failure) => RunError::ResultsKept(step, failure, token),
            StepError::Interrupted => RunError::Interrupted(token, true),
        }
    }

    fn run_script(
        &mut self,
        script: &JobScript,
        options: &RunOptions,
    ) -> Result<Option<i32>, RunError> {
        self.observer.phase("run");
        let begun = Instant::now();
        let paths = self.control().mount_variables(self.token);
        let mut environment = paths.map_err(|failure| {
            let reason = format!("the paths of job {} are not known: {failure}", self.token);
            let failure = Failure::new(failure.cause, reason);
            self.abandon("run", StepError::Failed(failure))
        })?;
        // A persistent instance is known by the name of its striped view.
        if let Some(job) = script.job() {
            environment.retain(|(name, _)| {
                !name.starts_with("DW_JOB_")
                    || job
                        .access
                        .iter()
                        .any(|access| *name == mount_variable(&job.kind, access.mode, None))
            });
        }
        environment.push((JOB_VARIABLE.to_owned(), self.token.to_owned()));
        // Ends before the job's end is staged: from then on nothing can be added to that.
        let calls = match self.pool {
            PoolHandle::Embedded(pool) => {
                JobApi::open(pool.asker(), pool.directory(), self.token).map(Some)
            }
            // The agents of the job's hosts answer there, as long as the job is mounted.
            PoolHandle::Shared(remote) => {
                let socket = remote.job_api_socket().display().to_string();
                environment.push((SOCKET_VARIABLE.to_owned(), socket));
                Ok(None)
            }
        };
        let calls = calls.map_err(|error| {
            let reason = format!("the socket for the job's own staging cannot be made: {error}");
            let failure = Failure::new(Cause::Failed, reason);
            self.abandon("run", StepError::Failed(failure))
        })?;
        environment.extend(calls.as_ref().map(JobApi::variable));
        let started = process::JobProcess::start(&options.script, &options.arguments, &environment);
        let mut job = match started {
            Ok(job) => job,
            Err(error) => {
                let stop = StepError::Failed(Failure::new(Cause::Failed, error.to_string()));
                return Err(match self.abandon("run", stop) {
                    RunError::Step(..) => RunError::ScriptNotStarted(options.script.clone(), error),
                    left => left,
                });
            }
        };
        let code = job.wait(self.interrupt).map_err(|error| {
            let failure = Failure::new(Cause::Failed, format!("waiting for the script: {error}"));
            RunError::ResultsKept("run", failure, self.token.to_owned())
        })?;
        self.phases.push(RunPhase {
            name: "run",
            time: begun.elapsed(),
            moved: StageProgress::default(),
        });
        Ok(code)
    }
}
