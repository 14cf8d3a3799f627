//! The input and the result of running a job script.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use forebay_control::messages::StageProgress;

use crate::pool::PoolSelection;

/// Treatment of the results of a script that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum OnFailure {
    /// Stage them out
    #[default]
    StageOut,
    /// Keep them in the pool for `recover`
    Keep,
    /// Destroy them; a job that existed before keeps its data
    // It may contain results of earlier runs.
    Discard,
}

/// A job script, and how to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The pool.
    pub pool: PoolSelection,
    /// Compute nodes on which the instance is mounted. Default: this one.
    pub hosts: Vec<String>,
    /// The job script.
    pub script: PathBuf,
    /// The script's arguments.
    pub arguments: Vec<OsString>,
    /// The job's id. Default: a new one.
    pub token: Option<String>,
    /// The account for which the job's instances count.
    pub account: Option<String>,
    /// Treatment of the results if the script fails.
    pub on_failure: OnFailure,
    /// The address at which metrics are served during the run.
    pub metrics: Option<SocketAddr>,
}

/// One step of a job's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPhase {
    /// The step's name.
    pub name: &'static str,
    /// Duration.
    pub time: Duration,
    /// Progress of its stages.
    pub moved: StageProgress,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The job's id.
    pub token: String,
    /// The script's exit status; 128 plus the signal's number if a signal ended it.
    pub code: i32,
    /// The steps, in order.
    pub phases: Vec<RunPhase>,
    /// Whether the script failed and its results were kept in the pool.
    pub kept: bool,
}
