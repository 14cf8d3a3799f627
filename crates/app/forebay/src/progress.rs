//! Progress on standard error: redrawn in place on a terminal, an occasional line elsewhere.

use forebay_console::without_controls;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// All progress of the process. Everything else that is written to standard error goes through
/// [`suspend`], so that it does not mix with what is redrawn.
static DRAWN: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8)));

/// Interval between plain lines, and time before the first.
pub const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Steps of a bar.
const STEPS: u64 = 1000;

/// Display of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    /// A line that is redrawn in place.
    Redrawn,
    /// A plain line every [`LINE_INTERVAL`].
    Lines,
    /// No display.
    Quiet,
}

impl Display {
    /// Redrawn on a terminal, lines elsewhere, nothing if `quiet`.
    pub fn choose(quiet: bool) -> Display {
        if quiet {
            Display::Quiet
        } else if std::io::stderr().is_terminal() {
            Display::Redrawn
        } else {
            Display::Lines
        }
    }
}

/// Runs `write` while no progress is on the screen.
pub fn suspend<T>(write: impl FnOnce() -> T) -> T {
    DRAWN.suspend(write)
}

/// The progress of one activity; dropping it takes it off the screen.
#[derive(Debug)]
pub struct Progress {
    drawn: Option<ProgressBar>,
    lines: bool,
    last_line: Mutex<Instant>,
}

impl Progress {
    /// A bar with a share and a text, labelled `label`.
    pub fn bar(label: &str, display: Display) -> Progress {
        let progress = Progress::new(display, "{prefix} {bar:30} {percent:>3}%  {msg}");
        if let Some(drawn) = &progress.drawn {
            drawn.set_prefix(label.to_owned());
            drawn.set_message("starting");
        }
        progress
    }

    /// A line of text.
    pub fn text(display: Display) -> Progress {
        Progress::new(display, "  {msg}")
    }

    fn new(display: Display, template: &str) -> Progress {
        let drawn = (display == Display::Redrawn).then(|| {
            let bar = DRAWN.add(ProgressBar::new(STEPS));
            // The templates are constants and valid; the default style would do otherwise.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Progress { drawn, lines: display == Display::Lines, last_line: Mutex::new(Instant::now()) }
    }

    /// Shows a share from 0 to 1 and the text that `text` makes; where lines are printed, only if
    /// one is due, and then all lines of the text with `prefix` before each.
    pub fn update(&self, share: f64, prefix: &str, text: impl FnOnce() -> String) {
        if let Some(drawn) = &self.drawn {
            let text = text().replace('\n', "; ");
            drawn.set_message(without_controls(&text).into_owned());
            drawn.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
        } else if self.lines {
            // Another thread that prints already has nothing older to say.
            let Ok(mut last) = self.last_line.try_lock() else {
                return;
            };
            if last.elapsed() >= LINE_INTERVAL {
                *last = Instant::now();
                for line in text().lines() {
                    suspend(|| forebay_console::print_stderr(format_args!("{prefix}{line}")));
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(drawn) = &self.drawn {
            drawn.finish_and_clear();
            DRAWN.remove(drawn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_and_lines_draw_nothing() {
        for display in [Display::Quiet, Display::Lines] {
            let progress = Progress::bar("x", display);
            assert!(progress.drawn.is_none());
            progress.update(0.5, "", || panic!("no line is due"));
        }
    }
}
