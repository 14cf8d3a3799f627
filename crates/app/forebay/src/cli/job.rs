//! `forebay run`, `status`, `top`, `recover`, `stage`: jobs on an embedded pool or on one over
//! several hosts.

use std::ffi::OsString;
use std::path::{Component, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use forebay_control::controller::{Cause, Failure};
use forebay_control::messages::UnixMillis;
use forebay_daemon::embedded::EmbeddedPoolOptions;
use forebay_job::{
    JobInPool, OnFailure, PoolSelection, RecoverOptions, Recovered, Recovery, RunError, RunOptions,
    job_usage, pool_status, recover, run_job, stage_now,
};
use forebay_job_script::{Direction, InstanceRef, Stage, StageKind};
use tempfile::NamedTempFile;

use super::pool::{self, NewPoolArguments, PoolArguments, PoolCommand};
use crate::console::{print_answer, print_failure, print_stderr};
use crate::show::{self, Terminal};
use crate::top::{TopOptions, top};

/// Commands for jobs and pools.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Run a job script: allocate, stage in, mount, run, stage out, tear down
    Run(RunArguments),
    /// Show pool, nodes, instances and stages, or the I/O of one job
    Status {
        #[command(flatten)]
        pool: PoolArguments,
        /// The I/O of this job or persistent instance instead, also after its end
        #[arg(long, value_name = "ID")]
        job: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the same live, with rates and latencies
    Top {
        #[command(flatten)]
        pool: PoolArguments,
        /// Print one frame and exit, as without a terminal
        #[arg(long)]
        once: bool,
        /// Seconds between frames, 0.1 to 3600
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
        interval: Duration,
    },
    /// Stage out the results of interrupted jobs and remove the jobs
    Recover {
        #[command(flatten)]
        pool: PoolArguments,
        /// Destroy the results instead
        #[arg(long)]
        discard: bool,
        /// Only this job; required in a pool over several hosts
        #[arg(long, value_name = "ID")]
        job_id: Option<String>,
        /// End the job of --job-id also if it runs, or may run: its script loses its buffer
        #[arg(long, requires = "job_id")]
        force: bool,
    },
    /// Stage into or out of a persistent instance or a kept job
    Stage(StageArguments),
    #[command(flatten)]
    Pool(PoolCommand),
}

/// Arguments of `forebay run`.
#[derive(Debug, clap::Args)]
pub struct RunArguments {
    #[command(flatten)]
    pool: NewPoolArguments,
    /// Treatment of the results if the script fails
    #[arg(long, value_enum, default_value = "stage-out")]
    on_failure: OnFailure,
    /// The job's id [default: generated]
    #[arg(long, value_name = "ID")]
    job_id: Option<String>,
    /// The account for which the job's instances count [default: $SLURM_JOB_ACCOUNT, if set]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Serve metrics for Prometheus at this address while the job runs, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<std::net::SocketAddr>,
    /// Compute nodes on which the buffer is mounted [default: this one]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    hosts: Vec<String>,
    /// The job script; `-` for standard input
    script: PathBuf,
    /// Arguments of the script
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Arguments of `forebay stage`.
#[derive(Debug, clap::Args)]
pub struct StageArguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Name of the persistent instance, or id of the job
    #[arg(long, value_name = "NAME")]
    instance: String,
    /// Type of the staged item
    #[arg(long = "type", value_enum, default_value = "file")]
    kind: StageKind,
    /// The direction
    #[arg(value_enum)]
    direction: Direction,
    /// A path of the parallel file system for `in`, of the instance for `out`
    source: String,
    /// A path of the instance for `in`, of the parallel file system for `out`
    destination: String,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("write a number from 0.1 to 3600".to_owned()),
    }
}

/// Makes a path of the parallel file system absolute, for daemons with another working directory.
/// `..` and everything before it is resolved as the system does; links after it are left alone,
/// because the destination need not exist yet.
fn resolve_pfs_path(path: &str) -> Result<String, String> {
    let Ok(absolute) = std::path::absolute(path) else {
        // An empty path, which is refused later with a better message.
        return Ok(path.to_owned());
    };
    let parts: Vec<Component<'_>> = absolute.components().collect();
    let last_parent = parts.iter().rposition(|part| *part == Component::ParentDir);
    let Some(last_parent) = last_parent else {
        return Ok(absolute.display().to_string());
    };
    let (above, rest) = parts.split_at(last_parent + 1);
    let above: PathBuf = above.iter().collect();
    let resolved = above.canonicalize().map_err(|error| {
        let above = above.display();
        format!("`{path}`: cannot resolve `{above}`: {error}")
    })?;
    let whole = resolved.join(rest.iter().collect::<PathBuf>());
    Ok(whole.display().to_string())
}

impl StageArguments {
    fn stage(&self) -> Result<Stage, String> {
        let (pfs, inside) = match self.direction {
            Direction::In => (&self.source, &self.destination),
            Direction::Out => (&self.destination, &self.source),
        };
        let pfs = resolve_pfs_path(pfs)?;
        // The session decides which instance is meant: it has only one.
        Stage::new(self.direction, self.kind, InstanceRef::Job, &pfs, inside)
    }
}

/// Runs a command and prints its error.
pub fn run(command: JobCommand) -> ExitCode {
    let mut terminal = Terminal::default();
    let outcome = execute(command, &mut terminal);
    terminal.clear();
    match outcome {
        Ok(code) => code,
        Err(error) => {
            print_stderr(format_args!("error: {error}"));
            ExitCode::from(match error {
                RunError::Interrupted { signal, .. } | RunError::StageCancelled { signal, .. } => {
                    128u8.saturating_add(u8::try_from(signal).unwrap_or_default())
                }
                error => 1 + u8::from(error.is_bad_input()),
            })
        }
    }
}

fn execute(command: JobCommand, terminal: &mut Terminal) -> Result<ExitCode, RunError> {
    match command {
        JobCommand::Run(arguments) => execute_run(arguments, terminal),
        JobCommand::Status { pool, job: Some(job), json } => {
            show_job_usage(&pool.selection()?, Some(&job), json)
        }
        JobCommand::Status { pool, job: None, json } => {
            let pool = pool.selection()?;
            let status = pool_status(&pool)?;
            Ok(print_answer(&if json {
                serde_json::to_string_pretty(&status).unwrap_or_default() + "\n"
            } else {
                show::status(&status, now(), &pool.option())
            }))
        }
        JobCommand::Top { pool, once, interval } => {
            Ok(show_top(&pool.selection()?, once, interval))
        }
        JobCommand::Recover { pool, discard, job_id, force } => {
            let options = RecoverOptions { job: job_id.as_deref(), discard, force };
            let pool = pool.selection()?;
            let list = recover(&pool, options, terminal)?;
            terminal.clear();
            let printed = print_answer(&show::recovered(&list, &pool.option()));
            let is_kept = |one: &Recovered| matches!(one.recovery, Recovery::Kept(_));
            Ok(if list.iter().any(is_kept) { ExitCode::FAILURE } else { printed })
        }
        JobCommand::Stage(arguments) => {
            let stage = arguments.stage().map_err(RunError::Usage)?;
            let pool = arguments.pool.selection()?;
            let moved = stage_now(&pool, &arguments.instance, stage, terminal)?;
            terminal.clear();
            Ok(print_answer(&(show::staged(&moved) + "\n")))
        }
        JobCommand::Pool(command) => pool::execute(command),
    }
}

/// A temporary file with the script from standard input, for its owner only.
fn script_from_stdin() -> Result<NamedTempFile, RunError> {
    let copy = || {
        let mut file = tempfile::Builder::new().prefix("forebay-script-").tempfile()?;
        std::io::copy(&mut std::io::stdin().lock(), file.as_file_mut())?;
        Ok(file)
    };
    copy().map_err(|error| RunError::Unreadable(PathBuf::from("-"), error))
}

/// The account of the Slurm job that this process belongs to.
fn account_of_slurm_job() -> Option<String> {
    std::env::var("SLURM_JOB_ACCOUNT").ok().filter(|account| !account.is_empty())
}

/// Runs a job and prints its summary. The exit code is that of its script.
fn execute_run(arguments: RunArguments, terminal: &mut Terminal) -> Result<ExitCode, RunError> {
    let stdin = match arguments.script.as_os_str() == "-" {
        true => Some(script_from_stdin()?),
        false => None,
    };
    let options = RunOptions {
        pool: arguments.pool.selection()?,
        hosts: arguments.hosts,
        script: stdin.as_ref().map_or(arguments.script, |file| file.path().to_owned()),
        arguments: arguments.arguments,
        token: arguments.job_id,
        account: arguments.account.or_else(account_of_slurm_job),
        on_failure: arguments.on_failure,
        metrics: arguments.metrics,
    };
    let report = run_job(&options, terminal)?;
    terminal.clear();
    print_stderr(format_args!("\n{}", show::summary(&report).trim_end()));
    if report.code != 0 {
        print_stderr(format_args!("the script ended with status {}", report.code));
    }
    if report.kept {
        print_stderr(format_args!(
            "its results are kept in the pool as job {}; `{}` stages them out",
            report.token,
            JobInPool::new(&report.token, &options.pool).recover()
        ));
    }
    Ok(ExitCode::from(u8::try_from(report.code).unwrap_or(1)))
}

/// Prints statistics of a job, or of all.
pub(super) fn show_job_usage(
    pool: &PoolSelection,
    job: Option<&str>,
    json: bool,
) -> Result<ExitCode, RunError> {
    let usage = job_usage(pool, job)?;
    if let (Some(job), true) = (job, usage.is_empty()) {
        let reason = format!("no job `{job}` is known: it does not exist, or ended long ago");
        return Err(RunError::Step("status", Failure::new(Cause::NotFound, reason)));
    }
    Ok(print_answer(&if json {
        serde_json::to_string_pretty(&usage).unwrap_or_default() + "\n"
    } else {
        show::job_usage(&usage, now())
    }))
}

fn show_top(pool: &PoolSelection, once: bool, interval: Duration) -> ExitCode {
    let (PoolSelection::Embedded(EmbeddedPoolOptions { directory: path, .. })
    | PoolSelection::Shared(path)) = pool;
    let name = std::path::absolute(path);
    let options =
        TopOptions { name: name.as_deref().unwrap_or(path).display().to_string(), interval, once };
    let mut source = || pool_status(pool).map_err(|error| error.to_string());
    match top(&options, &mut source) {
        Ok(text) => print_answer(&text.unwrap_or_default()),
        Err(failure) => print_failure(&failure),
    }
}

fn now() -> UnixMillis {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ms = since_1970.unwrap_or_default().as_millis();
    UnixMillis(u64::try_from(ms).unwrap_or(u64::MAX))
}
