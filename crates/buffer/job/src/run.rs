//! Running a job script.

use std::time::Duration;

use forebay_daemon::DaemonError;
use forebay_daemon::activity::serve_metrics;
use forebay_daemon::embedded::EmbeddedPool;

use crate::advice::JobInPool;
use crate::error::{Kept, RunError};
use crate::life::JobLife;
use crate::options::{RunOptions, RunReport};
use crate::pool::{PoolHandle, PoolSelection};
use crate::running::lock_job;
use crate::script;
use crate::wait::{Interrupt, Observer};

/// Time in which the pool replies to a reader of metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which the process that serves an embedded pool checks whether other runs use it.
const USERS_INTERVAL: Duration = Duration::from_millis(100);

/// Runs a job script. Blocks until the job is over, and other runs in an embedded pool that this
/// process serves; reports progress to `observer`, and handles SIGINT, SIGTERM and SIGHUP.
pub fn run_job(options: &RunOptions, observer: &mut dyn Observer) -> Result<RunReport, RunError> {
    if let (PoolSelection::Embedded(_), false) = (&options.pool, options.hosts.is_empty()) {
        let reason = "--hosts names hosts of a pool over several hosts: name that pool too, with \
                      --pool FILE, or leave --hosts out; the pool of a directory is mounted on \
                      this host alone";
        return Err(RunError::Usage(reason.to_owned()));
    }
    let token = options.token.clone().unwrap_or_else(script::new_token);
    let script = script::read_script(&options.script, &token)?;
    script::check_sources(&options.script, &script, &options.pool)?;
    for warning in script::script_warnings(&script) {
        observer.warning(&warning);
    }
    let interrupt = Interrupt::install();
    let pool = open_pool(&options.pool, &token, observer, &interrupt)?;
    let job_lock = lock_job(&pool, &token, "set up")?;
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
    let job = JobInPool::new(&token, &options.pool);
    let mut life = JobLife::new(&pool, &job, observer, &interrupt);
    let outcome = life.run(&script, options);
    let phases = life.into_phases();
    drop(job_lock);
    let closed = close_after_other_runs(pool, observer, &interrupt);
    drop(metrics);
    let (code, kept) = outcome?;
    closed?;
    Ok(RunReport { token, code, phases, kept })
}

/// Opens the pool for this run, and an embedded one for others. Waits while another process has it for
/// itself.
fn open_pool(
    selection: &PoolSelection,
    token: &str,
    observer: &mut dyn Observer,
    interrupt: &Interrupt,
) -> Result<PoolHandle, RunError> {
    let mut is_noted = false;
    let opened = PoolHandle::open_waiting(selection, &mut |reason| {
        if !is_noted {
            observer.phase("wait for the pool");
            observer.note(&format!("{reason}; waiting, interrupt (Ctrl-C) to stop"));
            is_noted = true;
        }
        !interrupt.is_set()
    });
    match opened {
        Err(_) if interrupt.is_set() => {
            Err(interrupt.error(JobInPool::new(token, selection), Kept::Nothing))
        }
        Ok(PoolHandle::Embedded(pool)) => {
            pool.share()?;
            Ok(PoolHandle::Embedded(pool))
        }
        opened => opened,
    }
}

/// Closes the pool; one that this process serves, when the runs that use it are over. No run joins any
/// more.
fn close_after_other_runs(
    pool: PoolHandle,
    observer: &mut dyn Observer,
    interrupt: &Interrupt,
) -> Result<(), RunError> {
    let Some(pool) = pool.into_served()? else {
        return Ok(());
    };
    let awaited = await_other_runs(&pool, observer, interrupt);
    let closed = pool.close();
    Ok(awaited.and(closed)?)
}

/// Waits until the runs that use this process's pool are over.
fn await_other_runs(
    pool: &EmbeddedPool,
    observer: &mut dyn Observer,
    interrupt: &Interrupt,
) -> Result<(), DaemonError> {
    pool.end_sharing()?;
    if !pool.has_users()? {
        return Ok(());
    }
    observer.phase("serve other runs");
    observer
        .note("this run is over; others use the pool, which this process serves until they end");
    let mut is_warned = interrupt.is_set();
    while pool.has_users()? {
        if interrupt.is_set() && !is_warned {
            observer
                .warning("interrupt again to end at once: the other runs would lose their mounts");
            is_warned = true;
        }
        std::thread::sleep(USERS_INTERVAL);
    }
    Ok(())
}
