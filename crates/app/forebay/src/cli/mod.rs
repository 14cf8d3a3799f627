//! What can be typed.

mod interference;
mod ior;
mod job;
mod machine;
pub mod nodes;
mod options;
mod output;
mod pool;
mod scrub;
mod serve;
mod traffic;
mod validate;

use crate::console::{print_stderr, print_stdout};
use crate::failure::Failure;
use crate::interrupt;
use crate::log::{self, LogArguments};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The version in result documents and in `--version`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    about = "A burst buffer for HPC clusters, and its digital twin",
    after_help = "Examples:\n  \
        forebay run examples/checkpoint.sh\n  \
        forebay machine list\n  \
        forebay sim ior --machine trinity-phase2 --nodes 1..8192 -- -a POSIX -F -w -t 1m -b 64m\n  \
        forebay sim traffic --machine theta --pattern uniform --message 4KiB --load 0.3\n  \
        forebay validate --quick\n\n\
        FOREBAY_LOG says what is logged: error, warn, info, debug, trace, or such as\n\
        forebay_store=debug,warn\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted; that of the job's script, if\n\
        `forebay run` could run it."
)]
struct Cli {
    #[command(flatten)]
    log: LogArguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at the machines that can be simulated, and check machine files
    #[command(subcommand)]
    Machine(machine::MachineCommand),
    /// Simulate: IOR, traffic, or both on one machine
    #[command(subcommand)]
    Sim(SimCommand),
    /// Run the published cases and show measured and simulated side by side
    Validate(validate::ValidateArgs),
    #[command(flatten)]
    Job(job::JobCommand),
    /// Compare the data on a storage node with their checksums
    Scrub(scrub::ScrubArgs),
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// IOR, by its own command line, at one or several node counts
    Ior(ior::IorArgs),
    /// Synthetic traffic on the network alone
    Traffic(traffic::TrafficArgs),
    /// IOR and traffic on one machine, each also alone
    Interference(interference::InterferenceArgs),
}

/// Runs the command that was typed and says how it went.
pub fn main() -> ExitCode {
    // clap prints what is wrong, or the help that was asked for, and exits with 2 or 0.
    let cli = Cli::parse();
    if let Err(failure) = log::start(&cli.log) {
        return fail(&failure);
    }
    let outcome = match cli.command {
        // Jobs end in their own order when they are interrupted, and have their own exit codes.
        Command::Job(command) => return job::run(command),
        command => run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    print_stderr(format_args!("error: {failure}"));
    ExitCode::from(failure.exit_code())
}

fn run(command: Command) -> Result<(), Failure> {
    interrupt::watch_signals()?;
    match command {
        Command::Machine(command) => machine::run(command),
        Command::Sim(SimCommand::Ior(args)) => ior::run(args),
        Command::Sim(SimCommand::Traffic(args)) => traffic::run(args),
        Command::Sim(SimCommand::Interference(args)) => interference::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Job(_) => unreachable!("jobs are run before"),
    }
}

/// Prints the answer of a command that has done its work.
fn print_answer(text: &str) -> ExitCode {
    match print_stdout(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
