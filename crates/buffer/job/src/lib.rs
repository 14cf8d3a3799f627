//! A job script through its whole life on a pool: set up, stage in, mount, run,
//! unmount, stage out, tear down.

mod error;
mod life;
mod pool;
mod process;
mod recover;
mod script;
mod wait;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use error::RunError;
pub use pool::{PoolHandle, PoolSelection, pool_status, request_once};
pub use recover::{Recovered, Recovery, recover, stage_now};
pub use wait::{Observer, SilentObserver};

use forebay_control::messages::StageProgress;
use life::JobLife;

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
    pub pool: PoolSelection,
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
pub struct RunPhase {
    /// What it is called.
    pub name: &'static str,
    /// How long it took.
    pub time: Duration,
    /// What was moved in it.
    pub moved: StageProgress,
}

/// How a job went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The job's id.
    pub token: String,
    /// The script's exit status; 128 and the signal's number if a signal ended it.
    pub code: i32,
    /// Where time went.
    pub phases: Vec<RunPhase>,
    /// Whether results are still in the pool because the script failed and they were to be kept.
    pub kept: bool,
}

/// Runs a job script. Blocks until it is over, tells `observer` how it goes, and reacts to SIGINT,
/// SIGTERM and SIGHUP.
pub fn run_job(options: &RunOptions, observer: &mut dyn Observer) -> Result<RunReport, RunError> {
    if let (PoolSelection::Embedded(_), false) = (&options.pool, options.hosts.is_empty()) {
        let reason = "--hosts names hosts of a pool over several hosts: name that pool too, with \
                      --pool FILE, or leave --hosts out; the pool of a directory is mounted on \
                      this host alone";
        return Err(RunError::Usage(reason.to_owned()));
    }
    let token = options.token.clone().unwrap_or_else(script::new_token);
    let script = script::read_script(&options.script, &token)?;
    for doubt in script::warnings(&script) {
        observer.warning(&doubt);
    }
    let interrupt = wait::Interrupt::install();
    let pool = PoolHandle::open(&options.pool)?;
    let metrics = match options.metrics {
        Some(address) => {
            let source = pool.status_source(&options.pool, PATIENCE);
            let responder = forebay_daemon::activity::serve_metrics(address, source)
                .map_err(RunError::Metrics)?;
            let address = responder.address();
            observer.note(&format!("metrics at http://{address}/metrics"));
            Some(responder)
        }
        None => None,
    };
    let mut life = JobLife::new(&pool, &token, observer, &interrupt);
    let outcome = life.lead(&script, options);
    let phases = life.into_phases();
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
