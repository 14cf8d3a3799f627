//! Studies: from a machine and a workload to a result document.

mod collective;
mod darshan;
mod error;
mod fabric;
mod forecast;
mod interference;
mod ior;
mod ior_job;
mod jobs;
mod joined;
mod logged;
mod options;
mod run;
mod saturation;
mod starts;
mod traffic;

pub use crate::io::{ServerQueues, flash_rate};
pub use crate::storage::FileSystem;
pub use collective::{
    Background, CollectiveStudy, check_collective_fits, fidelity_of_collective, simulate_collective,
};
pub use darshan::{check_log_fits, simulate_log};
pub use error::StudyError;
pub use forecast::{Forecast, forecast_interference, forecast_ior, forecast_traffic};
pub use interference::{InterferenceStudy, fidelity_of_interference, simulate_interference};
pub(crate) use ior::simulate_joined;
pub use ior::{check_ior_fits, fidelity_of_ior, simulate_ior};
pub use jobs::{
    IoWork, JobWork, MOST_JOBS, StorageChoice, StudyJob, WarmUps, check_jobs_fit, simulate_jobs,
    simulate_jobs_after,
};
pub(crate) use joined::{JoinedTest, of_calls};
pub use logged::LogFlush;
pub use options::{Fidelity, SimOptions};
pub use run::Progress;
pub use saturation::find_saturation;
pub(crate) use starts::starts_of_transfers;
pub use traffic::{check_traffic_fits, fidelity_of_traffic, simulate_traffic};
