//! The logs that the processes of a run left for one file, to be applied together.

use crate::batches::{EntryMemory, Orders, OutlinedSlot, batches, contains};
use crate::entry::{Entry, Place};
use crate::file_identity::FileIdentity;
use crate::format::{ENCODED_STATE_BYTES, SlotState};
use crate::log_file::LogReader;
use crate::plan::{Alignment, Applied, Target, apply, plan};
use crate::scan::ScannedLog;
use crate::view::MAX_LOGGED_VIEW;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most by which the clocks of a node and of a file system may differ.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

/// Least memory for a batch: one entry needs no more, with its view.
const MIN_BATCH: u64 = 2 * MAX_LOGGED_VIEW;

/// Encoded states and their offsets in a log.
pub type Marks = Vec<(u64, [u8; ENCODED_STATE_BYTES])>;

/// The logs of one opening of a file by the processes of a program.
#[derive(Debug)]
pub struct LoggedRun {
    target: PathBuf,
    run: String,
    created: SystemTime,
    /// The file that the path named when the logs were created, if that is known.
    file: Option<FileIdentity>,
    /// The logs of a later run belong to another file of this path.
    is_superseded: bool,
    missing_ranks: Vec<u32>,
    skipped: u64,
    /// Entries of smaller epochs are in the file: their flush was interrupted between two logs.
    applied_epoch: u64,
    /// Earlier replays whose entries are in the file.
    replayed: BTreeSet<u64>,
    /// A replay of these logs was begun before.
    was_begun: bool,
    /// Number of this replay.
    replay: u64,
    logs: Vec<FinishedLog>,
    entries: Vec<Entry>,
    /// Slots whose entries are read when they are applied.
    outlined: Vec<OutlinedSlot>,
    reader: LogReader,
}

/// The place of the file of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// It has this path, or is to be created there.
    At(PathBuf),
    /// Its path names another file, and it is not in its directory.
    Replaced,
    /// It has no name in its directory: it was removed, or renamed to another one.
    Missing,
}

/// A log of a [`LoggedRun`], and how it is marked as applied.
#[derive(Clone, Debug)]
pub struct FinishedLog {
    /// Path of the log.
    pub path: PathBuf,
    /// Durable records are damaged: the log is kept.
    pub is_damaged: bool,
    /// Marks that the log is applied together with all others of this replay.
    pub together: Marks,
    /// Marks that it is applied, and with it all others of this replay.
    pub applied: Marks,
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
        let mut last: BTreeMap<PathBuf, FileIdentity> = BTreeMap::new();
        for run in runs.iter_mut().rev() {
            let Some(file) = run.file else { continue };
            let newest = *last.entry(run.target.clone()).or_insert(file);
            run.is_superseded = !newest.is_same(file);
        }
        runs
    }

    fn new(logs: Vec<ScannedLog>) -> Option<LoggedRun> {
        let first = logs.first()?;
        let present: BTreeSet<u32> =
            logs.iter().flat_map(|log| &log.slots).map(|slot| slot.rank).collect();
        let states = || logs.iter().flat_map(|log| &log.slots).map(|slot| slot.state);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut run = LoggedRun {
            target: first.target.clone(),
            run: first.run.clone(),
            created: logs.iter().map(|log| log.created).min()?,
            file: logs.iter().find_map(|log| log.file),
            is_superseded: false,
            missing_ranks: (0..first.ranks).filter(|rank| !present.contains(rank)).collect(),
            skipped: 0,
            applied_epoch: states().map(|state| state.applied_epoch).max().unwrap_or(0),
            replayed: states().map(|state| state.replayed).filter(|id| *id != 0).collect(),
            was_begun: states().any(|state| state.replay != 0),
            replay: (now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40).max(1),
            logs: Vec::new(),
            entries: Vec::new(),
            outlined: Vec::new(),
            reader: LogReader::new(),
        };
        logs.into_iter().for_each(|log| run.add(log));
        Some(run)
    }

    fn add(&mut self, log: ScannedLog) {
        let is_damaged = log.is_damaged();
        let number = self.reader.append(log.reader);
        let (mut together, mut applied) = (Marks::new(), Marks::new());
        for slot in log.slots {
            self.skipped += slot.damage.iter().map(|gap| gap.last + 1 - gap.first).sum::<u64>();
            let counter = slot.state.counter + 1;
            let is_applied = self.replayed.contains(&slot.state.replay);
            // A slot that an earlier replay covers goes on saying so: this one may be interrupted, too.
            let replay = if is_applied { slot.state.replay } else { self.replay };
            let state = SlotState { counter, replay, ..slot.state };
            together.push((log.geometry.state_offset(slot.slot, counter), state.encode()));
            let counter = counter + 1;
            // What is damaged stays so.
            let through = if is_damaged { slot.applied } else { slot.last };
            let state = SlotState { counter, applied: through, replayed: replay, ..state };
            applied.push((log.geometry.state_offset(slot.slot, counter), state.encode()));
            if is_applied {
                continue;
            }
            let first = self.applied_epoch;
            if let Some(outline) = slot.outline.filter(|outline| outline.last_epoch >= first) {
                self.outlined.push(OutlinedSlot {
                    log: number,
                    geometry: log.geometry,
                    state: slot.state,
                    last: slot.last,
                    outline,
                });
            }
            let left = slot.entries.into_iter().filter(|entry| entry.order.epoch >= first);
            self.entries.extend(left.map(|entry| {
                let place = Place { log: number, ..entry.place };
                Entry { place, ..entry }
            }));
        }
        self.logs.push(FinishedLog { path: log.path, is_damaged, together, applied });
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

    /// The file that the path named when the logs were created, if that is known.
    pub fn file(&self) -> Option<FileIdentity> {
        self.file
    }

    /// Whether an interrupted replay may have created the file.
    pub fn was_begun(&self) -> bool {
        self.was_begun
    }

    /// Whether the logs of a later run are for another file of this path, so that this one's was removed
    /// or renamed.
    pub fn is_superseded(&self) -> bool {
        self.is_superseded
    }

    /// Looks for the file: by its path or, if that names another file or none now, in its directory.
    pub fn find_target(&self) -> Whereabouts {
        let Some(file) = self.file else {
            return if self.is_older() { Whereabouts::Replaced } else { self.at_its_path() };
        };
        let named = FileIdentity::of(&self.target);
        if !self.is_superseded && named.is_some_and(|named| named.is_same(file)) {
            return self.at_its_path();
        }
        let directory = self.target.parent().unwrap_or(Path::new("/"));
        match file.find_in(directory) {
            Some(path) => Whereabouts::At(path),
            None if self.was_begun => self.at_its_path(),
            None if self.target.exists() || self.is_superseded => Whereabouts::Replaced,
            None => Whereabouts::Missing,
        }
    }

    fn at_its_path(&self) -> Whereabouts {
        Whereabouts::At(self.target.clone())
    }

    /// Whether the file was created after the logs, as far as its file system knows: what they
    /// contain belonged to a file of the same name that was removed.
    fn is_older(&self) -> bool {
        // An earlier replay, which was interrupted, may have created the file.
        if self.was_begun {
            return false;
        }
        let created = std::fs::metadata(&self.target).and_then(|found| found.created());
        created.is_ok_and(|created| created > self.created + CLOCK_DIFFERENCE)
    }

    /// Ranks without a log.
    pub fn missing_ranks(&self) -> &[u32] {
        &self.missing_ranks
    }

    /// Damaged records, whose writes are missing.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The logs.
    pub fn logs(&self) -> &[FinishedLog] {
        &self.logs
    }

    /// The writes of all logs that are kept in memory: all, unless the logs were read by
    /// [`scan_within`](crate::scan_within).
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Number of writes of all logs.
    pub fn count(&self) -> u64 {
        let others: u64 = self.outlined.iter().map(|slot| slot.outline.entries).sum();
        self.entries.len() as u64 + others
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        let others: u64 = self.outlined.iter().map(|slot| slot.outline.bytes).sum();
        self.entries.iter().map(|entry| entry.length).sum::<u64>() + others
    }

    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.outlined.is_empty()
    }

    /// For the data of the entries.
    pub fn reader(&self) -> &LogReader {
        &self.reader
    }

    /// Writes the entries to the file, which is not synced. Entries that are not in memory are read in
    /// batches, in their order, which need about as much as `memory` was made for.
    ///
    /// # Errors
    /// A log cannot be read or the file not be written, or entries need too much memory; any part may
    /// have been written.
    pub fn apply(
        &self,
        target: &impl Target,
        alignment: Alignment,
        memory: &EntryMemory,
    ) -> io::Result<Applied> {
        if self.outlined.is_empty() {
            return apply(plan(&self.entries, 0..u64::MAX, alignment), &self.reader, target);
        }
        let mut applied = Applied::default();
        for orders in batches(&self.outlined, memory.limit()) {
            let entries = self.batch(&orders, memory)?;
            applied += apply(plan(&entries, 0..u64::MAX, alignment), &self.reader, target)?;
        }
        Ok(applied)
    }

    /// The entries of a batch. A block of each slot may have been counted for the batch before.
    fn batch(&self, orders: &Orders, memory: &EntryMemory) -> io::Result<Vec<Entry>> {
        let blocks = memory.block_bytes().saturating_mul(self.outlined.len() as u64);
        let mut limit = memory.limit().saturating_add(blocks).saturating_mul(2).max(MIN_BATCH);
        let kept = self.entries.iter().filter(|entry| contains(orders, &entry.order));
        let mut entries: Vec<Entry> = kept.cloned().collect();
        for slot in &self.outlined {
            let read = slot.read(self.reader.file(slot.log)?, orders, &mut limit)?;
            let left = read.into_iter().filter(|entry| entry.order.epoch >= self.applied_epoch);
            entries.extend(left.map(|entry| {
                let place = Place { log: slot.log, ..entry.place };
                Entry { place, ..entry }
            }));
        }
        Ok(entries)
    }

    /// Retires the logs when the file is durable: `mark` writes marks to a log and makes them
    /// durable, `remove` removes a log. Damaged logs stay.
    ///
    /// If this is interrupted, the entries of all logs count as applied as soon as one log says so:
    /// first all logs name this replay, then all are marked as applied, then they are removed.
    /// Otherwise what is left would be applied again, over later writes of the others.
    ///
    /// # Errors
    /// Those of `mark` and `remove`.
    pub fn retire<E>(
        &self,
        mut mark: impl FnMut(&FinishedLog, &Marks) -> Result<(), E>,
        mut remove: impl FnMut(&FinishedLog) -> Result<(), E>,
    ) -> Result<(), E> {
        self.logs.iter().try_for_each(|log| mark(log, &log.together))?;
        self.logs.iter().try_for_each(|log| mark(log, &log.applied))?;
        self.logs.iter().filter(|log| !log.is_damaged).try_for_each(&mut remove)
    }
}
