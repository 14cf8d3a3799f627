//! `forebay-workflow`: the controller of workflows, and what Slurm calls on its hosts.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Parser, Subcommand};
use forebay_console::log::{self, LogArguments};
use forebay_console::{Failure, print_stderr};
use forebay_workflow::config::{SiteConfig, selected_file};
use forebay_workflow::controller::Controller;
use forebay_workflow_script::NornsScript;

/// Longest script that is checked, in bytes. Slurm's own limit is 4 MiB.
const MAX_SCRIPT_BYTES: u64 = 16 << 20;

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
    /// Check the #NORNS lines of a job script
    Check {
        /// The script; `-` for standard input
        script: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_stderr(format_args!("error: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    log::start(&arguments.log, std::io::stderr)?;
    let file = selected_file(arguments.config.clone());
    let config = SiteConfig::read(&file).map_err(|error| Failure::Input(error.to_string()))?;
    match &arguments.command {
        Command::Controller => run_controller(&config),
        Command::Check { script } => check(&config, script),
    }
}

fn run_controller(config: &SiteConfig) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Registration fails only for signals that cannot be caught.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    let controller = Controller::start(config).map_err(Failure::Failed)?;
    print_stderr("forebay-workflow: the controller is running");
    controller.run(&stop);
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
    read.map_err(|error| Failure::io("read", file, error))?;
    let text = String::from_utf8_lossy(&bytes);
    let script = NornsScript::parse(&text).map_err(|error| Failure::Input(error.to_string()))?;
    let unknown = config.problems_of(&script);
    if unknown.is_empty() { Ok(()) } else { Err(Failure::Input(unknown.join("\n"))) }
}
