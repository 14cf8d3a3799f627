//! Counters that the threads of a stage advance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use forebay_protocol::progress::{PhaseTimes, StageAmount, StagePhase, StageProgress};

/// Progress counters of a running stage, readable by any thread, and its cancellation flag.
#[derive(Debug, Default)]
pub struct ProgressCounters {
    pub(crate) copied: Amounts,
    pub(crate) read_back: Amounts,
    all_found: AtomicBool,
    phase: AtomicU8,
    /// Time in each phase, in nanoseconds.
    times_ns: [AtomicU64; StagePhase::ALL.len()],
    cancelled: Arc<AtomicBool>,
    suspended: AtomicBool,
}

/// Files and bytes of a phase.
#[derive(Debug, Default)]
pub(crate) struct Amounts {
    files: AtomicU64,
    files_total: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
}

impl Amounts {
    /// A file or link of `bytes` bytes was found.
    pub fn expect_file(&self, bytes: u64) {
        self.files_total.fetch_add(1, Relaxed);
        self.bytes_total.fetch_add(bytes, Relaxed);
    }

    /// A part of `bytes` bytes of a file was found that another mover counts.
    pub fn expect_bytes(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Relaxed);
    }

    /// These files and bytes were found and copied by an earlier run.
    pub fn restore(&self, files: u64, bytes: u64) {
        self.files_total.fetch_add(files, Relaxed);
        self.files.fetch_add(files, Relaxed);
        self.bytes_total.fetch_add(bytes, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// A file is complete.
    pub fn add_file(&self) {
        let before = self.files.fetch_add(1, Relaxed);
        debug_assert!(before < self.files_total.load(Relaxed));
    }

    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn load(&self) -> StageAmount {
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

    /// Requests cancellation for good. The stage returns soon after, without incomplete copies; a
    /// sync in progress completes first.
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Requests cancellation of a stage that a later run continues: incomplete copies of large
    /// files stay, if they are in its journal.
    pub fn suspend(&self) {
        // A stage that was cancelled before is not continued.
        if !self.is_cancelled() {
            self.suspended.store(true, Relaxed);
            self.cancelled.store(true, Relaxed);
        }
    }

    /// Whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    /// The cancellation flag, for what outlives a reference to the counters.
    pub(crate) fn cancellation(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    /// Whether a later run is to continue the cancelled stage.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Relaxed)
    }

    /// The current values.
    pub fn snapshot(&self) -> StageProgress {
        let time = |phase: StagePhase| {
            let nanos = self.times_ns.get(phase as usize);
            Duration::from_nanos(nanos.map_or(0, |nanos| nanos.load(Relaxed)))
        };
        let copied = self.copied.load();
        let phase = usize::from(self.phase.load(Relaxed));
        StageProgress {
            files: copied.files,
            files_total: copied.files_total,
            bytes: copied.bytes,
            bytes_total: copied.bytes_total,
            all_found: self.all_found.load(Relaxed),
            phase: StagePhase::ALL.get(phase).copied().unwrap_or(StagePhase::Finishing),
            read_back: self.read_back.load(),
            times: PhaseTimes {
                copying: time(StagePhase::Copying),
                syncing: time(StagePhase::Syncing),
                reading_back: time(StagePhase::ReadingBack),
                finishing: time(StagePhase::Finishing),
            },
        }
    }

    pub(crate) fn set_all_found(&self) {
        self.all_found.store(true, Relaxed);
    }

    pub(crate) fn add_phase_time(&self, phase: StagePhase, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(sum) = self.times_ns.get(phase as usize) {
            sum.fetch_add(nanos, Relaxed);
        }
    }

    pub(crate) fn enter_phase(&self, phase: StagePhase) {
        self.phase.store(phase as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_reports_each_phase_and_its_time() {
        let counters = ProgressCounters::new();
        assert_eq!(counters.snapshot(), StageProgress::default());
        counters.copied.expect_file(10);
        counters.read_back.expect_file(7);
        let second = Duration::from_secs(1);
        for (index, phase) in StagePhase::ALL.into_iter().enumerate() {
            assert_eq!(index, phase as usize);
            counters.enter_phase(phase);
            counters.add_phase_time(phase, second * (1 + index as u32));
            let now = counters.snapshot();
            assert_eq!(now.phase, phase);
            let total = if phase == StagePhase::ReadingBack { 7 } else { 10 };
            assert_eq!(now.present().bytes_total, total);
        }
        counters.add_phase_time(StagePhase::Syncing, second);
        let times = counters.snapshot().times;
        assert_eq!(times.until_durable(), 4 * second);
        assert_eq!((times.reading_back, times.finishing), (3 * second, 4 * second));
    }
}
