//! Rate and remaining time of a stage.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use forebay_protocol::progress::{StagePhase, StageProgress};

/// Computes rates and the remaining time of a phase from snapshots, over a sliding window that starts
/// with the phase at the earliest.
#[derive(Debug)]
pub struct StageMeter {
    window: Duration,
    samples: VecDeque<(Instant, StageProgress)>,
}

impl Default for StageMeter {
    fn default() -> StageMeter {
        StageMeter { window: Duration::from_secs(10), samples: VecDeque::new() }
    }
}

impl StageMeter {
    /// Adds a snapshot taken at `now`; more than about ten a second add no accuracy.
    pub fn add(&mut self, now: Instant, snapshot: StageProgress) {
        const MAX_SAMPLES: usize = 256;
        let last = self.samples.back();
        if last.is_some_and(|(_, last)| last.phase != snapshot.phase) {
            self.samples.clear();
        }
        self.samples.push_back((now, snapshot));
        let old = |at: &Instant| now.saturating_duration_since(*at) > self.window;
        while self.samples.len() > 2
            && (self.samples.len() > MAX_SAMPLES
                || self.samples.front().is_some_and(|(at, _)| old(at)))
        {
            self.samples.pop_front();
        }
    }

    fn span(&self) -> Option<(f64, &StageProgress, &StageProgress)> {
        let ((from, first), (to, last)) = (self.samples.front()?, self.samples.back()?);
        let seconds = to.saturating_duration_since(*from).as_secs_f64();
        // A sync has no measurable progress.
        (seconds > 0.0 && last.phase != StagePhase::Syncing).then_some((seconds, first, last))
    }

    /// Bytes per second over the window, copied or read back. `None` in other phases.
    pub fn rate(&self) -> Option<f64> {
        let (seconds, first, last) = self.span()?;
        let moves = last.phase != StagePhase::Finishing;
        let bytes = last.present().bytes.saturating_sub(first.present().bytes);
        moves.then_some(bytes as f64 / seconds)
    }

    /// Files per second over the window.
    pub fn files_rate(&self) -> Option<f64> {
        let (seconds, first, last) = self.span()?;
        let files = last.present().files.saturating_sub(first.present().files);
        Some(files as f64 / seconds)
    }

    /// Time until the end of the current phase, at the current rates of bytes and of files, whichever
    /// takes longer. `None` while files are still being found, at a rate of 0, or if the rest of the
    /// phase cannot be counted.
    pub fn time_left(&self) -> Option<Duration> {
        let (_, _, last) = self.span()?;
        if !last.all_found {
            return None;
        }
        let left = |total: u64, done: u64, rate: Option<f64>| match total.saturating_sub(done) {
            0 => Some(0.0),
            left => rate.filter(|rate| *rate > 0.0).map(|rate| left as f64 / rate),
        };
        let now = last.present();
        let bytes = left(now.bytes_total, now.bytes, self.rate())?;
        let longest = match left(now.files_total, now.files, self.files_rate()) {
            Some(files) => bytes.max(files),
            // A large file takes longer than the window.
            None if bytes > 0.0 => bytes,
            None => return None,
        };
        // After the last hard link there are still the directories.
        if last.phase == StagePhase::Finishing && longest == 0.0 {
            return None;
        }
        Duration::try_from_secs_f64(longest).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::progress::StageAmount;

    fn bytes(bytes: u64, bytes_total: u64) -> StageAmount {
        StageAmount { files: u64::from(bytes == bytes_total), files_total: 1, bytes, bytes_total }
    }

    fn copying(copied: StageAmount, all_found: bool) -> StageProgress {
        StageProgress {
            files: copied.files,
            files_total: copied.files_total,
            bytes: copied.bytes,
            bytes_total: copied.bytes_total,
            all_found,
            ..StageProgress::default()
        }
    }

    #[test]
    fn rate_and_time_left_follow_the_window() {
        let start = Instant::now();
        let mut meter = StageMeter::default();
        for second in 0..30u64 {
            // 100 bytes per second at first, 10 later.
            let done = if second <= 15 { second * 100 } else { 1500 + (second - 15) * 10 };
            let snapshot = copying(bytes(done, 2000), second > 2);
            meter.add(start + Duration::from_secs(second), snapshot);
            if second == 2 {
                assert_eq!(meter.time_left(), None);
            }
        }
        assert_eq!(meter.rate(), Some(10.0));
        let mut one = bytes(1650, 2000);
        one.files = 1;
        meter.add(start + Duration::from_secs(30), copying(one, true));
        assert_eq!(meter.rate(), Some(10.0));
        assert_eq!(meter.time_left(), Some(Duration::from_secs(35)));
    }

    #[test]
    fn each_phase_has_its_own_rate_and_time_left() {
        let start = Instant::now();
        let mut meter = StageMeter::default();
        let mut at = |second: u64, snapshot: StageProgress| {
            meter.add(start + Duration::from_secs(second), snapshot);
            (meter.rate(), meter.time_left().map(|left| left.as_secs()))
        };
        let all = bytes(1000, 1000);
        let in_phase = |phase, read_back| StageProgress { phase, read_back, ..copying(all, true) };
        at(0, copying(bytes(0, 1000), true));
        let half = at(1, copying(bytes(500, 1000), true));
        assert_eq!(half, (Some(500.0), Some(1)));
        assert_eq!(at(2, copying(all, true)), (Some(500.0), Some(0)));
        // The rate of copying does not apply to a sync.
        let read = |done| bytes(done, 800);
        for second in 3..6 {
            assert_eq!(at(second, in_phase(StagePhase::Syncing, read(0))), (None, None));
        }
        // Bytes copied before do not count for reading back.
        assert_eq!(at(6, in_phase(StagePhase::ReadingBack, read(0))), (None, None));
        let some = at(7, in_phase(StagePhase::ReadingBack, read(200)));
        assert_eq!(some, (Some(200.0), Some(3)));
        let more = at(8, in_phase(StagePhase::ReadingBack, read(600)));
        assert_eq!(more, (Some(300.0), Some(0)));
        // Hard links count as files without bytes.
        let finishing = |files, second: u64| {
            let mut snapshot = in_phase(StagePhase::Finishing, read(800));
            (snapshot.files, snapshot.files_total) = (files, 100);
            (second, snapshot)
        };
        for ((second, snapshot), left) in
            [(finishing(60, 9), None), (finishing(70, 10), Some(3)), (finishing(100, 11), None)]
        {
            assert_eq!(at(second, snapshot), (None, left));
        }
    }
}
