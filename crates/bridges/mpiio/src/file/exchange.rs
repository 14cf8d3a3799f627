//! Exchange of entries between ranks, so that each can read what the others logged.

use super::LoggedFile;
use super::write::{MAX_IN_FILE, MAX_JOINED_RUNS};
use crate::mpi::MpiError;
use forebay_mpiio_log::{decode_entries, encode_entries};
use std::ops::Range;

/// The message of a rank to the others before a collective read.
struct Announcement {
    /// The range of the file that it reads.
    read: Range<u64>,
    /// The range that contains its writes which the others do not know.
    written: Range<u64>,
    /// Some of them are in the file already.
    in_file: bool,
    /// Its epoch.
    epoch: u64,
}

impl Announcement {
    fn numbers(&self) -> [u64; 6] {
        let (read, written) = (&self.read, &self.written);
        let in_file = u64::from(self.in_file);
        [read.start, read.end, written.start, written.end, in_file, self.epoch]
    }

    fn of(numbers: &[u64; 6]) -> Announcement {
        let [read_start, read_end, written_start, written_end, in_file, epoch] = *numbers;
        Announcement {
            epoch,
            read: read_start..read_end,
            written: written_start..written_end,
            in_file: in_file != 0,
        }
    }
}

impl LoggedFile {
    /// Makes the writes of other ranks visible that a collective read touches. All ranks call it,
    /// with the range that each reads.
    pub(super) fn before_collective_read(&mut self, read: Range<u64>) -> Result<(), MpiError> {
        self.advance();
        let mut written = Range { start: u64::MAX, end: 0 };
        for entry in self.writer.entries_after(self.exchanged).iter().chain(&self.in_file) {
            let hull = entry.hull();
            written = written.start.min(hull.start)..written.end.max(hull.end);
        }
        let in_file = !self.in_file.is_empty();
        let own = Announcement { read, written, in_file, epoch: self.epoch };
        let all: Vec<Announcement> =
            self.comm.gather_numbers(own.numbers())?.iter().map(Announcement::of).collect();
        self.agree(all.iter().map(|rank| rank.epoch).max().unwrap_or(0));
        let overlaps = |one: &Range<u64>, other: &Range<u64>| {
            one.start < other.end && other.start < one.end && !one.is_empty()
        };
        let conflict = all.iter().enumerate().any(|(reader, by)| {
            all.iter()
                .enumerate()
                .any(|(writer, of)| writer != reader && overlaps(&by.read, &of.written))
        });
        if !conflict {
            return Ok(());
        }
        self.counters.overlapping_reads += 1;
        if self.readable && !all.iter().any(|rank| rank.in_file) {
            let failed = self.writer.flush().is_err();
            let [failures] = self.comm.max([u64::from(failed)])?;
            if failures == 0 {
                return self.exchange();
            }
        }
        self.flush()
    }

    /// Tells all ranks the own entries that they do not know, and learns theirs. Collective.
    pub(super) fn exchange(&mut self) -> Result<(), MpiError> {
        let mut own = self.writer.entries_after(self.exchanged).to_vec();
        own.extend_from_slice(&self.in_file);
        let all = self.comm.gather_all(&encode_entries(&own))?;
        for (rank, bytes) in all.iter().enumerate() {
            if rank == self.comm.rank {
                continue;
            }
            let entries = decode_entries(bytes)
                .map_err(|error| self.failed("exchange the log of", &error))?;
            for entry in entries {
                self.known_end = self.known_end.max(entry.hull().end);
                self.index.insert(entry);
            }
        }
        self.exchanged = self.writer.last_sequence();
        self.exchange_epoch = self.epoch;
        Ok(())
    }

    /// `MPI_File_sync`: makes the logged writes durable and visible to all ranks.
    pub fn sync(&mut self) -> Result<(), MpiError> {
        self.advance();
        let synced = self.writer.sync();
        if let Err(error) = &synced {
            self.failed("sync the log of", error);
        }
        self.synced = true;
        let must_flush = synced.is_err()
            || !self.in_file.is_empty()
            || !self.readable
            || !self.world
            || self.opened_twice
            || self.is_half_full();
        let [flush, epoch] = self.comm.max([u64::from(must_flush), self.epoch])?;
        self.agree(epoch);
        if flush == 0 {
            self.exchange()?;
        } else {
            self.flush()?;
        }
        if self.unsynced {
            self.target.sync_data().map_err(|error| self.failed("sync", &error))?;
            self.unsynced = false;
        }
        self.advance();
        self.exchange_epoch = self.epoch;
        Ok(())
    }

    /// Whether more than half of the log is in use, or of the entries that record writes past it.
    pub(super) fn is_half_full(&self) -> bool {
        self.writer.used_bytes() > self.settings.capacity / 2
            || self.in_file.len() > MAX_IN_FILE / 2
            || self.joined_runs > MAX_JOINED_RUNS / 2
    }
}
