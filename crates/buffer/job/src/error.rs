//! Errors of running a job, as shown to its user.

use std::path::{Path, PathBuf};

use forebay_job_script::ScriptErrors;
use thiserror::Error;

use forebay_control::controller::{Cause, Failure};
use forebay_daemon::DaemonError;

use crate::advice::JobInPool;

/// The reason for which a job failed, or was not run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The script cannot be read.
    #[error("{}: {_1}", _0.display())]
    Unreadable(PathBuf, std::io::Error),
    /// Its directives are wrong.
    #[error("{}", script_errors(_0, _1))]
    Script(PathBuf, ScriptErrors),
    /// It requests something that this buffer does not support.
    #[error("{}: {_1}", _0.display())]
    Unsupported(PathBuf, String),
    /// The options contradict each other.
    #[error("{_0}")]
    Usage(String),
    /// The pool cannot be used.
    #[error(transparent)]
    Pool(#[from] DaemonError),
    /// Metrics cannot be served.
    #[error("{_0}")]
    Metrics(String),
    /// A step was refused or failed; this run left nothing in the pool.
    #[error("{_0}: {_1}")]
    Step(&'static str, Failure),
    /// A step failed; the results are kept in the pool under this token.
    #[error(
        "{_0}: {_1}\nthe results of job {} are kept in the pool; once the cause is fixed, \
         `{}` stages them out, and removes the job unless results are \
         left (with --discard it destroys them)", _2.token, _2.recover()
    )]
    ResultsKept(&'static str, Failure, JobInPool),
    /// A step was refused or failed; a job with this token was in the pool before and stays there
    /// with its data.
    #[error(
        "{_0}: {_1}\njob {} was in the pool before, and its data is kept there; \
         `{}` stages it out", _2.token, _2.recover()
    )]
    ExistingJobKept(&'static str, Failure, JobInPool),
    /// A step failed, and what was set up for this token may still be in the pool.
    #[error("{_0}: {_1}\njob {} may still be in the pool; `{}` ends it", _2.token, _2.recover())]
    MayRemain(&'static str, Failure, JobInPool),
    /// The script could not be started.
    #[error("{} cannot be started: {_1}", _0.display())]
    ScriptNotStarted(PathBuf, std::io::Error),
    /// A signal interrupted it.
    #[error("interrupted; {}", after_interrupt(job, *kept))]
    Interrupted {
        /// The job.
        job: JobInPool,
        /// The data that the job leaves in the pool.
        kept: Kept,
        /// The signal.
        signal: i32,
    },
    /// A signal interrupted a stage that was requested by itself.
    #[error(
        "interrupted; the stage is cancelled, and the data of `{token}` stays in the pool; the \
             same command stages again"
    )]
    StageCancelled {
        /// The job or persistent instance.
        token: String,
        /// The signal.
        signal: i32,
    },
}

/// The data that an interrupted job leaves in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// Its space, of which nothing is to be staged out.
    Space,
    /// Data that is to be staged out.
    Data,
}

impl RunError {
    /// Whether the user's input is at fault.
    pub fn is_bad_input(&self) -> bool {
        match self {
            RunError::Unreadable(..)
            | RunError::Script(..)
            | RunError::Unsupported(..)
            | RunError::Usage(_) => true,
            RunError::Pool(error) => error.is_bad_input(),
            RunError::Step(_, failure) => failure.cause == Cause::Invalid,
            RunError::Metrics(_)
            | RunError::ResultsKept(..)
            | RunError::ExistingJobKept(..)
            | RunError::MayRemain(..)
            | RunError::ScriptNotStarted(..)
            | RunError::Interrupted { .. }
            | RunError::StageCancelled { .. } => false,
        }
    }
}

/// One line per error, each with the script's path.
fn script_errors(path: &Path, errors: &ScriptErrors) -> String {
    let line = |error| format!("{}: {error}", path.display());
    errors.0.iter().map(line).collect::<Vec<String>>().join("\n")
}

fn after_interrupt(job: &JobInPool, kept: Kept) -> String {
    let (token, recover) = (&job.token, job.recover());
    match kept {
        Kept::Nothing => format!("job {token} left nothing behind"),
        Kept::Space => format!(
            "the data of job {token} only takes space in the pool, since nothing is to be staged \
             out; `{recover}` removes it"
        ),
        Kept::Data => {
            format!("the data of job {token} is kept in the pool, and `{recover}` stages it out")
        }
    }
}
