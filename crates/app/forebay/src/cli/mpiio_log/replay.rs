//! Logs whose writes go to the files, and logs that are removed without.

use super::{ReplayArguments, check_directory};
use crate::console::print_stdout;
use forebay_console::Failure;
use forebay_mpiio_log::{
    Alignment, Discarded, Left, ReplayError, ReplayOptions, Replayed, discard, foreign_logs, logs,
    replay,
};
use forebay_units::human::{bytes, counted, grouped};
use std::path::{Path, PathBuf};

pub(super) fn replay_logs(arguments: ReplayArguments) -> Result<(), Failure> {
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
        ..ReplayOptions::default()
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
        Some(Left::Missing) => {
            return format!(
                "{target}: removed or renamed to another directory; its {} logs stay: --replaced \
                 creates the file, `forebay log discard` removes them\n",
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

pub(super) fn discard_logs(directory: &Path, file: Option<&Path>) -> Result<(), Failure> {
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
