//! Failures of calls.

use forebay_control::controller::{Cause, Failure};
use forebay_daemon::DaemonError;
use serde::Serialize;

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The call, or the job's script, is not valid: the user has to correct it.
    Invalid,
    /// There is no such job: it was not set up, or is torn down.
    NoSuchJob,
    /// Something else that the call names does not exist.
    NotFound,
    /// The object belongs to another user.
    Denied,
    /// Another object has this name.
    Exists,
    /// Something else has to end first; the call can be made again.
    Busy,
    /// The pool has too little space; the call can be made again when there is more.
    Full,
    /// Not done in time; it may still be done later.
    TimedOut,
    /// The controller of the pool cannot be reached, or the pool is not configured.
    Unreachable,
    /// An attempt failed; nothing is lost.
    Failed,
}

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct WlmError {
    /// Kind.
    pub kind: ErrorKind,
    /// Description of the problem, and how to correct it.
    pub message: String,
}

impl WlmError {
    /// A failure.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> WlmError {
        WlmError { kind, message: message.into() }
    }

    /// The failure with `hint` in a line of its own.
    pub(crate) fn with_hint(self, hint: &str) -> WlmError {
        WlmError { message: format!("{}\n{hint}", self.message), ..self }
    }
}

impl From<Failure> for WlmError {
    fn from(failure: Failure) -> WlmError {
        let kind = match failure.cause {
            Cause::Denied => ErrorKind::Denied,
            Cause::NotFound => ErrorKind::NotFound,
            Cause::Exists => ErrorKind::Exists,
            Cause::Busy => ErrorKind::Busy,
            Cause::Full => ErrorKind::Full,
            Cause::Invalid => ErrorKind::Invalid,
            Cause::TimedOut => ErrorKind::TimedOut,
            Cause::Failed => ErrorKind::Failed,
        };
        WlmError::new(kind, failure.reason)
    }
}

impl From<DaemonError> for WlmError {
    fn from(error: DaemonError) -> WlmError {
        WlmError::new(ErrorKind::Unreachable, error.to_string())
    }
}
