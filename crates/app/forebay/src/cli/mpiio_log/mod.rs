//! `forebay log`: logs of MPI-IO writes that programs left.

mod list;
mod replay;
mod variables;

use crate::console::print_stdout;
use clap::{Args, Subcommand};
use forebay_console::Failure;
use forebay_mpiio_log::{Damage, ScanError, ScannedLog, is_in_use, logs, scan};
use forebay_units::Bytes;
use forebay_units::human::grouped;
use std::path::{Path, PathBuf};

/// Commands of `forebay log`.
#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    /// List the logs in directories: the file, the process, what is not in the file yet
    List {
        #[command(flatten)]
        directories: Directories,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Verify all checksums; exit code 1 if a synced write is damaged
    Check {
        #[command(flatten)]
        directories: Directories,
    },
    /// List the variables of NetCDF files (CDF-1, 2 and 5) and the subarrays of each logged write
    Variables {
        #[command(flatten)]
        directories: Directories,
    },
    /// Write what the logs contain to the files, and remove the logs
    Replay(ReplayArguments),
    /// Remove logs without writing what they contain
    Discard {
        /// Directory with logs
        directory: PathBuf,
        /// Only the logs of this file
        #[arg(long)]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(super) struct Directories {
    /// Directories with logs
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArguments {
    #[command(flatten)]
    directories: Directories,
    /// Only the logs of this file
    #[arg(long)]
    file: Option<PathBuf>,
    /// Replay the valid writes of damaged logs, too, and keep these logs
    #[arg(long)]
    skip_damaged: bool,
    /// Replay also the logs of files that were created after them
    #[arg(long)]
    replaced: bool,
    /// Stripe size of the parallel file system; long writes end at its multiples
    #[arg(long, default_value = "1MiB")]
    stripe: Bytes,
    /// Longest write
    #[arg(long, default_value = "16MiB")]
    largest: Bytes,
}

pub(super) fn run(command: LogCommand) -> Result<(), Failure> {
    match command {
        LogCommand::List { directories, json } => list::list(&directories.directories, json),
        LogCommand::Check { directories } => check(&directories.directories),
        LogCommand::Variables { directories } => variables::variables(&directories.directories),
        LogCommand::Replay(arguments) => replay::replay_logs(arguments),
        LogCommand::Discard { directory, file } => {
            replay::discard_logs(&directory, file.as_deref())
        }
    }
}

/// A log and what a scan found.
struct Found {
    path: PathBuf,
    contents: Result<ScannedLog, ScanError>,
    in_use: bool,
}

/// Checks that a directory of the command line is there.
fn check_directory(path: &Path) -> Result<(), Failure> {
    match path.metadata() {
        Ok(about) if about.is_dir() => Ok(()),
        Ok(_) => Err(Failure::Input(format!("{}: not a directory", path.display()))),
        Err(error) => Err(Failure::Input(format!("{}: {error}", path.display()))),
    }
}

/// Scans the logs in directories.
fn find(directories: &[PathBuf]) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for directory in directories {
        check_directory(directory)?;
        let paths = logs(directory).map_err(|error| Failure::io("read", directory, error))?;
        for path in paths {
            // A log that cannot be opened, of another user, does not hide the others.
            let (in_use, contents) = match is_in_use(&path) {
                Ok(in_use) => (in_use, scan(&path)),
                Err(error) => (false, Err(ScanError::Io(error))),
            };
            found.push(Found { path, contents, in_use });
        }
    }
    Ok(found)
}

/// The state of a log in a word.
fn state(found: &Found) -> &'static str {
    match &found.contents {
        Err(ScanError::Blank) => "blank",
        Err(
            ScanError::Io(_)
            | ScanError::BadHeader
            | ScanError::TooLong { .. }
            | ScanError::Version(_),
        ) => "unreadable",
        Ok(_) if found.in_use => "in use",
        Ok(log) if log.is_damaged() => "damaged",
        Ok(log) if log.slots.iter().all(|slot| slot.closed) => "closed",
        Ok(_) => "interrupted",
    }
}

fn check(directories: &[PathBuf]) -> Result<(), Failure> {
    let found = find(directories)?;
    if found.is_empty() {
        return print_stdout("no logs\n");
    }
    let mut bad = 0;
    for Found { path, contents, .. } in &found {
        let path = path.display();
        let text = match contents {
            Err(ScanError::Blank) => format!("{path}: blank, nothing was synced\n"),
            Err(error) => {
                bad += 1;
                format!("{path}: {error}\n")
            }
            Ok(log) => {
                bad += u64::from(log.is_damaged());
                describe(log)
            }
        };
        print_stdout(&text)?;
    }
    match bad {
        0 => Ok(()),
        n => Err(Failure::Failed(format!("{n} of {} logs damaged", found.len()))),
    }
}

/// The outcome of a check of a log, in lines.
fn describe(log: &ScannedLog) -> String {
    let mut text = String::new();
    for slot in &log.slots {
        let (path, rank) = (log.path.display(), slot.rank);
        let writes = grouped(slot.entries.len() as u64);
        text += &format!("{path}: rank {rank}: {writes} writes valid");
        if slot.dropped > 0 {
            text += &format!(", {} behind the last sync lost", grouped(slot.dropped));
        }
        text.push('\n');
        for Damage { first, last, offset } in &slot.damage {
            text += &format!(
                "{path}: rank {rank}: synced records {first} to {last} are damaged from byte \
                 {offset} on\n"
            );
        }
    }
    text
}
