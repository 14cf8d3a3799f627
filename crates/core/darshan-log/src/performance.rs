//! Rates as Darshan defines them.

use crate::file_use::FileUse;
use std::collections::{BTreeMap, HashMap};

/// Files by the processes that opened them, as Darshan divides them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingCounts {
    /// Opened by one process.
    pub unique: u64,
    /// Opened by some processes, each with a record of its own.
    pub partly_shared: u64,
    /// Opened by all processes, with one record for all.
    pub shared: u64,
}

/// The time and the rate of an interface's I/O by the slowest process. Darshan's `agg_time_by_slowest` is the time
/// of the process that spent most time in calls for files without a shared record, and the time of the slowest
/// process in each file with one.
#[derive(Clone, Debug, Default)]
pub struct Performance {
    by_rank: BTreeMap<u32, f64>,
    shared_seconds: f64,
    bytes: u64,
    /// Processes of each file; `None`: all.
    files: HashMap<u64, Option<u64>>,
}

impl Performance {
    /// Adds a record.
    pub fn add(&mut self, file: &FileUse) {
        self.bytes = self.bytes.saturating_add(file.bytes());
        match file.rank {
            Some(rank) => *self.by_rank.entry(rank).or_default() += file.slowest_seconds,
            None => self.shared_seconds += file.slowest_seconds,
        }
        let processes = self.files.entry(file.id).or_insert(Some(0));
        *processes = match (*processes, file.rank) {
            (Some(count), Some(_)) => Some(count + 1),
            (None, _) | (_, None) => None,
        };
    }

    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The process with the longest time in files without a shared record, and that time in seconds.
    pub fn slowest_rank(&self) -> Option<(u32, f64)> {
        let by_time = |a: &(u32, f64), b: &(u32, f64)| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0));
        self.by_rank.iter().map(|(rank, time)| (*rank, *time)).max_by(by_time)
    }

    /// Darshan's `agg_time_by_slowest`, seconds.
    pub fn seconds(&self) -> f64 {
        self.slowest_rank().map_or(0.0, |(_, seconds)| seconds) + self.shared_seconds
    }

    /// Darshan's `agg_perf_by_slowest`, but in bytes per second; `None` if no time was spent.
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.seconds();
        (seconds > 0.0).then(|| self.bytes as f64 / seconds)
    }

    /// Number of files.
    pub fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// The files by the processes that opened them.
    pub fn sharing(&self) -> SharingCounts {
        let mut counts = SharingCounts::default();
        for processes in self.files.values() {
            match processes {
                Some(1) => counts.unique += 1,
                Some(_) => counts.partly_shared += 1,
                None => counts.shared += 1,
            }
        }
        counts
    }
}
