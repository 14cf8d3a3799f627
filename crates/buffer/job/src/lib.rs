//! The life of a job script on a pool: set up, stage in, mount, run, unmount, stage out, tear down.
#![warn(missing_docs)]

mod advice;
mod error;
mod life;
mod options;
mod pool;
mod process;
mod recover;
mod run;
mod running;
mod script;
mod wait;

pub use advice::JobInPool;
pub use error::{Kept, RunError};
pub use options::{OnFailure, RunOptions, RunPhase, RunReport};
pub use pool::{PoolHandle, PoolSelection, job_usage, pool_status, request_once};
pub use recover::{RecoverOptions, Recovered, Recovery, recover, stage_now};
pub use run::run_job;
pub use script::{group_id, read_directives, read_script, script_warnings, setup_of};
pub use wait::Observer;
