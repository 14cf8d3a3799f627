//! A job script through its whole life on a pool: set up, stage in, mount, run,
//! unmount, stage out, tear down.

mod buffer;
mod process;
mod recover;
mod script;
mod watch;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_model::jobscript::{Direction, JobScript, ScriptErrors};

pub use buffer::{Buffer, Which, order, status};
pub use recover::{Recovered, Recovery, recover, stage_now};
pub use watch::{Observer, Quiet};

use crate::calls::JobCalls;
use crate::controller::{
    Cause, Failure, InstanceSpec, Request, Setup, StageState, StageStatus, variable,
};
use crate::embedded::PoolError;
use crate::hosts::ServeError;
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
    /// They are destroyed.
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

/// Why a job did not go through.
#[derive(Debug)]
pub enum RunError {
    /// The script cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// Its directives are wrong.
    Script(PathBuf, ScriptErrors),
    /// It asks for something that this buffer does not do.
    Unsupported(PathBuf, String),
    /// It is asked for in a way that makes no sense here.
    Usage(String),
    /// The embedded pool cannot be used.
    Pool(PoolError),
    /// Metrics cannot be served.
    Metrics(String),
    /// The pool over several hosts cannot be used.
    Shared(ServeError),
    /// A step was refused or failed; nothing of the job is left in the pool.
    Step(&'static str, Failure),
    /// A step failed; the results are kept in the pool under this token.
    Kept(&'static str, Failure, String),
    /// The script could not be started.
    Start(PathBuf, std::io::Error),
    /// Someone interrupted it; the token, and whether results are kept under it.
    Interrupted(String, bool),
}

impl RunError {
    /// Whether the user's input is at fault.
    pub fn is_bad_input(&self) -> bool {
        match self {
            RunError::Unreadable(..)
            | RunError::Script(..)
            | RunError::Unsupported(..)
            | RunError::Usage(_) => true,
            RunError::Shared(error) => error.is_bad_input(),
            _ => false,
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Unreadable(path, error) => write!(f, "{}: {error}", path.display()),
            RunError::Script(path, errors) => {
                for (index, error) in errors.0.iter().enumerate() {
                    let end = if index > 0 { "\n" } else { "" };
                    write!(f, "{end}{}: {error}", path.display())?;
                }
                Ok(())
            }
            RunError::Unsupported(path, reason) => write!(f, "{}: {reason}", path.display()),
            RunError::Pool(error) => error.fmt(f),
            RunError::Metrics(reason) => f.write_str(reason),
            RunError::Usage(reason) => f.write_str(reason),
            RunError::Shared(error) => error.fmt(f),
            RunError::Step(step, failure) => write!(f, "{step}: {failure}"),
            RunError::Kept(step, failure, token) => write!(
                f,
                "{step}: {failure}\nthe results of job {token} are kept in the pool; \
                 when the cause is removed, `recover` stages them out"
            ),
            RunError::Start(path, error) => {
                write!(f, "{} cannot be started: {error}", path.display())
            }
            RunError::Interrupted(token, true) => write!(
                f,
                "interrupted; the data of job {token} is kept in the pool, and `recover` stages it out"
            ),
            RunError::Interrupted(token, false) => {
                write!(f, "interrupted; job {token} left nothing behind")
            }
        }
    }
}

impl std::error::Error for RunError {}

impl From<PoolError> for RunError {
    fn from(error: PoolError) -> RunError {
        RunError::Pool(error)
    }
}

/// Runs a job script. Blocks until it is over, tells `observer` how it goes, and reacts to SIGINT,
/// SIGTERM and SIGHUP.
pub fn run_job(options: &RunOptions, observer: &mut dyn Observer) -> Result<RunReport, RunError> {
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
    observer: &'a mut dyn Observer,
    interrupt: &'a watch::Interrupt,
    phases: Vec<Phase>,
}

/// How a step ended that did not succeed.
enum Stop {
    Failed(Failure),
    Interrupted,
}

impl Life<'_> {
    fn lead(&mut self, script: &JobScript, options: &RunOptions) -> Result<(i32, bool), RunError> {
        let token = self.token.to_owned();
        let interrupted = |kept| RunError::Interrupted(token.clone(), kept);
        self.persistents(script)?;
        let setup = Setup::of(script);
        let request = Request::Setup {
            token: token.clone(),
            owner: self.pool.caller(),
            creator: "forebay run".to_owned(),
            setup,
        };
        if let Err(stop) = self.step("set up", request, None) {
            return Err(self.abandon("set up", stop));
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
        if let Err(stop) = self.step(
            "mount",
            Request::Activate {
                token: token.clone(),
                hosts,
            },
            None,
        ) {
            return Err(self.abandon("mount", stop));
        }
        let code = match self.run_script(script, options)? {
            Some(code) => code,
            None => return Err(interrupted(true)),
        };
        let keep = |name, stop| match stop {
            Stop::Failed(failure) => RunError::Kept(name, failure, token.clone()),
            Stop::Interrupted => interrupted(true),
        };
        self.step(
            "unmount",
            Request::Deactivate {
                token: token.clone(),
            },
            None,
        )
        .map_err(|stop| keep("unmount", stop))?;
        if code != 0 && options.on_failure == OnFailure::Keep {
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
            .map_err(|stop| keep("stage out", stop))?;
        }
        self.step(
            "tear down",
            Request::Teardown {
                token: token.clone(),
                hurry: discard,
            },
            None,
        )
        .map_err(|stop| keep("tear down", stop))?;
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
        let outcome = watch::wait(self.pool, request, self.interrupt, self.observer);
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

    /// Ends a job that has not run: it can have no results.
    fn abandon(&mut self, step: &'static str, stop: Stop) -> RunError {
        let request = Request::Teardown {
            token: self.token.to_owned(),
            hurry: true,
        };
        if let Err(failure) = self.pool.ask(request) {
            self.observer.warning(&format!(
                "what was set up could not be taken down: {failure}"
            ));
        }
        match stop {
            Stop::Failed(failure) => RunError::Step(step, failure),
            Stop::Interrupted => RunError::Interrupted(self.token.to_owned(), false),
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
        let mut environment = paths.map_err(|failure| RunError::Step("run", failure))?;
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
        environment.push(("FOREBAY_JOB_ID".to_owned(), self.token.to_owned()));
        // Ends before the job's end is staged: from then on nothing can be added to that.
        let calls = match self.pool {
            Buffer::Embedded(pool) => {
                JobCalls::open(pool.asker(), pool.directory(), self.token, &environment).map(Some)
            }
            Buffer::Shared(_) => Ok(None),
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
                self.abandon("run", stop);
                return Err(RunError::Start(options.script.clone(), error));
            }
        };
        let code = job
            .wait(self.interrupt)
            .map_err(|error| RunError::Start(options.script.clone(), error))?;
        self.phases.push(Phase {
            name: "run",
            time: begun.elapsed(),
            moved: Progress::default(),
        });
        Ok(code)
    }
}
