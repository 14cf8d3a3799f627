//! The estimate of a simulation's time, shown before it begins.

use crate::console::print_stderr;
use crate::progress::Display;
use forebay_machine::study::{Forecast, Progress};
use forebay_units::human::{count, seconds};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Events above which the rate is measured: fewer take some seconds at most.
const MANY_EVENTS: f64 = 4e6;
/// Wall-clock time of a measurement.
const TRIAL: Duration = Duration::from_millis(300);

/// Estimates times from events and their rate, which is measured at the first need and then taken
/// from the runs.
#[derive(Default)]
pub(super) struct Forecaster {
    events_per_second: Option<f64>,
}

impl Forecaster {
    /// Shows the estimated work of `runs` simulations that are alike, and their time. `trial` begins
    /// one of them, and ends it when the progress it is given says so.
    pub(super) fn announce(
        &mut self,
        display: Display,
        label: &str,
        forecast: Forecast,
        runs: u32,
        trial: impl FnOnce(Progress<'_>),
    ) {
        if display == Display::Quiet {
            return;
        }
        let all = Forecast {
            packets: forecast.packets * f64::from(runs),
            events: forecast.events * f64::from(runs),
        };
        if self.events_per_second.is_none() && all.events > MANY_EVENTS {
            self.events_per_second = measure(trial);
        }
        print_stderr(format_args!("{label}: {}", text(all, self.events_per_second)));
    }

    /// Takes the rate from a run.
    pub(super) fn learn(&mut self, events: u64, wall_seconds: f64) {
        // Short runs say little about the rate of long ones.
        if wall_seconds > 0.5 * TRIAL.as_secs_f64() {
            self.events_per_second = Some(events as f64 / wall_seconds);
        }
    }
}

/// `estimate: 1.20 M packets, 8.10 M events, about 4.05 s`.
fn text(forecast: Forecast, events_per_second: Option<f64>) -> String {
    let time = match events_per_second {
        Some(rate) => {
            let time = seconds(forecast.events / rate);
            format!("about {time} at {} events/s", count(rate))
        }
        None => "some seconds at most".to_string(),
    };
    format!(
        "estimate: {} packets, {} events, {time}",
        count(forecast.packets),
        count(forecast.events)
    )
}

/// Events per second of wall-clock time at the start of a simulation.
fn measure(trial: impl FnOnce(Progress<'_>)) -> Option<f64> {
    // First and last state: time and events.
    let states: Mutex<Option<[(Instant, u64); 2]>> = Mutex::new(None);
    trial(&|_, _, events| {
        let now = Instant::now();
        let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, last] = states.get_or_insert([(now, events); 2]);
        *last = (now, events);
        now.duration_since(first.0) < TRIAL
    });
    let [first, last] = states.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    let time = last.0.duration_since(first.0).as_secs_f64();
    (time > 0.0 && last.1 > first.1).then(|| (last.1 - first.1) as f64 / time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Time;

    #[test]
    fn rate_is_that_between_the_first_and_the_last_state() {
        let rate = measure(|progress| {
            let mut events = 1_000;
            while progress(Time(0), 0.0, events) {
                events += 500;
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        // 500 events in 10 ms or more.
        assert!((1_000.0..=50_001.0).contains(&rate.unwrap()), "{rate:?}");
        assert_eq!(measure(|_| ()), None);
    }

    #[test]
    fn estimate_names_packets_events_and_time() {
        let forecast = Forecast { packets: 1.2e6, events: 8e6 };
        let shown = text(forecast, Some(2e6));
        assert_eq!(
            shown,
            "estimate: 1.20 M packets, 8.00 M events, about 4.00 s at 2.00 M events/s"
        );
        assert!(text(forecast, None).ends_with("some seconds at most"));
    }
}
