//! A job script through its whole life on a pool: set up, stage in, mount, run,
//! unmount, stage out, tear down.

mod buffer;
mod error;
mod process;
mod recover;
mod script;
mod watch;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_model::jobscript::{Direction, JobScript};
use forebay_wire::staging::{JOB, SOCKET};

pub use buffer::{Buffer, Which, order, status};
pub use error::RunError;
pub use recover::{Recovered, Recovery, recover, stage_now};
pub use watch::{Observer, Quiet};

use crate::calls::JobCalls;
use crate::controller::{
    Cause, Failure, InstanceSpec, Lifetime, Request, Setup, StageState, StageStatus, variable,
};
use crate::protocol::Progress;

/// How long a reader of metrics waits for the pool.
const PATIENCE: Duration = Duration::from_secs(1);

/// What becomes of the results of a script that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They are staged out all the same.
    #[default]
    StageOut,
    /// They stay in the pool, until `recover` stages them out.
    Keep,
    /// They are destroyed, unless the job was in the pool before this run: then they stay, for
    /// there may be results of earlier runs among them.
    Discard,
}

/// What to run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The pool.
    pub pool: Which,
    /// Compute nodes on which the instance is mounted; this one if none is named.
    pub hosts: Vec<String>,
    /// The job script.
    pub script: PathBuf,
    /// Its own arguments.
    pub arguments: Vec<OsString>,
    /// The job's id; one is made up if it is not given.
    pub token: Option<String>,
    /// What becomes of the results if the script fails.
    pub on_failure: OnFailure,
    /// Where to serve metrics meanwhile.
    pub metrics: Option<SocketAddr>,
}

/// One part of a job's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What it is called.
    pub name: &'static str,
    /// How long it took.
    pub time: Duration,
    /// What was moved in it.
    pub moved: Progress,
}

/// How a job went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The job's id.
    pub token: String,
    /// The script's exit status; 128 and the signal's number if a signal ended it.
    pub code: i32,
    /// Where time went.
    pub phases: Vec<Phase>,
    /// Whether results are still in the pool because the script failed and they were to be kept.
    pub kept: bool,
}

/// Runs a job script. Blocks until it is over, tells `observer` how it goes, and reacts to SIGINT,
/// SIGTERM and SIGHUP.
pub fn run_job(options: &RunOptions, observer: &mut dyn Observer) -> Result<RunReport, RunError> {
    if let (Which::Embedded(_), false) = (&options.pool, options.hosts.is_empty()) {
        let reason = "--hosts names hosts of a pool over several hosts: name that pool too, with \
                      --pool FILE, or leave --hosts out; the pool of a directory is mounted on \
                      this host alone";
        return Err(RunError::Usage(reason.to_owned()));
    }
    let token = options.token.clone().unwrap_or_else(script::new_token);
    let script = script::read(&options.script, &token)?;
    for line in &script.unread {
        observer.warning(&format!(
            "line {line}: a directive after the first command is not read"
        ));
    }
    let interrupt = watch::Interrupt::install();
    let pool = Buffer::open(&options.pool)?;
    let metrics = match options.metrics {
        Some(address) => {
            let source = pool.source(&options.pool, PATIENCE);
            let responder = crate::activity::serve(address, source).map_err(RunError::Metrics)?;
            let address = responder.address();
            observer.note(&format!("metrics at http://{address}/metrics"));
            Some(responder)
        }
        None => None,
    };
    let mut life = Life {
        pool: &pool,
        token: &token,
        creator: script::new_creator(),
        standing: None,
        observer,
        interrupt: &interrupt,
        phases: Vec::new(),
    };
    let outcome = life.lead(&script, options);
    let phases = std::mem::take(&mut life.phases);
    drop(metrics);
    pool.close()?;
    let (code, kept) = outcome?;
    Ok(RunReport {
        token,
        code,
        phases,
        kept,
    })
}

struct Life<'a> {
    pool: &'a Buffer,
    token: &'a str,
    /// The name in which this run makes its session; no other run has it.
    creator: String,
    /// Whose the session is, once that is known.
    standing: Option<Standing>,
    observer: &'a mut dyn Observer,
    interrupt: &'a watch::Interrupt,
    phases: Vec<Phase>,
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
enum Stop {
    Failed(Failure),
    Interrupted,
}

impl Life<'_> {
    fn lead(&mut self, script: &JobScript, options: &RunOptions) -> Result<(i32, bool), RunError> {
        let token = self.token.to_owned();
        self.persistents(script)?;
        let setup = Setup::of(script);
        let request = Request::Setup {
            token: token.clone(),
            owner: self.pool.caller(),
            creator: self.creator.clone(),
            setup,
        };
        if let Err(stop) = self.step("set up", request, None) {
            return Err(self.abandon("set up", stop));
        }
        self.standing = self.look().ok();
        if self.standing == Some(Standing::Earlier) {
            self.observer.note(&format!(
                "job {token} is in the pool already, and goes on with the data it has there"
            ));
        }
        if script.stages(Direction::In).next().is_some() {
            let request = Request::StageIn {
                token: token.clone(),
            };
            if let Err(stop) = self.step("stage in", request, Some(Direction::In)) {
                return Err(self.abandon("stage in", stop));
            }
        }
        let hosts = match self.hosts(options) {
            Ok(hosts) => hosts,
            Err(failure) => return Err(self.abandon("mount", Stop::Failed(failure))),
        };
        if let Buffer::Shared(remote) = self.pool {
            if !remote
                .host()
                .is_some_and(|own| hosts.iter().any(|host| host == own))
            {
                self.observer.warning(&format!(
                    "the script runs on this host, but its buffer is mounted on {} only",
                    hosts.join(", ")
                ));
            }
        }
        if let Err(stop) = self.step(
            "mount",
            Request::Run {
                token: token.clone(),
                hosts,
                creator: self.creator.clone(),
            },
            None,
        ) {
            return Err(self.abandon("mount", stop));
        }
        let code = match self.run_script(script, options)? {
            Some(code) => code,
            None => return Err(RunError::Interrupted(token, true)),
        };
        self.step(
            "unmount",
            Request::Deactivate {
                token: token.clone(),
            },
            None,
        )
        .map_err(|stop| self.keep("unmount", stop))?;
        let own = self.standing == Some(Standing::Own);
        let kept = match options.on_failure {
            OnFailure::StageOut => false,
            OnFailure::Keep => code != 0,
            OnFailure::Discard => code != 0 && !own,
        };
        if kept {
            return Ok((code, true));
        }
        let discard = code != 0 && options.on_failure == OnFailure::Discard;
        if !discard && self.has_stages_out() {
            self.step(
                "stage out",
                Request::StageOut {
                    token: token.clone(),
                },
                Some(Direction::Out),
            )
            .map_err(|stop| self.keep("stage out", stop))?;
        }
        self.step(
            "tear down",
            Request::Teardown {
                token: token.clone(),
                hurry: discard,
            },
            None,
        )
        .map_err(|stop| self.keep("tear down", stop))?;
        for destroyed in &script.destroys {
            let request = Request::DestroyPersistent {
                name: destroyed.name.clone(),
                hurry: destroyed.hurry,
            };
            self.pool
                .ask(request)
                .map_err(|failure| RunError::Step("destroy_persistent", failure))?;
        }
        Ok((code, false))
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
        self.pool
            .status()
            .map_or(true, |status| status.stages.iter().any(left))
    }

    /// Makes the persistent instances that the script asks for.
    fn persistents(&mut self, script: &JobScript) -> Result<(), RunError> {
        for created in &script.creates {
            let spec = InstanceSpec {
                capacity: created.capacity,
                kind: forebay_model::jobscript::InstanceType::Scratch,
                access: created.access.clone(),
                pool: created.pool.clone(),
                preference: forebay_policy::allocate::Preference::Bandwidth,
                modifiers: Default::default(),
            };
            let request = Request::CreatePersistent {
                name: created.name.clone(),
                owner: self.pool.caller(),
                spec,
                public: false,
            };
            self.pool
                .ask(request)
                .map_err(|failure| RunError::Step("create_persistent", failure))?;
        }
        Ok(())
    }

    /// Asks for one step and waits, showing progress.
    fn step(
        &mut self,
        name: &'static str,
        request: Request,
        direction: Option<Direction>,
    ) -> Result<(), Stop> {
        self.observer.phase(name);
        let begun = Instant::now();
        let outcome = watch::wait(
            self.pool,
            request,
            |stage| stage.token == self.token,
            self.interrupt,
            self.observer,
        );
        let mut moved = Progress::default();
        if let (Some(direction), Ok(status)) = (direction, self.pool.status()) {
            moved = watch::sum(&status, self.token, direction);
        }
        self.phases.push(Phase {
            name,
            time: begun.elapsed(),
            moved,
        });
        outcome
    }

    /// Whose the job's session is.
    fn look(&self) -> Result<Standing, Failure> {
        let status = self.pool.status()?;
        let caller = self.pool.caller().uid;
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
    /// and is taken down; one that was there before is unmounted at most, and keeps its data.
    fn abandon(&mut self, step: &'static str, stop: Stop) -> RunError {
        let token = self.token.to_owned();
        let standing = match self.standing {
            Some(standing) => Ok(standing),
            None => self.look(),
        };
        let done = match &standing {
            Ok(Standing::Nothing) => Ok(()),
            Ok(Standing::Own) => {
                let (token, hurry) = (token.clone(), true);
                self.pool.ask(Request::Teardown { token, hurry }).map(drop)
            }
            Ok(Standing::Earlier) if matches!(step, "mount" | "run") => {
                let token = token.clone();
                self.pool.ask(Request::Deactivate { token }).map(drop)
            }
            Ok(Standing::Earlier) => Ok(()),
            Err(failure) => Err(failure.clone()),
        };
        if let Err(failure) = &done {
            self.observer.warning(&format!(
                "what was set up for job {token} could not be taken down: {failure}"
            ));
        }
        match (stop, standing) {
            (Stop::Failed(failure), Ok(Standing::Earlier)) => {
                RunError::Earlier(step, failure, token)
            }
            (Stop::Failed(failure), _) if done.is_err() => RunError::Left(step, failure, token),
            (Stop::Failed(failure), _) => RunError::Step(step, failure),
            (Stop::Interrupted, standing) => {
                let kept = done.is_err() || matches!(standing, Ok(Standing::Earlier));
                RunError::Interrupted(token, kept)
            }
        }
    }

    /// Why the job did not go through after its script has run. What there is of it is kept, unless
    /// somebody else has taken it down.
    fn keep(&self, step: &'static str, stop: Stop) -> RunError {
        let token = self.token.to_owned();
        match stop {
            Stop::Failed(failure) if matches!(self.look(), Ok(Standing::Nothing)) => {
                RunError::Step(step, failure)
            }
            Stop::Failed(failure) => RunError::Kept(step, failure, token),
            Stop::Interrupted => RunError::Interrupted(token, true),
        }
    }

    fn run_script(
        &mut self,
        script: &JobScript,
        options: &RunOptions,
    ) -> Result<Option<i32>, RunError> {
        self.observer.phase("run");
        let begun = Instant::now();
        let paths = self.pool.paths(self.token);
        let mut environment = paths.map_err(|failure| {
            let reason = format!("the paths of job {} are not known: {failure}", self.token);
            let failure = Failure::new(failure.cause, reason);
            self.abandon("run", Stop::Failed(failure))
        })?;
        // A persistent instance is known by the name of its striped view.
        if let Some(job) = script.job() {
            environment.retain(|(name, _)| {
                !name.starts_with("DW_JOB_")
                    || job
                        .access
                        .iter()
                        .any(|access| *name == variable(&job.kind, access.mode, None))
            });
        }
        environment.push((JOB.to_owned(), self.token.to_owned()));
        // Ends before the job's end is staged: from then on nothing can be added to that.
        let calls = match self.pool {
            Buffer::Embedded(pool) => {
                JobCalls::open(pool.asker(), pool.directory(), self.token).map(Some)
            }
            // The agents of the job's hosts answer there, as long as the job is mounted.
            Buffer::Shared(remote) => {
                let socket = remote.calls_socket().display().to_string();
                environment.push((SOCKET.to_owned(), socket));
                Ok(None)
            }
        };
        let calls = calls.map_err(|error| {
            let reason = format!("the socket for the job's own staging cannot be made: {error}");
            let failure = Failure::new(Cause::Failed, reason);
            self.abandon("run", Stop::Failed(failure))
        })?;
        environment.extend(calls.as_ref().map(JobCalls::variable));
        let started = process::Job::start(&options.script, &options.arguments, &environment);
        let mut job = match started {
            Ok(job) => job,
            Err(error) => {
                let stop = Stop::Failed(Failure::new(Cause::Failed, error.to_string()));
                return Err(match self.abandon("run", stop) {
                    RunError::Step(..) => RunError::Start(options.script.clone(), error),
                    left => left,
                });
            }
        };
        let code = job.wait(self.interrupt).map_err(|error| {
            let failure = Failure::new(Cause::Failed, format!("waiting for the script: {error}"));
            RunError::Kept("run", failure, self.token.to_owned())
        })?;
        self.phases.push(Phase {
            name: "run",
            time: begun.elapsed(),
            moved: Progress::default(),
        });
        Ok(code)
    }
}
