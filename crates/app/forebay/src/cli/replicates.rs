//! Many simulations on all cores: replicates with several seeds, points of a sweep.

use super::options::{ProgressReporter, study_failure};
use crate::progress::Display;
use forebay_console::Failure;
use forebay_machine::estimate::{Estimate, Quantity, Replication};
use forebay_machine::study::{Progress, SimOptions, StudyError};
use forebay_units::Time;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Runs the tasks `0..count` on at most `threads` threads and returns their results in order. After
/// an error no further task begins; the error of the lowest task is returned.
pub(super) fn run_all<T: Send>(
    count: usize,
    threads: usize,
    task: impl Fn(usize) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Option<Result<T, Failure>>>> =
        (0..count).map(|_| Mutex::new(None)).collect();
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = results.get(number) else {
                return;
            };
            let result = task(number);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(work);
        }
        work();
    });
    // Tasks that never began come after the one that failed.
    let done =
        results.into_iter().map_while(|r| r.into_inner().unwrap_or_else(PoisonError::into_inner));
    done.collect()
}

/// Threads of each of `tasks` simulations that run on `threads` in all.
pub(super) fn threads_of_each(threads: usize, tasks: usize) -> usize {
    (threads / tasks.max(1)).max(1)
}

/// The progress of several simulations as one.
pub(super) struct SharedProgress {
    shown: ProgressReporter,
    /// Share done and events of each.
    parts: Mutex<Vec<(f64, u64)>>,
}

impl SharedProgress {
    pub(super) fn start(label: &str, tasks: usize, display: Display) -> SharedProgress {
        SharedProgress {
            shown: ProgressReporter::start(label, display),
            parts: Mutex::new(vec![(0.0, 0); tasks]),
        }
    }

    /// Shows the progress of simulation `task`.
    pub(super) fn update(&self, task: usize, simulated: Time, done: f64, events: u64) -> bool {
        let (done, events) = {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts[task] = (done, events);
            let share: f64 = parts.iter().map(|p| p.0).sum();
            (share / parts.len() as f64, parts.iter().map(|p| p.1).sum())
        };
        self.shown.update(simulated, done, events)
    }

    /// Simulation `task` has ended.
    pub(super) fn end(&self, task: usize) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts[task].0 = 1.0;
    }
}

/// Simulates with `seeds` seeds, from that of `options` on, on all of its threads.
pub(super) fn replicate<T: Send>(
    options: &SimOptions,
    seeds: u32,
    label: &str,
    display: Display,
    simulate: impl Fn(&SimOptions, Progress<'_>) -> Result<T, StudyError> + Sync,
) -> Result<Vec<T>, Failure> {
    let count = seeds as usize;
    let progress = SharedProgress::start(label, count, display);
    run_all(count, options.threads, |number| {
        let options = SimOptions {
            seed: options.seed.wrapping_add(number as u64),
            threads: threads_of_each(options.threads, count),
            ..options.clone()
        };
        let result =
            simulate(&options, &|time, done, events| progress.update(number, time, done, events));
        progress.end(number);
        result.map_err(|e| study_failure(&e))
    })
}

/// The estimates from replicates, if there are several.
fn replication<T>(
    first_seed: u64,
    replicates: &[T],
    quantities: impl Fn(&T) -> Vec<Quantity>,
) -> Option<Replication> {
    let seeds = (0..replicates.len() as u64).map(|i| first_seed.wrapping_add(i)).collect();
    let quantities: Vec<Vec<Quantity>> = replicates.iter().map(quantities).collect();
    (replicates.len() > 1).then(|| Replication::of(seeds, &quantities))
}

/// The document of several seeds: that of the first, with the means of all at `place`.
pub(super) fn join<T>(
    first_seed: u64,
    mut replicates: Vec<T>,
    quantities: impl Fn(&T) -> Vec<Quantity>,
    place: impl FnOnce(&mut T) -> &mut Option<Replication>,
) -> T {
    let means = replication(first_seed, &replicates, quantities);
    let mut first = replicates.swap_remove(0);
    *place(&mut first) = means;
    first
}

/// The notes of replicates as one: `steady`, or `saturated 2, steady 1` if they differ.
pub(super) fn joined_notes<'a>(notes: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    notes.for_each(|note| *counts.entry(note).or_default() += 1);
    match counts.len() {
        0 | 1 => counts.into_keys().collect(),
        _ => {
            let each = counts.iter().map(|(note, count)| format!("{note} {count}"));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// `12.3 ±0.4` with replicates, `12.3` without or for a quantity without a name; `-` if there is no
/// value.
pub(super) fn with_interval(
    replication: Option<&Replication>,
    name: &str,
    value: Option<f64>,
    text: impl Fn(f64) -> String,
) -> String {
    let Some(replication) = replication.filter(|_| !name.is_empty()) else {
        return value.map_or("-".to_string(), text);
    };
    match replication.estimate(name) {
        Some(Estimate { mean, half_width: Some(half_width), .. }) => {
            format!("{} ±{}", text(*mean), text(*half_width))
        }
        Some(estimate) => text(estimate.mean),
        None => "-".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_tasks_on_any_number_of_threads() {
        for threads in [1, 2, 7] {
            let results = run_all(20, threads, |i| Ok(i * i)).unwrap();
            assert_eq!(results, (0..20).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn failed_task_ends_the_others() {
        let begun = AtomicUsize::new(0);
        let result = run_all(1_000, 1, |i| {
            begun.fetch_add(1, Ordering::Relaxed);
            if i == 3 { Err(Failure::Input(format!("task {i}"))) } else { Ok(()) }
        });
        assert_eq!(result.unwrap_err().to_string(), "task 3");
        assert_eq!(begun.into_inner(), 4);
    }

    #[test]
    fn notes_that_differ_are_counted() {
        assert_eq!(joined_notes(["ssd", "ssd"].into_iter()), "ssd");
        assert_eq!(joined_notes(["ssd", "client", "ssd"].into_iter()), "client 1, ssd 2");
    }

    #[test]
    fn interval_is_shown_with_replicates_only() {
        let quantities = |v: &f64| vec![("write_GBps", "GB/s", Some(*v))];
        let text = |v: f64| format!("{v:.1}");
        assert_eq!(replication(1, &[5.0], quantities), None);
        let two = replication(1, &[5.0, 7.0], quantities);
        // t(1) = 12.706, deviation √2, divided by √2.
        assert_eq!(with_interval(two.as_ref(), "write_GBps", Some(5.0), text), "6.0 ±12.7");
        assert_eq!(with_interval(None, "write_GBps", Some(5.0), text), "5.0");
        assert_eq!(with_interval(two.as_ref(), "read_GBps", None, text), "-");
    }
}
