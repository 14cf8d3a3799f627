//! Writes.

use super::join::join;
use super::{IN_FILE, LoggedFile};
use crate::mpi::{MpiError, library};
use forebay_mpiio_log::{AppendError, Entry, Order, Place, View};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Most entries that record writes past the log; more are joined.
pub(super) const MAX_IN_FILE: usize = 1 << 20;
/// Most runs of joined entries whose places are kept one by one: half a gigabyte of memory. A process
/// with more is told to use a larger log, or to call `MPI_File_sync`.
pub(super) const MAX_JOINED_RUNS: usize = 8 << 20;
/// Least and most collective writes from one agreement about the logs' space to the next.
pub(super) const AGREEMENT: (u64, u64) = (16, 1 << 16);
/// Parts of a log of which its use is measured.
const FULL: u64 = 1 << 16;

/// Collective writes from an agreement to the next: half of those that would make the fullest log,
/// of which `used` of [`FULL`] parts are used after `writes` writes, half full; at most as many as were
/// made, since writes may become larger.
fn writes_until_agreement(writes: u64, used: u64) -> u64 {
    let until_half = (FULL / 2).saturating_sub(used).saturating_mul(writes) / used.max(1);
    (until_half / 2).clamp(AGREEMENT.0, AGREEMENT.1.min(writes.max(AGREEMENT.0)))
}

impl LoggedFile {
    /// Writes `data` from a position of the view's stream on: to the log or, if that is full or the
    /// write is large and contiguous, to the file.
    pub(super) fn write(&mut self, position: u64, data: &[u8]) -> Result<(), MpiError> {
        if data.is_empty() {
            return Ok(());
        }
        let view = Arc::clone(&self.view.view);
        if !view.contains(position, data.len() as u64) {
            return Err(MpiError(library().error_argument));
        }
        let length = data.len() as u64;
        let is_direct = length >= self.settings.direct
            && self.in_file.len() < MAX_IN_FILE
            && view.segments(position, length).next().is_some_and(|first| first.length == length);
        if is_direct {
            return self.write_past_log(position, data);
        }
        let before = self.writer.last_sequence();
        match self.writer.append(&view, position, data) {
            Ok(_) => {}
            Err(AppendError::Full) if self.make_space()? => {
                return self.write(position, data);
            }
            Err(AppendError::Full | AppendError::ViewTooLarge { .. }) => {
                return self.write_past_log(position, data);
            }
            Err(error @ (AppendError::Io(_) | AppendError::BehindView)) => {
                self.failed("log a write to", &error);
                return self.write_past_log(position, data);
            }
        }
        self.counters.logged_requests += 1;
        self.counters.logged_bytes += data.len() as u64;
        for entry in self.writer.entries_after(before) {
            self.known_end = self.known_end.max(entry.hull().end);
            self.index.insert(entry.clone());
        }
        Ok(())
    }

    /// Writes to the file, and notes that older entries of the range no longer count.
    fn write_past_log(&mut self, position: u64, data: &[u8]) -> Result<(), MpiError> {
        let view = Arc::clone(&self.view.view);
        let length = data.len() as u64;
        self.settle_under([view.hull(position, length)])?;
        let mut rest = data;
        for segment in view.segments(position, length) {
            let (part, others) = rest.split_at(segment.length as usize);
            self.target
                .write_all_at(part, segment.offset)
                .map_err(|error| self.failed("write", &error))?;
            rest = others;
        }
        self.unsynced = true;
        self.counters.past_log_requests += 1;
        self.counters.past_log_bytes += length;
        self.note_past_log(view, position, length)
    }

    /// Notes a change of the file past the log.
    pub(super) fn note_past_log(
        &mut self,
        view: Arc<View>,
        position: u64,
        length: u64,
    ) -> Result<(), MpiError> {
        // The entry follows those of the log before, and precedes those after.
        self.advance_alone();
        let order = Order {
            epoch: self.epoch,
            rank: self.comm.rank as u32,
            sequence: self.writer.last_sequence(),
        };
        let place = Place { log: IN_FILE, offset: 0 };
        self.note_in_file(Entry { order, view, position, length, place })
    }

    /// Keeps an entry whose data is in the file, so that older entries of its range do not replace
    /// it. If there are too many, those are not kept for which no process has older entries: this one
    /// knows the others' up to the last exchange, and there was no collective call since, which would
    /// order what they have written meanwhile before this.
    fn note_in_file(&mut self, entry: Entry) -> Result<(), MpiError> {
        if self.in_file.len() >= MAX_IN_FILE {
            self.join_in_file();
        }
        if self.in_file.len() < MAX_IN_FILE {
            self.index.insert(entry.clone());
            self.in_file.push(entry);
            return Ok(());
        }
        if self.index.touching(entry.hull()).next().is_some() || self.is_past(self.exchange_epoch) {
            return Err(self.failed(
                "write",
                &format_args!(
                    "the log is full, and {MAX_JOINED_RUNS} irregular parts were written past it \
                     since the last collective call; a larger log is needed (hint forebay_log_size)"
                ),
            ));
        }
        Ok(())
    }

    /// Joins the entries whose data is in the file, except those that were joined before.
    fn join_in_file(&mut self) {
        if self.joined_runs >= MAX_JOINED_RUNS {
            return;
        }
        let entries = self.in_file.split_off(self.joined);
        entries.iter().for_each(|entry| self.index.remove(entry));
        let joined = join(entries, self.writer.entries());
        joined.entries.iter().for_each(|entry| self.index.insert(entry.clone()));
        self.joined_runs += joined.runs;
        self.in_file.extend(joined.entries);
        self.joined = self.in_file.len();
    }

    /// Forgets the entries whose data is in the file, because no log has older ones.
    pub(super) fn clear_in_file(&mut self) {
        self.in_file.clear();
        self.joined = 0;
        self.joined_runs = 0;
    }

    /// Empties the logs if one of them is more than half full. The processes agree about it in some
    /// of the collective writes, the same on all.
    pub(super) fn make_space_together(&mut self) -> Result<(), MpiError> {
        self.collective_writes += 1;
        if self.collective_writes < self.next_agreement {
            return Ok(());
        }
        let [full, used, epoch] =
            self.comm.max([u64::from(self.is_half_full()), self.used_parts(), self.epoch])?;
        self.agree(epoch);
        let used = if full == 0 { used } else { FULL / 2 };
        let writes = self.collective_writes - self.emptied_at;
        self.next_agreement = self.collective_writes + writes_until_agreement(writes, used);
        if full == 0 { Ok(()) } else { self.flush() }
    }

    /// Whether the next collective write empties the logs or agrees about it.
    pub(super) fn agrees_next(&self) -> bool {
        self.collective_writes + 1 >= self.next_agreement
    }

    /// The part of the log, or of the entries that record writes past it, that is in use.
    fn used_parts(&self) -> u64 {
        let part = |used: u64, limit: u64| used.saturating_mul(FULL) / limit.max(1);
        part(self.writer.used_bytes(), self.settings.capacity)
            .max(part(self.writer.entries().len() as u64, self.writer.max_entries()))
            .max(part(self.in_file.len() as u64, MAX_IN_FILE as u64))
            .max(part(self.joined_runs as u64, MAX_JOINED_RUNS as u64))
    }

    /// Applies the log of this process to the file, if no other process knows its entries, and no
    /// collective call came after one of them: another process may have written over it since, past
    /// its log. Returns whether there is space now.
    fn make_space(&mut self) -> Result<bool, MpiError> {
        let own = self.writer.entries();
        // The first one has the smallest number and epoch.
        let Some(first) = own.first() else { return Ok(false) };
        if first.order.sequence <= self.exchanged || self.is_past(first.order.epoch) {
            return Ok(false);
        }
        let count = own.len();
        if self.in_file.len() + count > MAX_IN_FILE {
            self.join_in_file();
        }
        if self.in_file.len() + count > MAX_IN_FILE {
            return Ok(false);
        }
        let own = self.writer.entries().to_vec();
        self.settle_under(own.iter().map(Entry::hull))?;
        // Entries of others that follow own ones keep their places.
        let rank = self.comm.rank as u32;
        self.apply(0..i64::MAX as u64, |place| place == rank)?;
        if self.synced {
            self.target.sync_data().map_err(|error| self.failed("sync", &error))?;
        }
        self.writer.reset().map_err(|error| self.failed("release the log of", &error))?;
        self.counters.early_flushes += 1;
        for mut entry in own {
            entry.place = Place { log: IN_FILE, offset: 0 };
            self.index.insert(entry.clone());
            self.in_file.push(entry);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{AGREEMENT, FULL, writes_until_agreement};

    #[test]
    fn agreement_comes_before_a_log_that_fills_evenly_is_half_full() {
        for writes in [1, 16, 100, 5000] {
            for used in [1, 7, FULL / 10, FULL / 4, FULL / 3, FULL / 2, FULL] {
                let next = writes_until_agreement(writes, used);
                assert!((AGREEMENT.0..=AGREEMENT.1).contains(&next));
                assert!(next == AGREEMENT.0 || used + used * next / writes <= FULL / 2);
            }
        }
        assert_eq!(writes_until_agreement(16, 0), AGREEMENT.0);
        assert_eq!(writes_until_agreement(100, FULL / 10), 100);
    }
}
