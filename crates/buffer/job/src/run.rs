//! Running a job script.

use std::time::Duration;

use forebay_daemon::activity::serve_metrics;

use crate::error::RunError;
use crate::life::JobLife;
use crate::options::{RunOptions, RunReport};
use crate::pool::{PoolHandle, PoolSelection};
use crate::script;
use crate::wait::{Interrupt, Observer};

/// Time in which the pool replies to a reader of metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a job script. Blocks until the job is over; reports progress to `observer`, and handles
/// SIGINT, SIGTERM and SIGHUP.
pub fn run_job(options: &RunOptions, observer: &mut dyn Observer) -> Result<RunReport, RunError> {
    if let (PoolSelection::Embedded(_), false) = (&options.pool, options.hosts.is_empty()) {
        let reason = "--hosts names hosts of a pool over several hosts: name that pool too, with \
                      --pool FILE, or leave --hosts out; the pool of a directory is mounted on \
                      this host alone";
        return Err(RunError::Usage(reason.to_owned()));
    }
    let token = options.token.clone().unwrap_or_else(script::new_token);
    let script = script::read_script(&options.script, &token)?;
    for warning in script::script_warnings(&script) {
        observer.warning(&warning);
    }
    let interrupt = Interrupt::install();
    let pool = PoolHandle::open(&options.pool)?;
    let metrics = match options.metrics {
        Some(address) => {
            let source = pool.status_source(&options.pool, METRICS_TIMEOUT);
            let responder = serve_metrics(address, source).map_err(RunError::Metrics)?;
            let address = responder.address();
            observer.note(&format!("metrics at http://{address}/metrics"));
            Some(responder)
        }
        None => None,
    };
    let mut life = JobLife::new(&pool, &token, observer, &interrupt);
    let outcome = life.run(&script, options);
    let phases = life.into_phases();
    drop(metrics);
    pool.close()?;
    let (code, kept) = outcome?;
    Ok(RunReport { token, code, phases, kept })
}
