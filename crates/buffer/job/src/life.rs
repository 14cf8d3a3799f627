//! The steps of a job's life in order, and the clean-up when one fails.

use std::time::Instant;

use forebay_control::controller::{Cause, Failure, Lifetime, Request, mount_variable};
use forebay_control::messages::StageProgress;
use forebay_daemon::ControllerClient;
use forebay_job_script::{Direction, JobScript};
use forebay_units::human;

use crate::advice::JobInPool;
use crate::error::{Kept, RunError};
use crate::options::{OnFailure, RunOptions, RunPhase};
use crate::pool::PoolHandle;
use crate::process::JobProcess;
use crate::running::new_creator;
use crate::script;
use crate::wait::{Interrupt, Observer, StepError, await_step};

/// The life of one job in a pool.
pub(crate) struct JobLife<'a> {
    pool: &'a PoolHandle,
    token: &'a str,
    job: &'a JobInPool,
    /// The unique name under which this run sets up its session.
    creator: String,
    /// The session that the token names, once that is known.
    session: Option<SessionOrigin>,
    observer: &'a mut dyn Observer,
    interrupt: &'a Interrupt,
    phases: Vec<RunPhase>,
}

/// The session that a job's token names in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionOrigin {
    /// There is none of this user.
    None,
    /// This run has set it up.
    Own,
    /// It was there before, and may hold results.
    Earlier,
}

/// The step that failed, and the reason.
type FailedStep = (&'static str, StepError);

impl<'a> JobLife<'a> {
    /// A life before its first step.
    pub fn new(
        pool: &'a PoolHandle,
        job: &'a JobInPool,
        observer: &'a mut dyn Observer,
        interrupt: &'a Interrupt,
    ) -> JobLife<'a> {
        JobLife {
            pool,
            token: &job.token,
            job,
            creator: new_creator(),
            session: None,
            observer,
            interrupt,
            phases: Vec::new(),
        }
    }

    /// The steps so far.
    pub fn into_phases(self) -> Vec<RunPhase> {
        self.phases
    }

    /// All steps, from set-up to tear-down. Returns the script's exit status, and whether results
    /// are kept.
    pub fn run(
        &mut self,
        script: &JobScript,
        options: &RunOptions,
    ) -> Result<(i32, bool), RunError> {
        self.create_persistents(script, options.account.as_deref())?;
        self.prepare(script, options).map_err(|(step, error)| self.abandon(step, error))?;
        let Some(code) = self.run_script(script, options)? else {
            return Err(self.interrupt.error(self.job.clone(), self.kept()));
        };
        let kept = self.finish(code, options.on_failure).map_err(|(step, error)| {
            if code != 0 {
                self.observer.note(&format!("the script ended with status {code}"));
            }
            self.keep_results(step, error)
        })?;
        if !kept {
            self.destroy_persistents(script)?;
        }
        Ok((code, kept))
    }

    /// The steps before the script runs.
    fn prepare(&mut self, script: &JobScript, options: &RunOptions) -> Result<(), FailedStep> {
        let token = || self.token.to_owned();
        let mut setup = script::setup_of(script).map_err(|error| {
            let failure = Failure::new(Cause::Invalid, error.to_string());
            ("set up", StepError::Failed(failure))
        })?;
        if let Some(instance) = &mut setup.instance {
            instance.account = options.account.clone();
        }
        let set_up = Request::Setup {
            token: token(),
            owner: self.client().caller(),
            creator: self.creator.clone(),
            setup,
        };
        let stage_in = Request::StageIn { token: token() };
        self.step("set up", set_up, None)?;
        self.session = self.session_origin().ok();
        if self.session == Some(SessionOrigin::Earlier) {
            self.observer.note(&format!(
                "job {} is in the pool already, and goes on with the data it has there",
                self.token
            ));
        }
        if script.stages(Direction::In).next().is_some() {
            self.step("stage in", stage_in, Some(Direction::In))?;
        }
        let hosts = self.hosts(options).map_err(|failure| ("mount", StepError::Failed(failure)))?;
        let own = self.client().host();
        if matches!(self.pool, PoolHandle::Shared(_))
            && !own.is_some_and(|own| hosts.iter().any(|host| host == own))
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

    /// The steps after the script has ended with `code`, up to tear-down. Returns whether its
    /// results are kept in the pool.
    fn finish(&mut self, code: i32, on_failure: OnFailure) -> Result<bool, FailedStep> {
        self.step("unmount", self.unmount_request(), None)?;
        let failed = code != 0;
        let kept = match on_failure {
            OnFailure::StageOut => false,
            OnFailure::Keep => failed,
            OnFailure::Discard => failed && self.session != Some(SessionOrigin::Own),
        };
        if kept {
            return Ok(true);
        }
        let discard = failed && on_failure == OnFailure::Discard;
        if !discard && self.has_stages_out() {
            let token = self.token.to_owned();
            self.step("stage out", Request::StageOut { token }, Some(Direction::Out))?;
        }
        self.step("tear down", self.tear_down_request(discard), None)?;
        Ok(false)
    }

    /// Unmounts the job, unless another run has taken it over.
    fn unmount_request(&self) -> Request {
        Request::Deactivate { token: self.token.to_owned(), creator: Some(self.creator.clone()) }
    }

    /// Tears the job down, unless another run has taken it over.
    fn tear_down_request(&self, hurry: bool) -> Request {
        Request::Teardown {
            token: self.token.to_owned(),
            creator: Some(self.creator.clone()),
            hurry,
        }
    }

    fn client(&self) -> &'a ControllerClient {
        self.pool.controller()
    }

    /// The compute nodes to mount the job on.
    fn hosts(&self, options: &RunOptions) -> Result<Vec<String>, Failure> {
        if !options.hosts.is_empty() {
            return Ok(options.hosts.clone());
        }
        let own = self.client().host().map(|host| vec![host.to_owned()]);
        own.ok_or_else(|| {
            let reason = "there is no agent of the pool on this host; start one, or name hosts \
                          that have one with --hosts";
            Failure::new(Cause::NotFound, reason)
        })
    }

    /// Whether any stage-out is still to be done, of the script or of its processes.
    fn has_stages_out(&self) -> bool {
        // If in doubt, yes.
        self.client()
            .job_status(self.token)
            .map_or(true, |status| status.has_stages_out(self.token))
    }

    /// The data that an interrupted script leaves in the pool.
    fn kept(&self) -> Kept {
        if self.has_stages_out() { Kept::Data } else { Kept::Space }
    }

    /// Creates the persistent instances that the script names.
    fn create_persistents(
        &mut self,
        script: &JobScript,
        account: Option<&str>,
    ) -> Result<(), RunError> {
        for created in &script.creates {
            let mut spec = script::persistent_spec(created)?;
            spec.account = account.map(str::to_owned);
            let request = Request::CreatePersistent {
                name: created.name.clone(),
                owner: self.client().caller(),
                spec,
                public: false,
            };
            self.request("create_persistent", request)?;
            self.note_created(&created.name);
        }
        Ok(())
    }

    /// Tells the user of a persistent instance that the script has created, or that was there.
    fn note_created(&mut self, name: &str) {
        // A failed query does not fail the job.
        let Ok(status) = self.client().job_status(name) else {
            return;
        };
        if let Some(instance) = status.persistent_instance(name) {
            let capacity = human::bytes(instance.capacity.0);
            self.observer
                .note(&format!("persistent instance `{name}` of {capacity} is in the pool"));
        }
    }

    /// Destroys the persistent instances that the script names.
    fn destroy_persistents(&mut self, script: &JobScript) -> Result<(), RunError> {
        for destroyed in &script.destroys {
            let request =
                Request::DestroyPersistent { name: destroyed.name.clone(), hurry: destroyed.hurry };
            self.request("destroy_persistent", request)?;
        }
        Ok(())
    }

    /// Makes a request that is answered soon.
    fn request(&self, step: &'static str, request: Request) -> Result<(), RunError> {
        let outcome = self.client().request(request);
        outcome.map(drop).map_err(|failure| RunError::Step(step, failure))
    }

    /// Requests one step and waits for it, showing its progress.
    fn step(
        &mut self,
        name: &'static str,
        request: Request,
        direction: Option<Direction>,
    ) -> Result<(), FailedStep> {
        self.observer.phase(name);
        let started = Instant::now();
        let outcome = await_step(
            self.client(),
            self.token,
            request,
            |stage| stage.token == self.token,
            self.interrupt,
            self.observer,
        );
        let mut moved = StageProgress::default();
        if let (Some(direction), Ok(status)) = (direction, self.client().job_status(self.token)) {
            moved = status.staged(self.token, direction);
        }
        self.phases.push(RunPhase { name, time: started.elapsed(), moved });
        outcome.map_err(|error| (name, error))
    }

    /// The session that the job's token names.
    fn session_origin(&self) -> Result<SessionOrigin, Failure> {
        let status = self.client().job_status(self.token)?;
        let caller = self.client().caller().uid;
        let found = status
            .sessions
            .iter()
            .filter(|session| session.lifetime == Lifetime::Job && session.token == self.token)
            .find(|session| session.owner.uid == caller || caller == 0);
        Ok(match found {
            None => SessionOrigin::None,
            Some(session) if session.creator == self.creator => SessionOrigin::Own,
            Some(_) => SessionOrigin::Earlier,
        })
    }

    /// Cleans up after a step before the script failed. A session that this run has set up has no
    /// results and is torn down; an earlier one is at most unmounted, and keeps its data. One that
    /// another run has taken over is left alone.
    fn abandon(&mut self, step: &'static str, error: StepError) -> RunError {
        let (token, job) = (self.token, self.job.clone());
        let session = match self.session {
            Some(session) => Ok(session),
            None => self.session_origin(),
        };
        let cleaned = match &session {
            Ok(SessionOrigin::None) => Ok(()),
            Ok(SessionOrigin::Own) => self.client().request(self.tear_down_request(true)).map(drop),
            Ok(SessionOrigin::Earlier) if matches!(step, "mount" | "run") => {
                self.client().request(self.unmount_request()).map(drop)
            }
            Ok(SessionOrigin::Earlier) => Ok(()),
            Err(failure) => Err(failure.clone()),
        };
        if cleaned.as_ref().is_err_and(|f| f.cause == Cause::Busy) {
            // Another run has taken the job over: nothing of this one is left.
            return match error {
                StepError::Failed(failure) => RunError::Step(step, failure),
                StepError::Interrupted => self.interrupt.error(job, Kept::Nothing),
            };
        }
        if let Err(failure) = &cleaned {
            self.observer.warning(&format!(
                "what was set up for job {token} could not be torn down: {failure}"
            ));
        }
        match (error, session) {
            (StepError::Failed(failure), Ok(SessionOrigin::Earlier)) => {
                RunError::ExistingJobKept(step, failure, job)
            }
            (StepError::Failed(failure), _) if cleaned.is_err() => {
                RunError::MayRemain(step, failure, job)
            }
            (StepError::Failed(failure), _) => RunError::Step(step, failure),
            (StepError::Interrupted, session) => {
                let kept = cleaned.is_err() || matches!(session, Ok(SessionOrigin::Earlier));
                let kept = if kept { self.kept() } else { Kept::Nothing };
                self.interrupt.error(job, kept)
            }
        }
    }

    /// The error of a step after the script has run. Its results are kept, unless the
    /// job was torn down in the meantime.
    fn keep_results(&self, step: &'static str, error: StepError) -> RunError {
        let job = self.job.clone();
        match error {
            StepError::Failed(failure)
                if matches!(self.session_origin(), Ok(SessionOrigin::None)) =>
            {
                RunError::Step(step, failure)
            }
            StepError::Failed(failure) => RunError::ResultsKept(step, failure, job),
            StepError::Interrupted => self.interrupt.error(job, self.kept()),
        }
    }

    /// Runs the script. Returns its exit status, or `None` if the user interrupted it.
    fn run_script(
        &mut self,
        script: &JobScript,
        options: &RunOptions,
    ) -> Result<Option<i32>, RunError> {
        self.observer.phase("run");
        let started = Instant::now();
        let environment = self.environment(script).map_err(|failure| {
            let reason = format!("cannot query the paths of job {}: {failure}", self.token);
            let failure = Failure::new(failure.cause, reason);
            self.abandon("run", StepError::Failed(failure))
        })?;
        let process = JobProcess::start(&options.script, &options.arguments, &environment);
        let mut process = match process {
            Ok(process) => process,
            Err(error) => {
                let failure = Failure::new(Cause::Failed, error.to_string());
                return Err(match self.abandon("run", StepError::Failed(failure)) {
                    RunError::Step(..) => RunError::ScriptNotStarted(options.script.clone(), error),
                    other => other,
                });
            }
        };
        let code = process.wait(|| self.interrupt.is_set()).map_err(|error| {
            let failure = Failure::new(Cause::Failed, format!("waiting for the script: {error}"));
            RunError::ResultsKept("run", failure, self.job.clone())
        })?;
        self.phases.push(RunPhase {
            name: "run",
            time: started.elapsed(),
            moved: StageProgress::default(),
        });
        Ok(code)
    }

    /// The environment variables of the script: its mounts, and how its processes ask to stage.
    fn environment(&self, script: &JobScript) -> Result<Vec<(String, String)>, Failure> {
        let mut environment = self.client().job_environment(self.token)?;
        // A job has the variables of the access modes it has asked for. A persistent instance is
        // always known by its striped view.
        if let Some(job) = script.job() {
            environment.retain(|(name, _)| {
                let mut modes = job.access.iter().map(|access| access.mode);
                !name.starts_with("DW_JOB_")
                    || modes.any(|mode| *name == mount_variable(&job.kind, mode, None))
            });
        }
        Ok(environment)
    }
}
