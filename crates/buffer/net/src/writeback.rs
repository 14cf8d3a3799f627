//! Early writeback of files that are written sequentially.
//!
//! By default Linux starts writeback when a tenth of the memory is dirty or after 30 seconds, and an
//! `fsync` before that waits for all data. Starting writeback while a long sequential write, such as
//! a checkpoint, continues makes the device work concurrently. Durability depends on `fsync` alone.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Sequentially written bytes after which writeback is started, again and again. Shorter files are
/// often removed before their writeback.
pub const WRITEBACK_BYTES: u64 = 8 << 20;

/// The position of one writer in a file. Concurrent writers at different positions that share it
/// start no writeback.
#[derive(Debug, Default)]
pub struct WriteBehind {
    /// End of the last write.
    end: AtomicU64,
    /// Start of the range without writeback.
    from: AtomicU64,
}

impl WriteBehind {
    /// Records a write of `length` bytes at `offset` of `file`, and starts writeback if it is due.
    pub fn record_write(&self, file: impl AsFd, offset: u64, length: u64) {
        if let Some((from, length)) = self.due(offset, length)
            && let (Ok(from), Ok(length)) = (from.try_into(), length.try_into())
        {
            let file = file.as_fd().as_raw_fd();
            // SAFETY: no memory is passed, and the descriptor is open. Errors are found by `fsync`.
            unsafe { libc::sync_file_range(file, from, length, libc::SYNC_FILE_RANGE_WRITE) };
        }
    }

    /// Records a write. Returns the offset and length of the range whose writeback is due.
    pub fn due(&self, offset: u64, length: u64) -> Option<(u64, u64)> {
        let end = offset.checked_add(length)?;
        if self.end.swap(end, Ordering::Relaxed) != offset {
            self.from.store(offset, Ordering::Relaxed);
        }
        let from = self.from.load(Ordering::Relaxed);
        let ready = end.checked_sub(from).filter(|ready| *ready >= WRITEBACK_BYTES)?;
        self.from.store(end, Ordering::Relaxed);
        Some((from, ready))
    }
}
