//! `forebay darshan` and `forebay sim darshan`: logs of Darshan.

mod show;
mod sim;
mod summary;

pub(super) use sim::DarshanArgs;

use clap::{Args, Subcommand};
use forebay_console::Failure;
use forebay_darshan_log::Log;
use forebay_workload::darshan::{self, JobIo};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Commands of `forebay darshan`.
#[derive(Debug, Subcommand)]
pub(super) enum DarshanCommand {
    /// Summarize a log: the run, its I/O by interface, pattern, size and file system, the phases that are simulated
    Show(ShowArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        forebay darshan show ada_solve_id4711_7-31.darshan\n  \
        forebay darshan show ada_solve_id4711_7-31.darshan --json | jq .phases\n\n\
        docs/darshan.md describes the figures.")]
pub(super) struct ShowArgs {
    /// The log
    log: PathBuf,
    /// Files with most bytes to list
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16))]
    files: u16,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &DarshanCommand) -> Result<(), Failure> {
    match command {
        DarshanCommand::Show(args) => show::run(args),
    }
}

/// Opens a log.
fn open(path: &Path) -> Result<Log<File>, Failure> {
    let file =
        File::open(path).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    Log::open(file).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}

/// Reads the I/O of a log, and the command line of the program.
pub(super) fn read_io(path: &Path) -> Result<(JobIo, String), Failure> {
    let mut log = open(path)?;
    let io = darshan::read(&mut log)
        .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    Ok((io, printable(&log.job().command)))
}

/// Text from a log without control characters, which could change a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// The file name of a log.
pub(super) fn log_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    printable(&name.unwrap_or_default())
}

/// Nodes and processes per node of a log's job.
pub(super) fn distribution(
    io: &JobIo,
    nodes: Option<u32>,
    ppn: Option<u32>,
) -> Result<(u32, u32), Failure> {
    let Some((nodes, ppn)) = io.distribution(nodes, ppn) else {
        return Err(Failure::Input(format!(
            "the log does not name the hosts of its {} processes: give --nodes or --ppn",
            io.processes
        )));
    };
    if u64::from(nodes) * u64::from(ppn) < u64::from(io.processes) {
        return Err(Failure::Input(format!(
            "--nodes {nodes} with {ppn} processes each are fewer than the {} processes of the log",
            io.processes
        )));
    }
    Ok((nodes, ppn))
}
