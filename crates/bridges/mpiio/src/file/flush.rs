//! Application of logged writes to the file.
//!
//! All ranks learn all entries. The range of the file that they touch is divided into as many parts
//! as there are ranks, at the boundaries of stripes, and each rank brings the last write of every
//! byte of its part from the logs into the file, in large writes. If a process cannot read the logs
//! of others, each writes what is in its own.

use super::{IN_FILE, LoggedFile};
use crate::mpi::{MpiError, library};
use forebay_mpiio_log::{
    Alignment, Applied, DataSource, Entry, MergedWrite, alignment_for, plan, write_merged,
};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Instant;

use super::sources::Sources;

/// The part of a range of the file that a rank writes: whole stripes, except at the ends.
pub fn part_of_rank(range: &Range<u64>, rank: u64, ranks: u64, stripe: u64) -> Range<u64> {
    let first = range.start - range.start % stripe;
    let length = (range.end - first).div_ceil(ranks).next_multiple_of(stripe);
    let start = first.saturating_add(length.saturating_mul(rank)).min(range.end);
    let end = start.saturating_add(length).min(range.end);
    start.max(range.start)..end
}

/// Gap of the file up to which two writes of a flush become one, in bytes: 16 KiB are read and written in
/// the page cache in about the time of one more call, and sooner than that by a file server.
const GAP: u64 = 16 << 10;

/// Brings bytes of `range` from the logs for which `keep` is true into the file. Writes with at most `gap`
/// bytes between them become one.
pub fn apply<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
    range: Range<u64>,
    (alignment, gap): (Alignment, u64),
    keep: impl Fn(u32) -> bool,
    source: &impl DataSource,
    target: &File,
) -> io::Result<Applied> {
    let writes = plan(entries, range, alignment).flat_map(|write| kept(write, &keep));
    write_merged(writes, alignment, gap, source, target)
}

/// The parts of a merged write whose data is in logs for which `keep` is true.
fn kept(write: MergedWrite, keep: &impl Fn(u32) -> bool) -> Vec<MergedWrite> {
    if write.pieces.iter().all(|piece| keep(piece.place.log)) {
        return vec![write];
    }
    let mut writes: Vec<MergedWrite> = Vec::new();
    for piece in write.pieces.into_iter().filter(|piece| keep(piece.place.log)) {
        match writes.last_mut() {
            Some(last) if last.offset + last.length == piece.offset => {
                last.length += piece.length;
                last.pieces.push(piece);
            }
            Some(_) | None => writes.push(MergedWrite {
                offset: piece.offset,
                length: piece.length,
                pieces: vec![piece],
            }),
        }
    }
    writes
}

impl LoggedFile {
    /// Applies entries that this process knows to the file.
    pub(super) fn apply(
        &mut self,
        range: Range<u64>,
        keep: impl Fn(u32) -> bool,
    ) -> Result<(), MpiError> {
        self.apply_with_gaps(range, 0, keep)
    }

    /// As [`LoggedFile::apply`]; writes with at most `gap` bytes between them become one.
    fn apply_with_gaps(
        &mut self,
        range: Range<u64>,
        gap: u64,
        keep: impl Fn(u32) -> bool,
    ) -> Result<(), MpiError> {
        let sources =
            Sources { rank: self.comm.rank as u32, writer: &self.writer, logs: &self.logs };
        let started = Instant::now();
        let applied = apply(
            self.index.touching(range.clone()),
            range,
            (alignment_for(self.settings.alignment), gap),
            keep,
            &sources,
            &self.target,
        )
        .map_err(|error| self.failed("apply the log to", &error))?;
        self.unsynced |= applied.bytes > 0;
        self.counters.merged_writes += applied.writes;
        self.counters.merged_bytes += applied.bytes;
        self.counters.flush_nanoseconds += started.elapsed().as_nanos() as u64;
        Ok(())
    }

    /// Applies the logs of all ranks to the file, and empties them. Collective. After an error the
    /// logs stay.
    pub(super) fn flush(&mut self) -> Result<(), MpiError> {
        self.advance();
        let written = self.writer.flush();
        let alone = u64::from(written.is_err() || !self.readable);
        // A process may have synced through a handle of its own; another one writes its data.
        let is_shared = u64::from(!self.owns_gaps());
        let [alone, synced, epoch, settled, is_shared] = self.comm.max([
            alone,
            u64::from(self.synced),
            self.epoch,
            self.settled.through(),
            is_shared,
        ])?;
        let gap = if is_shared == 0 { GAP } else { 0 };
        self.synced = synced != 0;
        let epoch = self.agree(epoch);
        self.exchange()?;
        self.index.remove_before(settled);
        let range = match self.index.cover(1).pop() {
            Some(range) => range,
            // The logs are emptied.
            None if settled > 0 => 0..0,
            None => return Ok(()),
        };
        let result = self.apply_part(&range, alone != 0, gap);
        // All ranks must have written before a log is emptied.
        let [failures] = self.comm.max([u64::from(result.is_err())])?;
        result?;
        if failures > 0 {
            return Err(self.failed(
                "apply the log to",
                &"another rank failed; the logs stay, and 'forebay log replay' applies them",
            ));
        }
        let released = self.writer.reset_together(epoch);
        if let Err(error) = &released {
            self.failed("release the log of", error);
        }
        // The file has all data, whether a log says so or not, and all ranks must know the same.
        // No log is removed before all are released.
        self.index.clear();
        self.clear_in_file();
        self.settled.reset();
        self.exchanged = self.writer.last_sequence();
        self.exchange_epoch = self.epoch;
        self.known_end = 0;
        self.counters.flushes += 1;
        self.emptied_at = self.collective_writes;
        let [failures] = self.comm.max([u64::from(released.is_err())])?;
        if failures > 0 {
            return Err(MpiError(library().error_io));
        }
        self.synced = false;
        Ok(())
    }

    /// Whether no one else writes to the file during a flush, and this process reads what others have
    /// written before, so that it may write gaps between logged data with what the file has there. In a
    /// flush all processes of this handle take part; there may be other handles, and network file systems
    /// whose clients keep data that others have changed since.
    fn owns_gaps(&self) -> bool {
        const NFS: u64 = 0x6969;
        const CIFS: u64 = 0xff53_4d42;
        const SMB2: u64 = 0xfe53_4d42;
        let kind =
            rustix::fs::fstatfs(&*self.target).map(|found| found.f_type as u64 & 0xffff_ffff);
        let is_coherent = kind.is_ok_and(|kind| ![NFS, CIFS, SMB2].contains(&kind));
        self.world && !self.opened_twice && is_coherent
    }

    fn apply_part(&mut self, range: &Range<u64>, alone: bool, gap: u64) -> Result<(), MpiError> {
        let rank = self.comm.rank;
        if alone {
            self.apply(range.clone(), |place| place == rank as u32)?;
        } else {
            let ranks = self.comm.size as u64;
            let part = part_of_rank(range, rank as u64, ranks, self.settings.alignment);
            self.apply_with_gaps(part, gap, |place| place != IN_FILE)?;
        }
        if self.synced && self.unsynced {
            self.target.sync_data().map_err(|error| self.failed("sync", &error))?;
            self.unsynced = false;
        }
        Ok(())
    }
}
