//! Progress on standard error: one line that is rewritten in a terminal, now and then a line
//! elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use forebay_model::jobscript::Direction;
use forebay_stage::{Meter, Snapshot};

use crate::controller::StageStatus;
use crate::protocol::StageId;
use crate::run::Observer;

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
            let progress = stage.progress;
            let meter = self.meters.entry(stage.id).or_default();
            meter.add(
                now,
                Snapshot {
                    files_total: progress.files_total,
                    files: progress.files,
                    bytes_total: progress.bytes_total,
                    bytes: progress.bytes,
                    walked: progress.all_found,
                },
            );
            let way = match stage.direction {
                Direction::In => "in",
                Direction::Out => "out",
            };
            // Those of `forebay stage` have none.
            let line = match stage.line {
                0 => String::new(),
                line => format!(" line {line}"),
            };
            let mut text = format!(
                "{way}{line}: {} of {} files, {} of {}",
                progress.files,
                progress.files_total,
                size(progress.bytes),
                size(progress.bytes_total)
            );
            if let Some(rate) = meter.rate() {
                text.push_str(&format!(", {}/s", size(rate as u64)));
            }
            if let Some(left) = meter.time_to_go() {
                text.push_str(&format!(", {} to go", time(left.as_secs_f64())));
            }
            parts.push(text);
        }
        self.show(now, &parts);
    }

    fn removing(&mut self, removed: u64, files: u64) {
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
