//! Errors, as shown to the user.

use std::path::{Path, PathBuf};

use forebay_job::RunError;
use thiserror::Error;

/// The reason for which a buffer could not be started or used.
#[derive(Debug, Error)]
pub enum AdhocError {
    /// The options are wrong.
    #[error("{_0}")]
    Usage(String),
    /// It could not be started; nothing is left.
    #[error("{_0}")]
    Start(String),
    /// A step failed; nothing is left.
    #[error("{}", step_text(_0))]
    Step(RunError),
    /// The user has interrupted it; nothing is left.
    #[error("interrupted; nothing is left behind")]
    Interrupted,
    /// A host was lost, which holds a part of every large file.
    #[error("a host was lost, and with it a part of the files; see above")]
    HostLost,
    /// Data is kept for a stage-out, with the reason.
    #[error("{reason}\n{}", kept_text(leader))]
    Kept {
        /// The reason.
        reason: String,
        /// The leader's directory.
        leader: PathBuf,
        /// Whether the user has interrupted it.
        interrupted: bool,
    },
}

impl AdhocError {
    /// Whether the user's input is at fault.
    pub fn is_bad_input(&self) -> bool {
        match self {
            AdhocError::Usage(_) => true,
            AdhocError::Step(error) => error.is_bad_input(),
            AdhocError::Start(_)
            | AdhocError::Interrupted
            | AdhocError::HostLost
            | AdhocError::Kept { .. } => false,
        }
    }

    /// Whether the user has interrupted it.
    pub fn is_interrupt(&self) -> bool {
        match self {
            AdhocError::Interrupted => true,
            AdhocError::Kept { interrupted, .. } => *interrupted,
            AdhocError::Usage(_)
            | AdhocError::Start(_)
            | AdhocError::HostLost
            | AdhocError::Step(_) => false,
        }
    }
}

/// The error of a job without the advice for its own pool.
pub(crate) fn step_text(error: &RunError) -> String {
    match error {
        RunError::Step(step, failure)
        | RunError::ResultsKept(step, failure, _)
        | RunError::ExistingJobKept(step, failure, _)
        | RunError::MayRemain(step, failure, _) => format!("{step}: {failure}"),
        RunError::Interrupted { .. } | RunError::StageCancelled { .. } => "interrupted".to_owned(),
        RunError::Unreadable(..)
        | RunError::Script(..)
        | RunError::Unsupported(..)
        | RunError::Usage(_)
        | RunError::Pool(_)
        | RunError::Metrics(_)
        | RunError::ScriptNotStarted(..) => error.to_string(),
    }
}

/// The advice for data that is kept.
pub(crate) fn kept_text(leader: &Path) -> String {
    let leader = leader.display();
    format!(
        "the data is kept on the hosts; once the cause is removed, `forebay adhoc recover {leader}` \
         on this host stages it out (with --discard it is removed instead)"
    )
}
