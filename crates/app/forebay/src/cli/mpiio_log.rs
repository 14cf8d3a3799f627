//! `forebay log`: logs of MPI-IO writes that programs left.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_mpiio_log::{
    Alignment, Damage, Discarded, Left, LoggedRun, NetcdfFile, ReplayError, ReplayOptions,
    Replayed, ScanError, ScannedLog, discard, file_start, foreign_logs, is_in_use, logs, replay,
    scan,
};
use forebay_units::Bytes;
use forebay_units::human::{bytes, counted, grouped};
use serde::Serialize;

use crate::console::print_stdout;

/// Bytes of a file that are searched for a header.
const MAX_HEADER_BYTES: u64 = 4 << 20;

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
        LogCommand::List { directories, json } => list(&directories.directories, json),
        LogCommand::Check { directories } => check(&directories.directories),
        LogCommand::Variables { directories } => variables(&directories.directories),
        LogCommand::Replay(arguments) => replay_logs(arguments),
        LogCommand::Discard { directory, file } => discard_logs(&directory, file.as_deref()),
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

/// A log as JSON.
#[derive(Serialize)]
struct Listed {
    log: PathBuf,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    contents: Option<ListedContents>,
}

#[derive(Serialize)]
struct ListedContents {
    file: PathBuf,
    run: String,
    ranks: u32,
    created_seconds: u64,
    slots: Vec<ListedSlot>,
}

#[derive(Serialize)]
struct ListedSlot {
    rank: u32,
    writes: usize,
    bytes: u64,
    dropped_writes: u64,
    damaged_records: u64,
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn missing(damage: &[Damage]) -> u64 {
    damage.iter().map(|damage| damage.last + 1 - damage.first).sum()
}

fn listed(found: Found) -> Listed {
    let state = state(&found);
    let (error, contents) = match found.contents {
        Ok(log) => (None, Some(log)),
        Err(error) => (Some(error.to_string()), None),
    };
    let contents = contents.map(|log| ListedContents {
        slots: log
            .slots
            .iter()
            .map(|slot| ListedSlot {
                rank: slot.rank,
                writes: slot.entries.len(),
                bytes: slot.entries.iter().map(|entry| entry.length).sum(),
                dropped_writes: slot.dropped,
                damaged_records: missing(&slot.damage),
            })
            .collect(),
        file: log.target,
        run: log.run,
        ranks: log.ranks,
        created_seconds: seconds(log.created),
    });
    Listed { log: found.path, state, error, contents }
}

fn list(directories: &[PathBuf], json: bool) -> Result<(), Failure> {
    let found = find(directories)?;
    if json {
        let listed: Vec<_> = found.into_iter().map(listed).collect();
        let text = serde_json::to_string_pretty(&listed);
        let text = text.map_err(|error| Failure::Failed(error.to_string()))?;
        return print_stdout(&(text + "\n"));
    }
    if found.is_empty() {
        return print_stdout("no logs\n");
    }
    let mut table = Table::new([
        Column::text("log", 0),
        Column::text("file", 0),
        Column::text("ranks", 0),
        Column::number("writes", 0),
        Column::number("data", 0),
        Column::text("state", 0),
    ]);
    for found in &found {
        let name = found.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(log) = &found.contents else {
            let blank = String::new;
            table.push([name, blank(), blank(), blank(), blank(), state(found).to_owned()]);
            continue;
        };
        let ranks: Vec<_> = log.slots.iter().map(|slot| slot.rank.to_string()).collect();
        table.push([
            name,
            log.target.display().to_string(),
            format!("{} of {}", ranks.join(","), log.ranks),
            grouped(log.entries().count() as u64),
            bytes(log.bytes()),
            state(found).to_owned(),
        ]);
    }
    print_stdout(&table.to_string())
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

fn variables(directories: &[PathBuf]) -> Result<(), Failure> {
    let mut scanned = Vec::new();
    for Found { path, contents, .. } in find(directories)? {
        match contents {
            Ok(log) => scanned.push(log),
            Err(ScanError::Blank) => {}
            Err(error) => return Err(Failure::Failed(format!("{}: {error}", path.display()))),
        }
    }
    let runs = LoggedRun::group(scanned);
    if runs.is_empty() {
        return print_stdout("no logs\n");
    }
    for run in &runs {
        print_stdout(&format!("{}\n", run.target().display()))?;
        let table = variables_of(run)?;
        print_stdout(&table)?;
    }
    Ok(())
}

/// The variables of a run's file, and the part of them in each write.
fn variables_of(run: &LoggedRun) -> Result<String, Failure> {
    let target = run.target();
    let mut start = Vec::new();
    match File::open(target) {
        Ok(file) => file
            .take(MAX_HEADER_BYTES)
            .read_to_end(&mut start)
            .map(drop)
            .map_err(|error| Failure::io("read", target, error))?,
        // Only the log has the header.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Failure::io("open", target, error)),
    }
    let start = file_start(start, run.entries(), run.reader());
    let start = start.map_err(|error| Failure::Failed(format!("cannot read a log: {error}")))?;
    let Some(file) = NetcdfFile::parse(&start) else {
        let format = if start.starts_with(b"\x89HDF") { "HDF5" } else { "no NetCDF" };
        return Ok(format!("  {format} header: variables are derived from CDF-1, 2 and 5 only\n"));
    };
    let mut table = Table::new([
        Column::number("rank", 0),
        Column::text("variable", 0),
        Column::text("type", 0),
        Column::text("shape", 0),
        Column::text("start", 0),
        Column::text("count", 0),
        Column::number("data", 0),
        Column::text("", 0),
    ]);
    for entry in run.entries() {
        for part in file.subarrays(entry) {
            let variable = &file.variables[part.variable];
            let mut shape: Vec<_> = variable.shape.iter().map(u64::to_string).collect();
            if variable.is_record {
                shape.insert(0, "unlimited".to_owned());
            }
            table.push([
                entry.order.rank.to_string(),
                variable.name.clone(),
                variable.datatype.to_owned(),
                shape.join("x"),
                joined(&part.start),
                joined(&part.count),
                bytes(part.bytes),
                if part.is_whole { "" } else { "part of it" }.to_owned(),
            ]);
        }
    }
    Ok(table.to_string())
}

fn joined(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn replay_logs(arguments: ReplayArguments) -> Result<(), Failure> {
    let (stripe, largest) = (arguments.stripe.0, arguments.largest.0);
    if stripe == 0 || largest == 0 {
        return Err(Failure::Input("--stripe and --largest are at least 1 byte".to_owned()));
    }
    let options = ReplayOptions {
        target: arguments.file,
        skip_damaged: arguments.skip_damaged,
        replaced: arguments.replaced,
        complete_only: false,
        alignment: Alignment { stripe, largest },
    };
    let directories = &arguments.directories.directories;
    directories.iter().try_for_each(|directory| check_directory(directory))?;
    let replayed = replay(directories, &options).map_err(failure)?;
    print_foreign(directories)?;
    if replayed.is_empty() {
        // They may have been replayed before.
        let others = others_text(directories, options.target.as_deref())?;
        return print_stdout(&format!("{}\n", others.as_deref().unwrap_or("no logs")));
    }
    for replayed in &replayed {
        print_stdout(&summary(replayed))?;
    }
    Ok(())
}

/// Says that logs of other users are left alone.
fn print_foreign(directories: &[PathBuf]) -> Result<(), Failure> {
    for directory in directories {
        let foreign = foreign_logs(directory);
        match foreign.map_err(|error| Failure::io("read", directory, error))? {
            0 => {}
            n => print_stdout(&format!(
                "{}: {n} logs of other users, who can replay or discard them, are left\n",
                directory.display()
            ))?,
        }
    }
    Ok(())
}

/// A replay in lines.
fn summary(replayed: &Replayed) -> String {
    let target = replayed.target.display();
    match replayed.left {
        Some(Left::Replaced) => {
            return format!(
                "{target}: created after its {} logs, which stay: they belong to an earlier file of \
                 this name; --replaced applies them, `forebay log discard` removes them\n",
                replayed.logs
            );
        }
        Some(Left::Incomplete) => return format!("{target}: logs are missing; the others stay\n"),
        None => {}
    }
    let mut text = format!(
        "{target}: {} of {}, {} in {}\n",
        counted(replayed.entries, "write"),
        counted(replayed.logs as u64, "log"),
        bytes(replayed.applied.bytes),
        counted(replayed.applied.writes, "write"),
    );
    if replayed.skipped > 0 {
        text += &format!("{target}: {} damaged records skipped\n", grouped(replayed.skipped));
    }
    if !replayed.missing_ranks.is_empty() {
        let ranks: Vec<_> = replayed.missing_ranks.iter().map(u32::to_string).collect();
        let ranks = ranks.join(",");
        text +=
            &format!("{target}: no log of ranks {ranks} here; look in other nodes' directories\n");
    }
    text
}

fn failure(error: ReplayError) -> Failure {
    let advice = match error {
        ReplayError::Damaged(_) => {
            "; `forebay log check` names them, --skip-damaged replays the others"
        }
        ReplayError::Log { .. }
        | ReplayError::Scan { .. }
        | ReplayError::InUse(_)
        | ReplayError::Foreign { .. }
        | ReplayError::Target { .. } => "",
    };
    Failure::Failed(format!("{error}{advice}"))
}

/// Says that there are logs of other files than `file`, of which there are none: it may be mistyped.
fn others_text(directories: &[PathBuf], file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else { return Ok(None) };
    for directory in directories {
        let others = logs(directory).map_err(|error| Failure::io("read", directory, error))?.len();
        if others > 0 {
            return Ok(Some(format!(
                "{}: no logs of {}; {} of other files stay (`forebay log list`)",
                directory.display(),
                file.display(),
                counted(others as u64, "log")
            )));
        }
    }
    Ok(None)
}

fn discard_logs(directory: &Path, file: Option<&Path>) -> Result<(), Failure> {
    check_directory(directory)?;
    let discarded = discard(directory, file).map_err(failure)?;
    print_foreign(&[directory.to_owned()])?;
    if discarded.is_empty() {
        return match others_text(&[directory.to_owned()], file)? {
            Some(others) => Err(Failure::Failed(others)),
            None => print_stdout("no logs\n"),
        };
    }
    for Discarded { path, contents } in &discarded {
        let path = path.display();
        let text = match contents {
            Ok(log) => format!(
                "{path}: discarded {}, {}, of {}\n",
                counted(log.entries().count() as u64, "write"),
                bytes(log.bytes()),
                log.target.display()
            ),
            Err(error) => format!("{path}: discarded; {error}\n"),
        };
        print_stdout(&text)?;
    }
    Ok(())
}
