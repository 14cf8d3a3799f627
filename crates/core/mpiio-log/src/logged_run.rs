//! The logs that the processes of a run left for one file, to be applied together.

use crate::entry::{Entry, Place};
use crate::format::{ENCODED_STATE_BYTES, SlotState};
use crate::log_file::LogReader;
use crate::plan::{Alignment, Applied, Target, apply, plan};
use crate::scan::ScannedLog;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The logs of one opening of a file by the processes of a program.
#[derive(Debug)]
pub struct LoggedRun {
    target: PathBuf,
    run: String,
    created: SystemTime,
    missing_ranks: Vec<u32>,
    skipped: u64,
    logs: Vec<FinishedLog>,
    entries: Vec<Entry>,
    reader: LogReader,
}

/// A log of a [`LoggedRun`], and how it is marked as applied.
#[derive(Clone, Debug)]
pub struct FinishedLog {
    /// Path of the log.
    pub path: PathBuf,
    /// Durable records are damaged: the log is kept.
    pub is_damaged: bool,
    /// Bytes that mark the log as applied, and their offsets.
    pub marks: Vec<(u64, [u8; ENCODED_STATE_BYTES])>,
}

impl LoggedRun {
    /// Groups logs by file and run, in the order of their creation.
    pub fn group(logs: Vec<ScannedLog>) -> Vec<LoggedRun> {
        let mut runs: BTreeMap<(PathBuf, String), Vec<ScannedLog>> = BTreeMap::new();
        for log in logs {
            runs.entry((log.target.clone(), log.run.clone())).or_default().push(log);
        }
        let mut runs: Vec<_> = runs.into_values().filter_map(LoggedRun::new).collect();
        runs.sort_by_key(|run| run.created);
        runs
    }

    fn new(logs: Vec<ScannedLog>) -> Option<LoggedRun> {
        let first = logs.first()?;
        let present: BTreeSet<u32> =
            logs.iter().flat_map(|log| &log.slots).map(|slot| slot.rank).collect();
        let mut run = LoggedRun {
            target: first.target.clone(),
            run: first.run.clone(),
            created: logs.iter().map(|log| log.created).min()?,
            missing_ranks: (0..first.ranks).filter(|rank| !present.contains(rank)).collect(),
            skipped: 0,
            logs: Vec::new(),
            entries: Vec::new(),
            reader: LogReader::new(),
        };
        logs.into_iter().for_each(|log| run.add(log));
        Some(run)
    }

    fn add(&mut self, log: ScannedLog) {
        let is_damaged = log.is_damaged();
        let number = self.reader.append(log.reader);
        let mut marks = Vec::new();
        for slot in log.slots {
            self.skipped += slot.damage.iter().map(|gap| gap.last + 1 - gap.first).sum::<u64>();
            let counter = slot.state.counter + 1;
            let state = SlotState { counter, applied: slot.last, ..slot.state };
            marks.push((log.geometry.state_offset(slot.slot, counter), state.encode()));
            self.entries.extend(slot.entries.into_iter().map(|entry| {
                let place = Place { log: number, ..entry.place };
                Entry { place, ..entry }
            }));
        }
        self.logs.push(FinishedLog { path: log.path, is_damaged, marks });
    }

    /// The file.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The opening of the file.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Time of creation of the first log.
    pub fn created(&self) -> SystemTime {
        self.created
    }

    /// Ranks without a log.
    pub fn missing_ranks(&self) -> &[u32] {
        &self.missing_ranks
    }

    /// Damaged records, whose writes are missing.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The logs. When the file is durable, those without damage are marked as applied and removed.
    pub fn logs(&self) -> &[FinishedLog] {
        &self.logs
    }

    /// The writes of all logs.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// For the data of the entries.
    pub fn reader(&self) -> &LogReader {
        &self.reader
    }

    /// Writes the entries to the file, which is not synced.
    ///
    /// # Errors
    /// A log cannot be read or the file not be written; any part may have been written.
    pub fn apply(&self, target: &impl Target, alignment: Alignment) -> io::Result<Applied> {
        apply(plan(&self.entries, 0..u64::MAX, alignment), &self.reader, target)
    }
}
