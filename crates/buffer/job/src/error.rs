//! Errors of running a job, as shown to its user.

use std::path::{Path, PathBuf};

use forebay_job_script::ScriptErrors;
use thiserror::Error;

use forebay_control::controller::{Cause, Failure};
use forebay_daemon::DaemonError;

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
        "{_0}: {_1}\nthe results of job {_2} are kept in the pool; once the cause is fixed, \
         `forebay recover --job-id {_2}` stages them out, and removes the job unless results are \
         left (with --discard it destroys them)"
    )]
    ResultsKept(&'static str, Failure, String),
    /// A step was refused or failed; a job with this token was in the pool before and stays there
    /// with its data.
    #[error(
        "{_0}: {_1}\njob {_2} was in the pool before, and its data is kept there; \
         `forebay recover --job-id {_2}` stages it out"
    )]
    ExistingJobKept(&'static str, Failure, String),
    /// A step failed, and what was set up for this token may still be in the pool.
    #[error(
        "{_0}: {_1}\njob {_2} may still be in the pool; `forebay recover --job-id {_2}` ends it"
    )]
    MayRemain(&'static str, Failure, String),
    /// The script could not be started.
    #[error("{} cannot be started: {_1}", _0.display())]
    ScriptNotStarted(PathBuf, std::io::Error),
    /// A signal interrupted it; the token, and whether results are kept under it.
    #[error("interrupted; {}", after_interrupt(_0, *_1))]
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
            RunError::Pool(error) => error.is_bad_input(),
            RunError::Step(_, failure) => failure.cause == Cause::Invalid,
            RunError::Metrics(_)
            | RunError::ResultsKept(..)
            | RunError::ExistingJobKept(..)
            | RunError::MayRemain(..)
            | RunError::ScriptNotStarted(..)
            | RunError::Interrupted(..) => false,
        }
    }
}

/// One line per error, each with the script's path.
fn script_errors(path: &Path, errors: &ScriptErrors) -> String {
    let line = |error| format!("{}: {error}", path.display());
    errors.0.iter().map(line).collect::<Vec<String>>().join("\n")
}

fn after_interrupt(token: &str, kept: bool) -> String {
    match kept {
        true => format!(
            "the data of job {token} is kept in the pool, and `forebay recover --job-id {token}` \
             stages it out"
        ),
        false => format!("job {token} left nothing behind"),
    }
}
