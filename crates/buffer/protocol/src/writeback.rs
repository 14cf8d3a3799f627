//! Writing behind: having the kernel begin early to put on the device what is written in order.
//!
//! Left alone, Linux begins when a tenth of the memory is dirty or after 30 seconds, and whoever
//! asks for durability before that waits for everything at once. A program that writes a long
//! stretch in order, as checkpoints are written, gains when the device works meanwhile. Nothing is
//! promised by it: what is durable is decided by `fsync` alone.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes written in order from which on, and in which portions, the device is given something to
/// do. Shorter files often are gone again before their data would have to be written.
pub const WRITEBACK_BYTES: u64 = 8 << 20;

/// Where one writer of a file is. Writers that share one, at different places, only lose the gain.
#[derive(Debug, Default)]
pub struct WriteBehind {
    /// The end of the last write.
    end: AtomicU64,
    /// From here on nothing was begun.
    from: AtomicU64,
}

impl WriteBehind {
    /// `length` bytes were written at `offset` of `file`.
    pub fn record_write(&self, file: impl AsFd, offset: u64, length: u64) {
        if let Some((from, length)) = self.due(offset, length) {
            begin(file, from, length);
        }
    }

    /// The range to begin with now that `length` bytes were written at `offset`.
    fn due(&self, offset: u64, length: u64) -> Option<(u64, u64)> {
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

fn begin(file: impl AsFd, from: u64, length: u64) {
    if let (Ok(from), Ok(length)) = (from.try_into(), length.try_into()) {
        // SAFETY: the call takes no memory of ours, and the descriptor is open as long as `file`.
        // What it returns does not matter: whatever it could not begin, `fsync` will find.
        unsafe {
            libc::sync_file_range(
                file.as_fd().as_raw_fd(),
                from,
                length,
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_stretch_in_order_is_begun_portion_by_portion() {
        let behind = WriteBehind::default();
        let begun: Vec<_> = (0..20).filter_map(|i| behind.due(i * MIB, MIB)).collect();
        assert_eq!(begun, [(0, WRITEBACK_BYTES), (WRITEBACK_BYTES, WRITEBACK_BYTES)]);
    }

    #[test]
    fn what_jumps_about_is_left_alone() {
        let behind = WriteBehind::default();
        for i in 0..100 {
            assert_eq!(behind.due(i * 3 * MIB, MIB), None);
        }
    }

    proptest! {
        #[test]
        fn only_what_was_written_is_begun(writes: Vec<(bool, u32, u32)>) {
            let behind = WriteBehind::default();
            let (mut at, mut run) = (0, 0);
            for (jump, place, length) in writes {
                if jump && u64::from(place) != at {
                    (at, run) = (u64::from(place), u64::from(place));
                }
                at += u64::from(length);
                if let Some((from, bytes)) = behind.due(at - u64::from(length), u64::from(length)) {
                    prop_assert!(from >= run && from + bytes == at && bytes >= WRITEBACK_BYTES);
                }
            }
        }
    }
}
