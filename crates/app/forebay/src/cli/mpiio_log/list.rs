//! The list of logs.

use super::{Found, find, state};
use crate::cli::output::to_json;
use crate::console::print_stdout;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_mpiio_log::Damage;
use forebay_units::human::{bytes, grouped};
use serde::Serialize;
use std::path::PathBuf;
use std::time::SystemTime;

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

pub(super) fn list(directories: &[PathBuf], json: bool) -> Result<(), Failure> {
    let found = find(directories)?;
    if json {
        let listed: Vec<_> = found.into_iter().map(listed).collect();
        return print_stdout(&to_json(&listed)?);
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
