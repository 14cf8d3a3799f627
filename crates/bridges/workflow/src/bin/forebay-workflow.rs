//! `forebay-workflow`: the controller of workflows, and what Slurm calls on its hosts.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use forebay_console::log::{self, LogArguments};
use forebay_console::{Failure, manual, print_stderr};
use forebay_workflow::config::{SiteConfig, selected_file};
use forebay_workflow::controller::Controller;
use forebay_workflow::job::NodeJob;
use forebay_workflow::{acl, directories, node_server, slurm};
use forebay_workflow_script::NornsScript;

/// Longest script that is checked, in bytes. Slurm's own limit is 4 MiB.
const MAX_SCRIPT_BYTES: u64 = 16 << 20;

/// Interval at which the main thread checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Parser)]
#[command(
    name = "forebay-workflow",
    version,
    about = "Workflows of Slurm jobs: the site's side",
    after_help = "Exit codes: 0 done, 1 failed, 2 invalid input."
)]
struct Arguments {
    #[command(flatten)]
    log: LogArguments,
    /// The site's configuration [default: $FOREBAY_WORKFLOW, or /etc/forebay/workflow.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow Slurm's queue and keep the workflows; one per cluster
    Controller,
    /// Serve the data on this node; on each compute node
    Node,
    /// Prepare a job on this node: Slurm's Prolog
    Prolog,
    /// Stage out a job's results on this node: Slurm's Epilog
    Epilog,
    /// Move the entries of a directory
    #[command(hide = true)]
    Merge {
        /// The directory
        from: PathBuf,
        /// Its target
        to: PathBuf,
    },
    /// Let a user or group read files
    #[command(hide = true)]
    SetReader {
        /// A file or directory
        path: PathBuf,
        /// Number of a user, or `group:` and the number of a group
        reader: String,
        /// `allow` or `deny`
        permission: String,
    },
    /// Check the #NORNS lines of a job script
    Check {
        /// The script; `-` for standard input
        script: PathBuf,
    },
}

fn main() -> ExitCode {
    if let Some(code) = manual::generate_if_requested(Arguments::command(), 8) {
        return code;
    }
    Failure::exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    log::start(&arguments.log, std::io::stderr)?;
    let failed = |error: String| Failure::Failed(error);
    let config = || {
        let file = selected_file(arguments.config.clone());
        SiteConfig::read(&file).map_err(|error| Failure::Input(error.to_string()))
    };
    match &arguments.command {
        Command::Controller => run_controller(&config()?),
        Command::Node => {
            let _listener = node_server::start(&config()?).map_err(failed)?;
            print_stderr("forebay-workflow: the server of this node is running");
            wait_for(&stop_signal());
            Ok(())
        }
        Command::Prolog => with_job(&config, |job| {
            let outcome = job.prepare();
            if outcome.is_err() {
                // The job must not run without its data. A failed prolog would drain the node.
                slurm::run("scancel", &[&job.job.to_string()])?;
            }
            outcome
        }),
        Command::Epilog => with_job(&config, |job| job.finish()),
        Command::Merge { from, to } => directories::merge_entries(from, to).map_err(failed),
        Command::SetReader { path, reader, permission } => {
            let id = reader.strip_prefix("group:").unwrap_or(reader);
            let id = id.parse().map_err(|_| Failure::Input(format!("`{id}` is no number")))?;
            let entry = (reader.starts_with("group:"), id);
            acl::set_reader(path, entry, permission == "allow").map_err(failed)
        }
        Command::Check { script } => check(&config()?, script),
    }
}

/// Runs something with the job of this prolog or epilog, if it is a workflow job. Failures are printed
/// only: Slurm would take the node out of service.
fn with_job(
    config: &dyn Fn() -> Result<SiteConfig, Failure>,
    work: impl FnOnce(&NodeJob<'_>) -> Result<(), String>,
) -> Result<(), Failure> {
    const OPTION: &str = "SPANK__SLURM_SPANK_OPTION_forebay_workflow_";
    if !std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with(OPTION)) {
        return Ok(());
    }
    let variable = |name: &str| {
        let missing = || Failure::Input(format!("{name} is not set: Slurm runs this command"));
        std::env::var(name).ok().ok_or_else(missing)
    };
    let id = variable("SLURM_JOB_ID")?;
    let job = id.parse().map_err(|_| Failure::Input(format!("SLURM_JOB_ID is `{id}`")))?;
    let config = config()?;
    let auth = config.authenticator().map_err(Failure::Failed)?;
    let node = variable("SLURMD_NODENAME")?;
    let outcome = work(&NodeJob { config: &config, auth, job, node });
    if let Err(error) = outcome {
        print_stderr(format_args!("forebay-workflow: job {job}: {error}"));
    }
    Ok(())
}

fn stop_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Registration fails only for signals that cannot be caught.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}

fn wait_for(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn run_controller(config: &SiteConfig) -> Result<(), Failure> {
    let controller = Controller::start(config).map_err(Failure::Failed)?;
    print_stderr("forebay-workflow: the controller is running");
    controller.run(&stop_signal());
    Ok(())
}

fn check(config: &SiteConfig, file: &PathBuf) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(MAX_SCRIPT_BYTES).read_to_end(&mut bytes)
    } else {
        let opened = fs::File::open(file);
        opened.and_then(|file| file.take(MAX_SCRIPT_BYTES).read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::Input(format!("{}: {error}", file.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    let script = NornsScript::parse(&text).map_err(|error| Failure::Input(error.to_string()))?;
    let unknown = config.problems_of(&script);
    if unknown.is_empty() { Ok(()) } else { Err(Failure::Input(unknown.join("\n"))) }
}
