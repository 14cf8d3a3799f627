//! How far a stage is, how fast it goes, when it will be done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters that a stage's threads advance and anyone may read; also how it is cancelled.
#[derive(Debug, Default)]
pub struct Progress {
    files_total: AtomicU64,
    files: AtomicU64,
    bytes_total: AtomicU64,
    bytes: AtomicU64,
    walked: AtomicBool,
    cancelled: AtomicBool,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Files and links found so far.
    pub files_total: u64,
    /// Of these, staged.
    pub files: u64,
    /// Bytes found so far.
    pub bytes_total: u64,
    /// Of these, staged.
    pub bytes: u64,
    /// Whether everything was found: the totals are final.
    pub walked: bool,
}

impl Progress {
    /// Counters at zero.
    pub fn new() -> Progress {
        Progress::default()
    }

    /// Asks the stage to stop; it returns soon after.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// The counters now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            files_total: self.files_total.load(Ordering::Relaxed),
            files: self.files.load(Ordering::Relaxed),
            bytes_total: self.bytes_total.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            walked: self.walked.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn found(&self, bytes: u64) {
        self.files_total.fetch_add(1, Ordering::Relaxed);
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn staged_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn staged_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn all_found(&self) {
        self.walked.store(true, Ordering::Relaxed);
    }
}

/// Turns snapshots into a rate and a time to go, over a sliding window.
#[derive(Debug)]
pub struct Meter {
    window: Duration,
    samples: VecDeque<(Instant, Snapshot)>,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter {
            window: Duration::from_secs(10),
            samples: VecDeque::new(),
        }
    }
}

impl Meter {
    /// Adds a snapshot taken at `now`; more than some ten a second add nothing.
    pub fn add(&mut self, now: Instant, snapshot: Snapshot) {
        const MOST: usize = 256;
        self.samples.push_back((now, snapshot));
        let old = |at: &Instant| now.saturating_duration_since(*at) > self.window;
        while self.samples.len() > 2
            && (self.samples.len() > MOST || self.samples.front().is_some_and(|(at, _)| old(at)))
        {
            self.samples.pop_front();
        }
    }

    fn span(&self) -> Option<(f64, &Snapshot, &Snapshot)> {
        let ((from, first), (to, last)) = (self.samples.front()?, self.samples.back()?);
        let seconds = to.saturating_duration_since(*from).as_secs_f64();
        (seconds > 0.0).then_some((seconds, first, last))
    }

    /// Bytes a second over the window.
    pub fn rate(&self) -> Option<f64> {
        let (seconds, first, last) = self.span()?;
        Some(last.bytes.saturating_sub(first.bytes) as f64 / seconds)
    }

    /// Files a second over the window.
    pub fn files_rate(&self) -> Option<f64> {
        let (seconds, first, last) = self.span()?;
        Some(last.files.saturating_sub(first.files) as f64 / seconds)
    }

    /// Time to go at the present rates of bytes and of files, whichever takes longer. `None`
    /// while files are still being found, or nothing moves.
    pub fn time_to_go(&self) -> Option<Duration> {
        let (_, _, last) = self.span()?;
        if !last.walked {
            return None;
        }
        let left = |total: u64, done: u64, rate: Option<f64>| match total.saturating_sub(done) {
            0 => Some(0.0),
            left => rate
                .filter(|rate| *rate > 0.0)
                .map(|rate| left as f64 / rate),
        };
        let bytes = left(last.bytes_total, last.bytes, self.rate())?;
        let files = left(last.files_total, last.files, self.files_rate())?;
        Duration::try_from_secs_f64(bytes.max(files)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_to_go_follow_the_window() {
        let start = Instant::now();
        let mut meter = Meter::default();
        for second in 0..30u64 {
            // 100 bytes a second at first, 10 later.
            let bytes = if second <= 15 {
                second * 100
            } else {
                1500 + (second - 15) * 10
            };
            let snapshot = Snapshot {
                files_total: 1,
                files: 0,
                bytes_total: 2000,
                bytes,
                walked: second > 2,
            };
            meter.add(start + Duration::from_secs(second), snapshot);
            if second == 2 {
                assert_eq!(meter.time_to_go(), None);
            }
        }
        assert_eq!(meter.rate(), Some(10.0));
        let one = Snapshot {
            files_total: 1,
            files: 1,
            bytes_total: 2000,
            bytes: 1650,
            walked: true,
        };
        meter.add(start + Duration::from_secs(30), one);
        assert_eq!(meter.rate(), Some(10.0));
        assert_eq!(meter.time_to_go(), Some(Duration::from_secs(35)));
    }
}
