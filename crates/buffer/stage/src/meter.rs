//! How fast a stage goes, and when what it does will be done.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::progress::{Phase, StageProgress};

/// Turns snapshots into a rate and a time to go, over a sliding window that begins with the phase at
/// the earliest.
#[derive(Debug)]
pub struct Meter {
    window: Duration,
    samples: VecDeque<(Instant, StageProgress)>,
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
    pub fn add(&mut self, now: Instant, snapshot: StageProgress) {
        const MOST: usize = 256;
        let last = self.samples.back();
        if last.is_some_and(|(_, last)| last.phase != snapshot.phase) {
            self.samples.clear();
        }
        self.samples.push_back((now, snapshot));
        let old = |at: &Instant| now.saturating_duration_since(*at) > self.window;
        while self.samples.len() > 2
            && (self.samples.len() > MOST || self.samples.front().is_some_and(|(at, _)| old(at)))
        {
            self.samples.pop_front();
        }
    }

    fn span(&self) -> Option<(f64, &StageProgress, &StageProgress)> {
        let ((from, first), (to, last)) = (self.samples.front()?, self.samples.back()?);
        let seconds = to.saturating_duration_since(*from).as_secs_f64();
        // How far putting things on stable storage is nobody can see.
        (seconds > 0.0 && last.phase != Phase::Syncing).then_some((seconds, first, last))
    }

    /// Bytes a second over the window: of those copied, or of those read back. `None` while neither
    /// is done.
    pub fn rate(&self) -> Option<f64> {
        let (seconds, first, last) = self.span()?;
        let moves = last.phase != Phase::Finishing;
        let bytes = last.present().bytes.saturating_sub(first.present().bytes);
        moves.then_some(bytes as f64 / seconds)
    }

    /// Files a second over the window.
    pub fn files_rate(&self) -> Option<f64> {
        let (seconds, first, last) = self.span()?;
        let files = last.present().files.saturating_sub(first.present().files);
        Some(files as f64 / seconds)
    }

    /// Time until the present phase is over, at the present rates of bytes and of files, whichever
    /// takes longer. `None` while files are still being found, nothing moves, or what is left cannot
    /// be counted.
    pub fn time_to_go(&self) -> Option<Duration> {
        let (_, _, last) = self.span()?;
        if !last.all_found {
            return None;
        }
        let left = |total: u64, done: u64, rate: Option<f64>| match total.saturating_sub(done) {
            0 => Some(0.0),
            left => rate
                .filter(|rate| *rate > 0.0)
                .map(|rate| left as f64 / rate),
        };
        let now = last.present();
        let bytes = left(now.bytes_total, now.bytes, self.rate())?;
        let longest = match left(now.files_total, now.files, self.files_rate()) {
            Some(files) => bytes.max(files),
            // Large files take longer than the window.
            None if bytes > 0.0 => bytes,
            None => return None,
        };
        // When all further names are made there are still the directories.
        if last.phase == Phase::Finishing && longest == 0.0 {
            return None;
        }
        Duration::try_from_secs_f64(longest).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::StageAmount;

    fn bytes(bytes: u64, bytes_total: u64) -> StageAmount {
        StageAmount {
            files: u64::from(bytes == bytes_total),
            files_total: 1,
            bytes,
            bytes_total,
        }
    }

    fn copying(copied: StageAmount, walked: bool) -> StageProgress {
        StageProgress {
            copied,
            all_found: walked,
            ..StageProgress::default()
        }
    }

    #[test]
    fn rate_and_time_to_go_follow_the_window() {
        let start = Instant::now();
        let mut meter = Meter::default();
        for second in 0..30u64 {
            // 100 bytes a second at first, 10 later.
            let done = if second <= 15 {
                second * 100
            } else {
                1500 + (second - 15) * 10
            };
            let snapshot = copying(bytes(done, 2000), second > 2);
            meter.add(start + Duration::from_secs(second), snapshot);
            if second == 2 {
                assert_eq!(meter.time_to_go(), None);
            }
        }
        assert_eq!(meter.rate(), Some(10.0));
        let mut one = bytes(1650, 2000);
        one.files = 1;
        meter.add(start + Duration::from_secs(30), copying(one, true));
        assert_eq!(meter.rate(), Some(10.0));
        assert_eq!(meter.time_to_go(), Some(Duration::from_secs(35)));
    }

    #[test]
    fn every_phase_has_its_own_rate_and_end() {
        let start = Instant::now();
        let mut meter = Meter::default();
        let mut at = |second: u64, snapshot: StageProgress| {
            meter.add(start + Duration::from_secs(second), snapshot);
            (meter.rate(), meter.time_to_go().map(|left| left.as_secs()))
        };
        let all = bytes(1000, 1000);
        let in_phase = |phase, read_back| StageProgress {
            phase,
            read_back,
            ..copying(all, true)
        };
        at(0, copying(bytes(0, 1000), true));
        let half = at(1, copying(bytes(500, 1000), true));
        assert_eq!(half, (Some(500.0), Some(1)));
        assert_eq!(at(2, copying(all, true)), (Some(500.0), Some(0)));
        // While it syncs nobody knows; the rate is not that of copying.
        let read = |done| bytes(done, 800);
        for second in 3..6 {
            assert_eq!(at(second, in_phase(Phase::Syncing, read(0))), (None, None));
        }
        // What was copied before does not count for reading back.
        assert_eq!(at(6, in_phase(Phase::ReadingBack, read(0))), (None, None));
        let some = at(7, in_phase(Phase::ReadingBack, read(200)));
        assert_eq!(some, (Some(200.0), Some(3)));
        let more = at(8, in_phase(Phase::ReadingBack, read(600)));
        assert_eq!(more, (Some(300.0), Some(0)));
        // Further names count, and have no bytes.
        let finishing = |files, second: u64| {
            let mut snapshot = in_phase(Phase::Finishing, read(800));
            (snapshot.copied.files, snapshot.copied.files_total) = (files, 100);
            (second, snapshot)
        };
        for ((second, snapshot), left) in [
            (finishing(60, 9), None),
            (finishing(70, 10), Some(3)),
            (finishing(100, 11), None),
        ] {
            assert_eq!(at(second, snapshot), (None, left));
        }
    }
}
