//! Errors of running a job, as shown to its user.

use std::fmt;
use std::path::PathBuf;

use forebay_job_script::ScriptErrors;

use forebay_control::controller::{Cause, Failure};
use forebay_daemon::DaemonError;
use forebay_daemon::embedded::PoolError;

/// The reason for which a job failed, or was not run.
#[derive(Debug)]
pub enum RunError {
    /// The script cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// Its directives are wrong.
    Script(PathBuf, ScriptErrors),
    /// It requests something that this buffer does not support.
    Unsupported(PathBuf, String),
    /// The options contradict each other.
    Usage(String),
    /// The embedded pool cannot be used.
    Pool(PoolError),
    /// Metrics cannot be served.
    Metrics(String),
    /// The pool over several hosts cannot be used.
    Shared(DaemonError),
    /// A step was refused or failed; this run left nothing in the pool.
    Step(&'static str, Failure),
    /// A step failed; the results are kept in the pool under this token.
    ResultsKept(&'static str, Failure, String),
    /// A step was refused or failed; a job with this token was in the pool before and stays there
    /// with its data.
    ExistingJobKept(&'static str, Failure, String),
    /// A step failed, and what was set up for this token may still be in the pool.
    MayRemain(&'static str, Failure, String),
    /// The script could not be started.
    ScriptNotStarted(PathBuf, std::io::Error),
    /// A signal interrupted it; the token, and whether results are kept under it.
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
            RunError::Step(_, failure) => failure.cause == Cause::Invalid,
            RunError::Pool(_)
            | RunError::Metrics(_)
            | RunError::ResultsKept(..)
            | RunError::ExistingJobKept(..)
            | RunError::MayRemain(..)
            | RunError::ScriptNotStarted(..)
            | RunError::Interrupted(..) => false,
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
            RunError::ResultsKept(step, failure, token) => write!(
                f,
                "{step}: {failure}\nthe results of job {token} are kept in the pool; once the \
                 cause is fixed, `forebay recover --job-id {token}` stages them out \
                 (with --discard it destroys them)"
            ),
            RunError::ExistingJobKept(step, failure, token) => write!(
                f,
                "{step}: {failure}\njob {token} was in the pool before, and its data is kept \
                 there; `forebay recover --job-id {token}` stages it out"
            ),
            RunError::MayRemain(step, failure, token) => write!(
                f,
                "{step}: {failure}\njob {token} may still be in the pool; \
                 `forebay recover --job-id {token}` ends it"
            ),
            RunError::ScriptNotStarted(path, error) => {
                write!(f, "{} cannot be started: {error}", path.display())
            }
            RunError::Interrupted(token, true) => write!(
                f,
                "interrupted; the data of job {token} is kept in the pool, and \
                 `forebay recover --job-id {token}` stages it out"
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

impl From<DaemonError> for RunError {
    fn from(error: DaemonError) -> RunError {
        RunError::Shared(error)
    }
}
