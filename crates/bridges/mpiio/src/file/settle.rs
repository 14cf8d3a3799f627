//! Application of synced writes by one process.
//!
//! When some of the processes open the file again, what all have synced must be in the file, but not
//! all processes take part in that call. One of those that do brings what all of them know from the
//! last exchange into the file, and notes the epoch below which that is done in a file that all
//! processes see. The others learn it from there, or at the next flush, and do not apply these entries
//! again, over what the second handle has written since. A replay does not either: the epoch is in a
//! log. A process that is about to replace such data past its log brings it into the file before, so
//! that nobody does so after it.

use super::flush::apply;
use super::shared_pointer::{lock, open};
use super::sources::Sources;
use super::write::MAX_IN_FILE;
use super::{IN_FILE, LoggedFile};
use crate::mpi::MpiError;
use forebay_mpiio_log::{Entry, Place, alignment_for};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The logged data that one process has brought into the file for all.
#[derive(Debug, Default)]
pub struct Settled {
    path: PathBuf,
    /// The entries of smaller epochs are in the file, as far as this process knows.
    through: u64,
}

impl Settled {
    /// Nothing, with the path of the file that says so.
    pub fn new(path: PathBuf) -> Settled {
        Settled { path, through: 0 }
    }

    /// The entries of smaller epochs are in the file.
    pub fn through(&self) -> u64 {
        self.through
    }

    /// All entries are in the file.
    pub fn reset(&mut self) {
        self.through = 0;
    }

    /// Removes the file; one rank does so when none uses it any more.
    pub fn remove(&self) {
        // Few files are opened a second time.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Opens the file and locks it until it is closed. Returns the epoch in it.
    fn lock(&self) -> io::Result<(File, u64)> {
        let file = open(&self.path)?;
        lock(&file, libc::LOCK_EX)?;
        let mut bytes = [0; 8];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok((file, u64::from_le_bytes(bytes))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok((file, 0)),
            Err(error) => Err(error),
        }
    }
}

impl LoggedFile {
    /// Brings what all processes have synced into the file, unless another process has done so. If
    /// the logs are not visible to all processes, or not all have opened the file, a sync has done it.
    pub(super) fn settle(&mut self) -> Result<(), MpiError> {
        let through = self.exchange_epoch;
        if self.is_shared_under(0..u64::MAX) {
            self.settle_through(through)
                .map_err(|error| self.failed("apply the log, which stays, to", &error))?;
            self.settled.through = through;
            self.index.remove_before(through);
        }
        Ok(())
    }

    /// Brings what only this process knows into the file. Its entries stay in the log, but are not applied
    /// again. Returns false if another process may have replaced some of it, past its log.
    pub(super) fn settle_own(&mut self) -> Result<bool, MpiError> {
        let own: Vec<Entry> = self.writer.entries_after(self.exchanged).to_vec();
        let rank = self.comm.rank as u32;
        let is_old = |entry: &Entry| {
            let is_known = entry.order.sequence <= self.exchanged;
            entry.place.log == rank && (is_known || self.is_past(entry.order.epoch))
        };
        if own.len() > MAX_IN_FILE.saturating_sub(self.in_file.len())
            || self.index.touching(0..u64::MAX).any(is_old)
        {
            return Ok(false);
        }
        self.apply(0..i64::MAX as u64, |place| place == rank)?;
        for mut entry in own {
            entry.place = Place { log: IN_FILE, offset: 0 };
            self.index.insert(entry.clone());
            self.in_file.push(entry);
        }
        Ok(true)
    }

    /// As [`LoggedFile::settle`], if one of the ranges of the file has such data, which this process
    /// is about to replace in the file.
    pub(super) fn settle_under(
        &mut self,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<(), MpiError> {
        let is_shared = ranges.into_iter().any(|range| self.is_shared_under(range));
        if is_shared { self.settle() } else { Ok(()) }
    }

    /// Whether a range of the file has logged data that all processes know.
    fn is_shared_under(&self, range: Range<u64>) -> bool {
        self.world && self.readable && self.index.touching(range).any(|entry| self.is_shared(entry))
    }

    /// Whether all processes know an entry.
    fn is_shared(&self, entry: &Entry) -> bool {
        entry.order.epoch < self.exchange_epoch && entry.place.log != IN_FILE
    }

    fn settle_through(&mut self, through: u64) -> io::Result<()> {
        let (mark, settled) = self.settled.lock()?;
        if settled >= through {
            return Ok(());
        }
        let sources =
            Sources { rank: self.comm.rank as u32, writer: &self.writer, logs: &self.logs };
        let shared = self.index.touching(0..u64::MAX).filter(|entry| self.is_shared(entry));
        let alignment = alignment_for(self.settings.alignment);
        let range = 0..i64::MAX as u64;
        let applied = apply(shared, range, (alignment, 0), |_| true, &sources, &self.target)?;
        self.counters.merged_writes += applied.writes;
        self.counters.merged_bytes += applied.bytes;
        self.target.sync_data()?;
        self.writer.note_applied_below(through)?;
        mark.write_all_at(&through.to_le_bytes(), 0)
    }
}
