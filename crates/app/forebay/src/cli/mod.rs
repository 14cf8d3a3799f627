//! The command line.

mod adhoc;
mod admin;
mod collective;
mod darshan;
mod file_system;
mod forecast;
mod interference;
mod ior;
mod job;
pub(crate) mod jobs;
mod logged;
mod machine;
mod measure;
mod mpiio_log;
pub mod nodes;
mod observe;
mod options;
mod output;
mod plan;
mod pool;
mod remarks;
mod replicates;
mod scrub;
mod sensitivity;
mod sessions;
mod simulation;
mod store;
mod study;
pub(crate) mod sweep;
mod sweep_values;
mod traffic;
mod validate;
mod validate_fidelity;
mod validate_ior;
mod validate_messages;
mod validate_network;
mod wlm;
mod workflow;

use crate::console::{LogWriter, print_failure};
use crate::interrupt;
use clap::{CommandFactory, Parser, Subcommand};
use forebay_console::log::{self, LogArguments};
use forebay_console::{Failure, manual};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    about = "A burst buffer for HPC clusters, and its digital twin",
    after_help = "Examples:\n  \
        forebay run examples/checkpoint.sh\n  \
        forebay adhoc --hosts n[1-4] --local /local/scratch -- ./simulate\n  \
        forebay machine list\n  \
        forebay sim ior --machine trinity-phase2 --nodes 1..8192 -- -a POSIX -F -w -t 1m -b 64m\n  \
        forebay sim traffic --machine theta --pattern uniform --message 4KiB --load 0.3\n  \
        forebay plan job.sh --machine cori -- -a POSIX -F -w -t 1m -b 4g\n  \
        forebay validate --quick\n\n\
        FOREBAY_LOG is the log filter: error, warn, info, debug, trace, or such as\n\
        forebay_store=debug,warn\n\n\
        Exit codes: 0 done, 1 failed, 2 invalid input, 130 interrupted; `forebay run` exits with the\n\
        code of the job's script, if it could run it."
)]
struct Cli {
    #[command(flatten)]
    log: LogArguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a process parses one command")]
enum Command {
    /// Look at the machines that can be simulated, and check machine files
    #[command(subcommand)]
    Machine(machine::MachineCommand),
    /// Simulate: IOR, Darshan logs, traffic, collective operations, or two of them on one machine; a queue
    /// of jobs
    #[command(subcommand)]
    Sim(Box<SimCommand>),
    /// Predict a job's I/O on burst buffers of several sizes, and recommend a #DW line
    #[command(args_override_self = true)]
    Plan(Box<plan::PlanArgs>),
    /// Measure the rates of a running pool's nodes and of the parallel file system, for `plan --pool`
    Measure(measure::MeasureArgs),
    /// Simulate several jobs alone, in pairs and together, with measures against their interference;
    /// or variations of a machine, from a TOML file
    Study(study::StudyArgs),
    /// Simulate the published cases and compare them with the measurements
    Validate(validate::ValidateArgs),
    #[command(flatten)]
    Job(job::JobCommand),
    /// Run a program in a buffer of your own on the hosts of an allocation
    Adhoc(adhoc::AdhocArguments),
    /// Show what a job script would get, without running it
    Check(wlm::CheckArguments),
    /// Make a call of the interface for batch systems: JSON in, JSON out
    Wlm(wlm::WlmArguments),
    /// Show workflows of Slurm jobs
    #[command(subcommand)]
    Workflow(workflow::WorkflowCommand),
    /// Show logs of Darshan; `sim darshan` and `plan --darshan` simulate them
    #[command(subcommand)]
    Darshan(darshan::DarshanCommand),
    /// List, check, replay or discard logs of MPI-IO writes
    #[command(subcommand)]
    Log(mpiio_log::LogCommand),
    /// Compare the data on a storage node with its checksums
    Scrub(scrub::ScrubArgs),
    /// Examine or repair the directory of a storage daemon that is stopped
    #[command(subcommand)]
    Store(store::StoreCommand),
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// IOR, by its own command line, at one or several node counts
    #[command(args_override_self = true)]
    Ior(ior::IorArgs),
    /// The I/O of a Darshan log: its phases as tests of IOR, beside what the log measured
    #[command(args_override_self = true)]
    Darshan(darshan::DarshanArgs),
    /// Synthetic traffic on the network alone
    #[command(args_override_self = true)]
    Traffic(traffic::TrafficArgs),
    /// A collective operation of MPI, alone and beside traffic or IOR
    #[command(args_override_self = true)]
    Collective(collective::CollectiveArgs),
    /// IOR and traffic on one machine, each also alone
    #[command(args_override_self = true)]
    Interference(interference::InterferenceArgs),
    /// A queue of jobs from a trace, on nodes and a shared burst buffer, under several scheduling policies
    #[command(args_override_self = true)]
    Jobs(jobs::JobsArgs),
}

/// Runs the command and returns its exit code.
pub fn main() -> ExitCode {
    if let Some(code) = manual::generate_if_requested(Cli::command(), 1) {
        return code;
    }
    // clap prints the help or an error and exits with 0 or 2.
    let cli = Cli::parse();
    if let Err(failure) = log::start(&cli.log, || LogWriter) {
        return print_failure(&failure);
    }
    let outcome = match cli.command {
        // Jobs handle signals themselves and have exit codes of their own.
        Command::Job(command) => return job::run(command),
        Command::Adhoc(arguments) => return adhoc::run(arguments),
        // Runs a job, which handles signals.
        Command::Measure(arguments) => {
            return match measure::run(arguments) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => print_failure(&failure),
            };
        }
        // A batch system stops a call by killing it.
        Command::Wlm(arguments) => return wlm::run(&arguments),
        command => run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    interrupt::watch_signals()?;
    match command {
        Command::Machine(command) => machine::run(command),
        Command::Sim(command) => match *command {
            SimCommand::Ior(args) => ior::run(args),
            SimCommand::Darshan(args) => simulation::run(&args),
            SimCommand::Traffic(args) => simulation::run(&args),
            SimCommand::Collective(args) => simulation::run(&args),
            SimCommand::Interference(args) => simulation::run(&args),
            SimCommand::Jobs(args) => jobs::run(args),
        },
        Command::Plan(args) => plan::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Validate(args) => validate::run(args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Store(command) => store::run(&command),
        Command::Workflow(command) => workflow::run(command),
        Command::Log(command) => mpiio_log::run(command),
        Command::Darshan(command) => darshan::run(&command),
        Command::Check(args) => wlm::check(&args),
        Command::Job(_) | Command::Adhoc(_) | Command::Wlm(_) | Command::Measure(_) => {
            unreachable!("main runs the commands of jobs")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
