//! Progress of a job on standard error.

use std::collections::BTreeMap;
use std::time::Instant;

use forebay_control::controller::StageStatus;
use forebay_control::messages::StageId;
use forebay_job::Observer;
use forebay_protocol::progress::{StagePhase, StageProgress};
use forebay_units::human::{bytes, rate, seconds};

use crate::console::print_stderr;
use crate::progress::{Display, Progress};
use crate::stage_meter::StageMeter;

/// An observer that writes to standard error.
#[derive(Debug)]
pub struct Terminal {
    display: Display,
    /// The progress of the current phase.
    progress: Option<Progress>,
    meters: BTreeMap<StageId, StageMeter>,
}

impl Default for Terminal {
    fn default() -> Terminal {
        Terminal { display: Display::choose(false), progress: None, meters: BTreeMap::new() }
    }
}

impl Terminal {
    /// Takes progress off the screen.
    pub fn clear(&mut self) {
        self.progress = None;
    }

    fn update(&mut self, text: impl FnOnce() -> String) {
        let display = self.display;
        let progress = self.progress.get_or_insert_with(|| Progress::text(display));
        progress.update(0.0, "  ", text);
    }
}

impl Observer for Terminal {
    fn phase(&mut self, name: &str) {
        self.meters.clear();
        self.progress = None;
        print_stderr(format_args!("forebay: {name}"));
        self.progress = Some(Progress::text(self.display));
    }

    fn progress(&mut self, stages: &[StageStatus]) {
        let now = Instant::now();
        let mut lines = Vec::new();
        self.meters.retain(|id, _| stages.iter().any(|stage| stage.id == *id));
        for stage in stages {
            let meter = self.meters.entry(stage.id).or_default();
            meter.add(now, stage.progress);
            let direction = stage.direction.name();
            // A stage of `forebay stage` has no line.
            let line = match stage.line {
                0 => String::new(),
                line => format!(" line {line}"),
            };
            let activity = stage_activity(&stage.progress, meter);
            lines.push(format!("{direction}{line}: {activity}"));
        }
        self.update(|| lines.join("\n"));
    }

    fn removal(&mut self, removed: u64, files: u64) {
        self.update(|| format!("{removed} of {files} files removed"));
    }

    fn note(&mut self, text: &str) {
        print_stderr(format_args!("forebay: {text}"));
    }

    fn warning(&mut self, text: &str) {
        print_stderr(format_args!("forebay: warning: {text}"));
    }
}

/// Phase, amount, rate and remaining time of a running stage:
/// `reading back 2 of 9 files, 1.20 GiB of 2.00 GiB at 1.80 GiB/s, 444 ms left`.
fn stage_activity(progress: &StageProgress, meter: &StageMeter) -> String {
    let (phase, now) = (progress.phase, progress.present());
    // The totals still grow while the source is walked.
    let open = if progress.all_found { "" } else { "+" };
    let mut text = match phase {
        // The kernel does not report how much is left.
        StagePhase::Syncing => format!("syncing {}", bytes(now.bytes)),
        StagePhase::Finishing => format!("finishing {} of {} files", now.files, now.files_total),
        StagePhase::Copying | StagePhase::ReadingBack => format!(
            "{} {} of {}{open} files, {} of {}{open}",
            phase.words(),
            now.files,
            now.files_total,
            bytes(now.bytes),
            bytes(now.bytes_total)
        ),
    };
    if let Some(bytes_per_second) = meter.rate() {
        text.push_str(&format!(" at {}", rate(bytes_per_second)));
    }
    if let Some(left) = meter.time_left() {
        text.push_str(&format!(", {} left", seconds(left.as_secs_f64())));
    }
    if phase < StagePhase::ReadingBack && progress.read_back.files_total > 0 {
        text.push_str(", then reading back");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::progress::StageAmount;
    use std::time::Duration;

    #[test]
    fn line_shows_phase_amount_rate_and_time_left() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut meter = StageMeter::default();
        let mut at = |seconds: u32, progress: &StageProgress| {
            meter.add(start + seconds * second, *progress);
            stage_activity(progress, &meter)
        };
        let mut progress =
            StageProgress { files_total: 3, bytes_total: 2 << 30, ..StageProgress::default() };
        let text = at(0, &progress);
        assert_eq!(text, "copying 0 of 3+ files, 0 B of 2.00 GiB+");
        (progress.files, progress.bytes, progress.all_found) = (1, 1 << 30, true);
        (progress.read_back.files_total, progress.read_back.bytes_total) = (1, 1 << 30);
        let text = at(1, &progress);
        let expected = "copying 1 of 3 files, 1.00 GiB of 2.00 GiB at 1.00 GiB/s, 2.00 s left, \
                        then reading back";
        assert_eq!(text, expected);
        (progress.files, progress.bytes) = (2, 2 << 30);
        progress.phase = StagePhase::Syncing;
        assert_eq!(at(2, &progress), "syncing 2.00 GiB, then reading back");
        progress.phase = StagePhase::ReadingBack;
        progress.read_back =
            StageAmount { files_total: 2, bytes_total: 2 << 30, ..StageAmount::default() };
        at(3, &progress);
        (progress.read_back.files, progress.read_back.bytes) = (1, 3 << 29);
        let expected = "reading back 1 of 2 files, 1.50 GiB of 2.00 GiB at 1.50 GiB/s, 1.00 s left";
        assert_eq!(at(4, &progress), expected);
        progress.phase = StagePhase::Finishing;
        assert_eq!(at(5, &progress), "finishing 2 of 3 files");
    }
}
