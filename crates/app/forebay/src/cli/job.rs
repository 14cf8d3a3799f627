//! `forebay run SCRIPT`, `status`, `recover`, `stage`: jobs on a burst buffer, in a directory or
//! over several hosts.

use std::ffi::OsString;
use std::path::{Component, PathBuf};
use std::process::ExitCode;

use crate::show::{self, Terminal};
use clap::{Subcommand, ValueEnum};
use forebay_daemon::embedded::EmbeddedPoolOptions;
use forebay_job::{
    OnFailure, PoolSelection, Recovered, Recovery, RunError, RunOptions, pool_status, recover,
    run_job, stage_now,
};
use forebay_job_script::{Direction, JobScript};

use crate::console::print_stderr;
use crate::top::{TopOptions, top};

use super::pool::{self, PoolArguments, PoolCommand};
use super::print_answer;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Failed {
    /// Stage out all the same
    StageOut,
    /// Keep the results in the pool for `recover`
    Keep,
    /// Destroy them; a job that was in the pool before keeps what it has
    Discard,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Way {
    /// Into the buffer
    In,
    /// Out of the buffer
    Out,
}

/// What can be done with jobs and their pool.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Run a job script: allocate, stage in, mount, run, stage out, tear down
    Run {
        #[command(flatten)]
        pool: PoolArguments,
        /// What becomes of the results if the script fails
        #[arg(long, value_enum, default_value = "stage-out")]
        on_failure: Failed,
        /// The job's id [default: one is made up]
        #[arg(long, value_name = "ID")]
        job_id: Option<String>,
        /// Serve metrics for Prometheus at this address while it runs, such as 127.0.0.1:9464
        #[arg(long, value_name = "ADDRESS")]
        metrics: Option<std::net::SocketAddr>,
        /// Compute nodes on which the buffer is mounted [default: this one]
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        hosts: Vec<String>,
        /// The job script
        script: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Show pool, nodes, instances and stages
    Status {
        #[command(flatten)]
        pool: PoolArguments,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the same live, with rates and latencies
    Top {
        #[command(flatten)]
        pool: PoolArguments,
        /// Print one frame and end, as where there is no terminal
        #[arg(long)]
        once: bool,
        /// Seconds between frames, 0.1 to 3600
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
        interval: std::time::Duration,
    },
    /// Stage out what interrupted jobs left and take them down
    Recover {
        #[command(flatten)]
        pool: PoolArguments,
        /// Destroy their results instead
        #[arg(long)]
        discard: bool,
        /// This job only; needed in a pool over several hosts
        #[arg(long, value_name = "ID")]
        job_id: Option<String>,
    },
    /// Stage into or out of a persistent instance or of a job that is kept
    Stage {
        #[command(flatten)]
        pool: PoolArguments,
        /// Name of the persistent instance or id of the job
        #[arg(long, value_name = "NAME")]
        instance: String,
        /// file, directory or list
        #[arg(long = "type", default_value = "file")]
        kind: String,
        /// Which way
        #[arg(value_enum)]
        way: Way,
        /// From where: a path of the parallel file system for `in`, in the instance for `out`
        source: String,
        /// To where: a path in the instance for `in`, of the parallel file system for `out`
        destination: String,
    },
    #[command(flatten)]
    Pool(PoolCommand),
}

fn seconds(text: &str) -> Result<std::time::Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => {
            Ok(std::time::Duration::from_secs_f64(seconds))
        }
        _ => Err("write a number from 0.1 to 3600".to_owned()),
    }
}

/// A path of the parallel file system as others find it, who may be in another directory: absolute,
/// and without `..`, which is followed as the system does it. Symbolic links behind that are left
/// as they are: what is to be made need not be there yet.
fn outside(path: &str) -> Result<String, String> {
    let Ok(absolute) = std::path::absolute(path) else {
        // An empty one, which is refused with a better reason.
        return Ok(path.to_owned());
    };
    let parts: Vec<Component<'_>> = absolute.components().collect();
    let up = parts.iter().rposition(|part| *part == Component::ParentDir);
    let Some(up) = up else {
        return Ok(absolute.display().to_string());
    };
    let (above, rest) = parts.split_at(up + 1);
    let above: PathBuf = above.iter().collect();
    let found = above.canonicalize();
    let found = found.map_err(|error| {
        let above = above.display();
        format!("`{path}`: where `{above}` leads cannot be told: {error}")
    })?;
    let whole = found.join(rest.iter().collect::<PathBuf>());
    Ok(whole.display().to_string())
}

/// The stage that the arguments describe, read as the directive that they are short for.
fn directive(
    way: Way,
    kind: &str,
    source: &str,
    destination: &str,
) -> Result<forebay_job_script::Stage, String> {
    let inside = |path: &str| format!("$DW_JOB_STRIPED/{}", path.trim_start_matches('/'));
    let (name, source, destination) = match way {
        Way::In => ("stage_in", outside(source)?, inside(destination)),
        Way::Out => ("stage_out", inside(source), outside(destination)?),
    };
    let blank = |text: &&String| text.contains(char::is_whitespace);
    if let Some(path) = [&source, &destination].into_iter().find(blank) {
        return Err(format!(
            "`{path}` contains blanks, which a stage's path cannot"
        ));
    }
    let text = format!(
        "#DW jobdw capacity=1K type=scratch access_mode=striped\n#DW {name} type={kind} source={source} destination={destination}\n"
    );
    let script = JobScript::parse(&text, None);
    let script = script.map_err(|errors| {
        let told: Vec<String> = errors
            .0
            .iter()
            .map(|e| format!("{}; {}", e.problem, e.remedy))
            .collect();
        told.join("\n")
    })?;
    let direction = match way {
        Way::In => Direction::In,
        Way::Out => Direction::Out,
    };
    let stage = script.stages(direction).next().cloned();
    let mut stage = stage.ok_or_else(|| "no stage".to_owned())?;
    // It stands in no script.
    stage.line = 0;
    Ok(stage)
}

/// Runs a command; errors are told on standard error.
pub fn run(command: JobCommand) -> ExitCode {
    let mut terminal = Terminal::default();
    let outcome = execute(command, &mut terminal);
    terminal.finish();
    match outcome {
        Ok(code) => code,
        Err(error) => {
            print_stderr(format_args!("error: {error}"));
            match error {
                RunError::Interrupted(..) => ExitCode::from(130),
                error if error.is_bad_input() => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Milliseconds since 1970.
fn now() -> forebay_control::messages::UnixMillis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.unwrap_or_default().as_millis();
    forebay_control::messages::UnixMillis(u64::try_from(millis).unwrap_or(u64::MAX))
}

fn show_top(pool: &PoolSelection, once: bool, interval: std::time::Duration) -> ExitCode {
    let (PoolSelection::Embedded(EmbeddedPoolOptions {
        directory: path, ..
    })
    | PoolSelection::Shared(path)) = pool;
    let name = std::path::absolute(path);
    let options = TopOptions {
        name: name.as_deref().unwrap_or(path).display().to_string(),
        interval,
        once,
    };
    let mut source = || pool_status(pool).map_err(|error| error.to_string());
    match top(&options, &mut source) {
        Ok(text) => print_answer(&text.unwrap_or_default()),
        Err(failure) => super::fail(&failure),
    }
}

fn execute(command: JobCommand, terminal: &mut Terminal) -> Result<ExitCode, RunError> {
    match command {
        JobCommand::Run {
            pool,
            on_failure,
            job_id,
            metrics,
            hosts,
            script,
            arguments,
        } => {
            let on_failure = match on_failure {
                Failed::StageOut => OnFailure::StageOut,
                Failed::Keep => OnFailure::Keep,
                Failed::Discard => OnFailure::Discard,
            };
            let options = RunOptions {
                pool: pool.which()?,
                hosts,
                script,
                arguments,
                token: job_id,
                on_failure,
                metrics,
            };
            run_to_end(&options, terminal)
        }
        JobCommand::Status { pool, json } => {
            let found = pool_status(&pool.which()?)?;
            Ok(print_answer(&if json {
                serde_json::to_string_pretty(&found).unwrap_or_default() + "\n"
            } else {
                show::status(&found, now())
            }))
        }
        JobCommand::Top {
            pool,
            once,
            interval,
        } => Ok(show_top(&pool.which()?, once, interval)),
        JobCommand::Recover {
            pool,
            discard,
            job_id,
        } => {
            let list = recover(&pool.which()?, job_id.as_deref(), discard, terminal)?;
            terminal.finish();
            let told = print_answer(&show::recovered(&list));
            let kept = |one: &Recovered| matches!(one.recovery, Recovery::Kept(_));
            Ok(if list.iter().any(kept) {
                ExitCode::FAILURE
            } else {
                told
            })
        }
        JobCommand::Stage {
            pool,
            instance,
            kind,
            way,
            source,
            destination,
        } => match directive(way, &kind, &source, &destination) {
            Ok(what) => {
                let moved = stage_now(&pool.which()?, &instance, what, terminal)?;
                terminal.finish();
                Ok(print_answer(&(show::staged(&moved) + "\n")))
            }
            Err(reason) => {
                print_stderr(format_args!("error: {reason}"));
                Ok(ExitCode::from(2))
            }
        },
        JobCommand::Pool(command) => pool::execute(command),
    }
}

/// Runs a job, and says how it went. The exit code is that of its script.
fn run_to_end(options: &RunOptions, terminal: &mut Terminal) -> Result<ExitCode, RunError> {
    let report = run_job(options, terminal)?;
    terminal.finish();
    print_stderr(format_args!("\n{}", show::summary(&report).trim_end()));
    if report.code != 0 {
        print_stderr(format_args!("the script ended with status {}", report.code));
    }
    if report.kept {
        print_stderr(format_args!(
            "its results are kept in the pool as job {}; `forebay recover` stages them out",
            report.token
        ));
    }
    Ok(ExitCode::from(u8::try_from(report.code).unwrap_or(1)))
}
