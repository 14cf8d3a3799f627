//! Progress on standard error: a bar on a terminal, a line now and then elsewhere, nothing if quiet.

use crate::console::print_stderr;
use crate::quantity;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where progress goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    /// A bar that is redrawn in place.
    Bar,
    /// A plain line every [`LINE_EVERY`].
    Lines,
    /// Nothing.
    Quiet,
}

/// Time between plain lines.
pub const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Steps of the bar.
const STEPS: u64 = 1000;

impl Display {
    /// A bar on a terminal, lines elsewhere, nothing if `quiet`.
    pub fn choose(quiet: bool) -> Display {
        if quiet {
            Display::Quiet
        } else if std::io::stderr().is_terminal() {
            Display::Bar
        } else {
            Display::Lines
        }
    }
}

/// The progress of one simulation.
#[derive(Debug)]
pub struct Meter {
    label: String,
    bar: Option<ProgressBar>,
    lines: bool,
    started: Instant,
    last_line: Mutex<Instant>,
}

impl Meter {
    /// Starts a meter for the simulation that `label` names.
    pub fn start(label: &str, display: Display) -> Meter {
        let bar = (display == Display::Bar).then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr_with_hz(8));
            // The template is fixed, so it parses; the plain style would do if it did not.
            if let Ok(style) =
                ProgressStyle::with_template("{prefix} {bar:30} {percent:>3}%  {msg}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(label.to_string());
            bar.set_message("starting");
            bar
        });
        let now = Instant::now();
        Meter {
            label: label.to_string(),
            bar,
            lines: display == Display::Lines,
            started: now,
            last_line: Mutex::new(now),
        }
    }

    /// Takes in how far the simulation is: simulated seconds, share done (0 to 1), events so far.
    pub fn note(&self, simulated_seconds: f64, done: f64, events: u64) {
        let elapsed = self.started.elapsed();
        if let Some(bar) = &self.bar {
            bar.set_message(status(simulated_seconds, done, events, elapsed));
            bar.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
        } else if self.lines {
            // A thread that finds another one printing has nothing to add.
            let Ok(mut last) = self.last_line.try_lock() else {
                return;
            };
            if last.elapsed() >= LINE_INTERVAL {
                *last = Instant::now();
                print_stderr(format_args!(
                    "{}: {} done, {}",
                    self.label,
                    quantity::percent(done.clamp(0.0, 1.0)),
                    status(simulated_seconds, done, events, elapsed)
                ));
            }
        }
    }

    /// Takes the bar off the screen; results may be printed after this.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

/// `simulated 12.5 ms, 3.10 M events/s, 12.0 s left`.
fn status(simulated_seconds: f64, done: f64, events: u64, elapsed: Duration) -> String {
    let wall = elapsed.as_secs_f64().max(1e-9);
    let mut text = format!(
        "simulated {}, {} events/s",
        quantity::seconds(simulated_seconds),
        quantity::count(events as f64 / wall)
    );
    if done > 0.005 && done < 1.0 {
        let left = wall * (1.0 - done) / done;
        text.push_str(&format!(", {} left", quantity::seconds(left)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_says_time_rate_and_what_is_left() {
        let text = status(0.0125, 0.25, 12_400_000, Duration::from_secs(4));
        assert_eq!(text, "simulated 12.5 ms, 3.10 M events/s, 12.0 s left");
        assert!(!status(0.0, 0.0, 0, Duration::from_secs(1)).contains("left"));
    }

    #[test]
    fn quiet_and_lines_never_draw_a_bar() {
        for display in [Display::Quiet, Display::Lines] {
            let meter = Meter::start("x", display);
            assert!(meter.bar.is_none());
            meter.note(1.0, 0.5, 10);
        }
    }
}
