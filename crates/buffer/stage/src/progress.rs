//! How far a stage is.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use forebay_protocol::progress::{Phase, PhaseTimes, StageAmount, StageProgress};

/// Counters that a stage's threads advance and anyone may read; also how it is cancelled.
#[derive(Debug, Default)]
pub struct ProgressCounters {
    copied: Counters,
    read_back: Counters,
    walked: AtomicBool,
    phase: AtomicU8,
    /// Nanoseconds in each phase.
    times: [AtomicU64; 4],
    cancelled: AtomicBool,
}

#[derive(Debug, Default)]
struct Counters {
    files: AtomicU64,
    files_total: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
}

impl Counters {
    fn expect(&self, files: u64, bytes: u64) {
        self.files_total.fetch_add(files, Relaxed);
        self.bytes_total.fetch_add(bytes, Relaxed);
    }

    fn amount(&self) -> StageAmount {
        StageAmount {
            files: self.files.load(Relaxed),
            files_total: self.files_total.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_total: self.bytes_total.load(Relaxed),
        }
    }
}

impl ProgressCounters {
    /// Counters at zero.
    pub fn new() -> ProgressCounters {
        ProgressCounters::default()
    }

    /// Asks the stage to stop; it returns soon after, but waits for what is being put on stable
    /// storage.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Whether it was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// The counters now.
    pub fn snapshot(&self) -> StageProgress {
        let time = |phase: Phase| {
            let nanos = self.times.get(phase as usize);
            Duration::from_nanos(nanos.map_or(0, |nanos| nanos.load(Relaxed)))
        };
        StageProgress {
            copied: self.copied.amount(),
            all_found: self.walked.load(Relaxed),
            phase: Phase::from_index(self.phase.load(Relaxed)),
            read_back: self.read_back.amount(),
            times: PhaseTimes {
                copying: time(Phase::Copying),
                syncing: time(Phase::Syncing),
                reading_back: time(Phase::ReadingBack),
                finishing: time(Phase::Finishing),
            },
        }
    }

    pub(crate) fn found(&self, bytes: u64) {
        self.copied.expect(1, bytes);
    }

    pub(crate) fn staged_file(&self) {
        self.copied.files.fetch_add(1, Relaxed);
    }

    pub(crate) fn staged_bytes(&self, bytes: u64) {
        self.copied.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn all_found(&self) {
        self.walked.store(true, Relaxed);
    }

    /// A file with so many bytes is to be read back.
    pub(crate) fn to_read_back(&self, bytes: u64) {
        self.read_back.expect(1, bytes);
    }

    pub(crate) fn read_back_file(&self) {
        self.read_back.files.fetch_add(1, Relaxed);
    }

    pub(crate) fn read_back_bytes(&self, bytes: u64) {
        self.read_back.bytes.fetch_add(bytes, Relaxed);
    }

    /// So long it was in this phase.
    pub(crate) fn spent(&self, phase: Phase, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(sum) = self.times.get(phase as usize) {
            sum.fetch_add(nanos, Relaxed);
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_told_apart_and_timed() {
        let progress = ProgressCounters::new();
        assert_eq!(progress.snapshot(), StageProgress::default());
        progress.found(10);
        progress.to_read_back(7);
        let second = Duration::from_secs(1);
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            progress.enter(phase);
            progress.spent(phase, second * (1 + index as u32));
            let now = progress.snapshot();
            assert_eq!(now.phase, phase);
            let total = if phase == Phase::ReadingBack { 7 } else { 10 };
            assert_eq!(now.present().bytes_total, total);
        }
        progress.spent(Phase::Syncing, second);
        let times = progress.snapshot().times;
        assert_eq!(times.until_durable(), 4 * second);
        assert_eq!(
            (times.reading_back, times.finishing),
            (3 * second, 4 * second)
        );
    }
}
