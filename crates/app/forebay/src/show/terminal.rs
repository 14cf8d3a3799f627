//! Progress on standard error: one line that is rewritten in a terminal, now and then a line
//! elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use forebay_job_script::Direction;
use forebay_stage::{Meter, Phase};

use forebay_control::controller::StageStatus;
use forebay_control::messages::{StageId, StageProgress};
use forebay_job::Observer;

use super::{size, time};

/// Time between lines where there is no terminal, and before the first: what is over sooner is told
/// by the summary.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// An observer that writes to standard error.
#[derive(Debug)]
pub struct Terminal {
    terminal: bool,
    phase: String,
    open_line: bool,
    written: Option<Instant>,
    meters: BTreeMap<StageId, Meter>,
}

impl Default for Terminal {
    fn default() -> Terminal {
        Terminal {
            terminal: stderr().is_terminal(),
            phase: String::new(),
            open_line: false,
            written: None,
            meters: BTreeMap::new(),
        }
    }
}

impl Terminal {
    /// Ends a line that is being rewritten.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.open_line) {
            let _ = writeln!(stderr());
        }
    }

    /// Shows how far the parts of a step are, where there is no terminal now and then.
    fn show(&mut self, now: Instant, parts: &[String]) {
        let due = self
            .written
            .is_none_or(|at| now.saturating_duration_since(at) > LINE_EVERY);
        if self.terminal {
            self.write(&format!("  {}", parts.join("; ")));
        } else if due {
            for part in parts {
                self.write(&format!("  {part}"));
            }
            self.written = Some(now);
        }
    }

    fn write(&mut self, text: &str) {
        // If nobody can read it, the job goes on all the same.
        let mut stderr = stderr();
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
            self.open_line = true;
        } else {
            let _ = writeln!(stderr, "{text}");
        }
    }
}

impl Observer for Terminal {
    fn phase(&mut self, name: &str) {
        self.finish();
        name.clone_into(&mut self.phase);
        self.meters.clear();
        self.written = Some(Instant::now());
        let _ = writeln!(stderr(), "forebay: {name}");
    }

    fn progress(&mut self, stages: &[StageStatus]) {
        let now = Instant::now();
        let mut parts = Vec::new();
        self.meters
            .retain(|id, _| stages.iter().any(|stage| stage.id == *id));
        for stage in stages {
            let meter = self.meters.entry(stage.id).or_default();
            meter.add(now, stage.progress);
            let way = match stage.direction {
                Direction::In => "in",
                Direction::Out => "out",
            };
            // Those of `forebay stage` have none.
            let line = match stage.line {
                0 => String::new(),
                line => format!(" line {line}"),
            };
            parts.push(format!("{way}{line}: {}", doing(&stage.progress, meter)));
        }
        self.show(now, &parts);
    }

    fn removal(&mut self, removed: u64, files: u64) {
        let text = format!("{removed} of {files} files removed");
        self.show(Instant::now(), &[text]);
    }

    fn note(&mut self, text: &str) {
        self.finish();
        let _ = writeln!(stderr(), "forebay: {text}");
    }

    fn warning(&mut self, text: &str) {
        self.finish();
        let _ = writeln!(stderr(), "forebay: warning: {text}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.finish();
    }
}

/// What a running stage is doing, how far it is with that, how fast, and when that will be done:
/// `reading back 2 of 9 files, 1.20 GiB of 2.00 GiB at 1.80 GiB/s, 444 ms to go`.
fn doing(progress: &StageProgress, meter: &Meter) -> String {
    let (phase, now) = (progress.phase, progress.present());
    // Files are still being found.
    let open = if progress.all_found { "" } else { "+" };
    let mut text = match phase {
        // Nobody can say how far that is.
        Phase::Syncing => format!("syncing {}", size(now.bytes)),
        Phase::Finishing => format!("finishing {} of {} files", now.files, now.files_total),
        Phase::Copying | Phase::ReadingBack => format!(
            "{} {} of {}{open} files, {} of {}{open}",
            phase.words(),
            now.files,
            now.files_total,
            size(now.bytes),
            size(now.bytes_total)
        ),
    };
    if let Some(rate) = meter.rate() {
        text.push_str(&format!(" at {}/s", size(rate as u64)));
    }
    if let Some(left) = meter.time_to_go() {
        text.push_str(&format!(", {} to go", time(left.as_secs_f64())));
    }
    if phase < Phase::ReadingBack && progress.read_back.files_total > 0 {
        text.push_str(", then reading back");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_stage::StageAmount;

    #[test]
    fn a_line_says_what_is_done_and_how_long_that_takes() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut meter = Meter::default();
        let mut at = |seconds: u32, progress: &StageProgress| {
            meter.add(start + seconds * second, *progress);
            doing(progress, &meter)
        };
        let mut progress = StageProgress {
            copied: StageAmount {
                files_total: 3,
                bytes_total: 2 << 30,
                ..StageAmount::default()
            },
            ..StageProgress::default()
        };
        let text = at(0, &progress);
        assert_eq!(text, "copying 0 of 3+ files, 0 B of 2.00 GiB+");
        (
            progress.copied.files,
            progress.copied.bytes,
            progress.all_found,
        ) = (1, 1 << 30, true);
        (
            progress.read_back.files_total,
            progress.read_back.bytes_total,
        ) = (1, 1 << 30);
        let text = at(1, &progress);
        let expected = "copying 1 of 3 files, 1.00 GiB of 2.00 GiB at 1.00 GiB/s, 2.0 s to go, \
                        then reading back";
        assert_eq!(text, expected);
        (progress.copied.files, progress.copied.bytes) = (2, 2 << 30);
        progress.phase = Phase::Syncing;
        assert_eq!(at(2, &progress), "syncing 2.00 GiB, then reading back");
        progress.phase = Phase::ReadingBack;
        progress.read_back = StageAmount {
            files_total: 2,
            bytes_total: 2 << 30,
            ..StageAmount::default()
        };
        at(3, &progress);
        (progress.read_back.files, progress.read_back.bytes) = (1, 3 << 29);
        let expected = "reading back 1 of 2 files, 1.50 GiB of 2.00 GiB at 1.50 GiB/s, 1.0 s to go";
        assert_eq!(at(4, &progress), expected);
        progress.phase = Phase::Finishing;
        assert_eq!(at(5, &progress), "finishing 2 of 3 files");
    }
}
