//! Steady times of several jobs, which are skipped.

use super::{Current, Job, Simulation, TrafficSoFar};
use crate::flow::steady::SteadyRateSearch;
use crate::flow::transfers::most_runs;

/// Stripes of each process that are simulated at the end of a phase, after a steady time.
const LAST_STRIPES: f64 = 3.0;
/// Windows with the runs of all jobs, after which the rates of jobs are taken for steady whose own windows are
/// longer.
const MOST_WINDOWS_OF_ALL: u64 = 24;

impl Simulation<'_> {
    /// Begins the first window of each job, from now on.
    pub(super) fn begin_windows(&mut self) {
        self.runs_before = self.runs();
        self.traffic_before = TrafficSoFar::of(&self.fabric);
        for job in &mut self.jobs {
            if let Some(Current { transfers, settling, .. }) = &mut job.current {
                let (runs, moved) = (transfers.ended_runs(), transfers.moved(&self.fabric));
                *settling = SteadyRateSearch::from(self.fabric.now(), runs, moved);
            }
        }
    }

    /// The steady rate of each job, bytes per picosecond, if all with a phase under way have one, and 0 for the
    /// others.
    fn steady_rates(&mut self) -> Option<Vec<f64>> {
        let under_way = self.jobs.iter().filter(|job| job.current.is_some());
        let tasks = under_way.map(|job| job.job.tasks()).sum();
        let is_long = self.runs() - self.runs_before >= MOST_WINDOWS_OF_ALL * most_runs(tasks);
        let now = self.fabric.now();
        let mut rates = Vec::with_capacity(self.jobs.len());
        for job in &mut self.jobs {
            let Some(Current { transfers, settling, .. }) = &mut job.current else {
                rates.push(Some(0.0));
                continue;
            };
            let moved = || transfers.moved(&self.fabric);
            let most = most_runs(job.job.tasks());
            rates.push(settling.rate(now, transfers.ended_runs(), (most, is_long), moved));
        }
        rates.into_iter().collect()
    }

    /// Skips a time in which rates are steady.
    pub(super) fn skip_steady_time(&mut self) {
        let waits = |job: &Job<'_>| {
            job.current.as_ref().is_some_and(|current| current.transfers.next_start().is_some())
        };
        if self.jobs.iter().any(waits) {
            self.begin_windows();
            return;
        }
        if self.jobs.iter().all(|job| job.current.is_none()) {
            return;
        }
        let Some(rates) = self.steady_rates() else { return };
        let time = self.steady_time(&rates);
        let windows =
            self.jobs.iter().filter_map(|job| Some(job.current.as_ref()?.settling.length()));
        // Shorter times are simulated as fast.
        if time < windows.max().unwrap_or(0) as f64 {
            return;
        }
        let traffic = TrafficSoFar::of(&self.fabric).rates_since(&self.traffic_before);
        self.fabric.skip(time as u64, &traffic);
        for (job, rate) in self.jobs.iter_mut().zip(rates) {
            if let Some(current) = &mut job.current {
                current.transfers.skip(rate * time);
            }
        }
        self.begin_windows();
    }

    /// Time, ps, until the first phase is near its end at these rates, or the next one begins.
    fn steady_time(&self, rates: &[f64]) -> f64 {
        let until = self.next_begin().map_or(f64::INFINITY, |at| (at - self.fabric.now()) as f64);
        let of_job = |(job, rate): (&Job<'_>, &f64)| {
            let transfers = &job.current.as_ref()?.transfers;
            let left = transfers.bytes_left() - LAST_STRIPES * transfers.bytes_of_stripes();
            Some(left.max(0.0) / rate.max(f64::MIN_POSITIVE))
        };
        self.jobs.iter().zip(rates).filter_map(of_job).fold(until, f64::min)
    }
}
