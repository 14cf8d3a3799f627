//! The results of single jobs of a simulation.

use super::place::PlacedJobs;
use crate::io::Io;
use crate::results::{ConcurrentJob, IoRun, IorPoint, JobRun, Phase, TrafficState, WaitSeconds};
use crate::steady::{Slices, State, SteadyState};
use crate::study::run::Outcome;
use crate::traffic::Generation;
use forebay_workload::ior::Access;

fn seconds(ps: u64) -> f64 {
    ps as f64 * 1e-12
}

/// The result of an I/O job of a simulation of `jobs`.
pub(super) fn io_run(
    placed: &PlacedJobs<'_>,
    jobs: &[usize],
    job: usize,
    outcome: &Outcome,
) -> IoRun {
    let before = jobs.iter().take_while(|other| **other != job);
    let number = before.filter(|other| placed.is_io(**other)).count();
    let ios = || outcome.groups.iter().filter_map(|group| group.io.as_ref());
    let Some(own) = ios().next().map(|io| io.job(number)) else {
        unreachable!("a simulation with I/O")
    };
    let phases = own.phases.take();
    let best = |access: Access| {
        let of_kind = phases.iter().filter(|phase| phase.access == access.name());
        of_kind.map(|phase| phase.gbps).max_by(f64::total_cmp)
    };
    let end = ios().filter_map(|io| io.job_ended_at(number)).max().unwrap_or(outcome.end);
    let waits = ios().map(|io: &Io| io.waits_of(number));
    let waits = waits.fold(crate::io::Waits::default(), |mut sum, of_group| {
        sum.add(&of_group);
        sum
    });
    IoRun {
        seconds: phases.iter().map(|phase| phase.seconds).sum(),
        write_gbps: best(Access::Write),
        read_gbps: best(Access::Read),
        span_seconds: [seconds(own.start), seconds(end)],
        limit: phases.first().map(|phase| phase.limit.resource.clone()).unwrap_or_default(),
        waits: Some(WaitSeconds {
            server: seconds(waits.server),
            lock: seconds(waits.lock),
            flash: seconds(waits.ssd),
            client: seconds(waits.client),
            network: seconds(waits.network),
        }),
        warnings: warnings_of(&phases),
    }
}

/// The warnings about the first repetition of phases.
fn warnings_of(phases: &[Phase]) -> Vec<String> {
    let first = phases.iter().filter(|phase| phase.iteration == 0);
    let mut warnings: Vec<String> = first.flat_map(|phase| phase.warnings.clone()).collect();
    warnings.dedup();
    warnings
}

/// The result of an I/O job that was the only one.
pub(super) fn io_run_of_point(start: u64, point: &IorPoint) -> IoRun {
    let time: f64 = point.phases.iter().map(|phase| phase.seconds).sum();
    IoRun {
        seconds: time,
        write_gbps: point.write_gbps,
        read_gbps: point.read_gbps,
        limit: point.limit.clone(),
        span_seconds: [seconds(start), seconds(start) + time],
        waits: None,
        warnings: warnings_of(&point.phases),
    }
}

/// The counts of a job with traffic.
pub(super) struct TrafficWindow {
    slices: Slices,
    /// Rate of the links of its nodes, bytes per second.
    link_rate: f64,
    /// Time by whose parts the traffic is counted, ps.
    pub span: u64,
    /// End of the warm-up, ps, and start of the last I/O job, ps.
    warm_up: u64,
    from: u64,
    /// End of the generation of messages, ps.
    pub end: u64,
}

/// The counts of the jobs with traffic of a simulation of `jobs`, in their order.
pub(super) fn traffic_windows(
    placed: &PlacedJobs<'_>,
    jobs: &[usize],
    (span, generation): (u64, Generation),
    outcome: &Outcome,
) -> Vec<TrafficWindow> {
    let with_traffic = jobs.iter().filter(|job| !placed.is_io(**job));
    let from = outcome.groups.iter().filter_map(|group| group.io.as_ref());
    let from = from.map(Io::last_start).max().unwrap_or(0);
    let of_job = |(number, job): (usize, &usize)| {
        let warm_up = placed.warm_up;
        let mut slices = Slices::starting_at(span as f64, warm_up);
        let mut stopped: Option<u64> = None;
        for group in &outcome.groups {
            if let Some(traffic) = group.traffic.get(number) {
                slices.merge(&traffic.slices);
                stopped = stopped.max(traffic.stopped_at());
            }
        }
        let end = match (generation, stopped) {
            (Generation::Until(end), _) | (_, Some(end)) => end,
            (Generation::Messages(_) | Generation::UntilOtherEnds, None) => outcome.end,
        };
        let link_rate = placed.link_rate(*job);
        TrafficWindow { slices, link_rate, span, warm_up, from, end }
    };
    with_traffic.enumerate().map(of_job).collect()
}

impl TrafficWindow {
    /// The state until `end`, from `earliest` ps on or later.
    fn state(&self, end: u64, earliest: u64) -> SteadyState {
        let fifth = self.warm_up + ((end - self.warm_up) as f64 * 0.2) as u64;
        self.slices.steady_state(end, Some(fifth.max(earliest)))
    }

    /// The traffic alone and beside others, both from the later end of the two warm-ups on.
    pub fn compare(&self, alone: &TrafficWindow) -> (JobRun, JobRun) {
        let end = self.end;
        let first = self.state(end, self.from);
        let own = alone.state(end, first.window.0);
        let together = self.state(end, own.window.0);
        (JobRun::Traffic(alone.document(&own)), JobRun::Traffic(self.document(&together)))
    }

    fn document(&self, steady: &SteadyState) -> TrafficState {
        let latency = &steady.latency;
        let known = steady.state != State::Saturated && latency.packets > 0;
        let length = seconds(steady.window.1 - steady.window.0);
        TrafficState {
            state: steady.state.name().into(),
            window_seconds: [seconds(steady.window.0), seconds(steady.window.1)],
            mean_seconds: known.then(|| seconds(latency.sum) / latency.packets as f64),
            p99_seconds: known.then(|| latency.quantile_ns(0.99) * 1e-9),
            accepted_load: steady.delivered as f64 / length.max(1e-12) / self.link_rate,
        }
    }
}

/// A job beside others that ran at these times, in seconds.
fn beside(job: usize, alone: JobRun, together: JobRun, others: &[(f64, f64)]) -> ConcurrentJob {
    let slowdown = match (&alone, &together) {
        (JobRun::Io(alone), JobRun::Io(together)) => {
            (alone.seconds > 0.0).then(|| together.seconds / alone.seconds)
        }
        (JobRun::Traffic(alone), JobRun::Traffic(together)) => {
            together.mean_seconds.zip(alone.mean_seconds).map(|(with, without)| with / without)
        }
        (JobRun::Io(_), JobRun::Traffic(_)) | (JobRun::Traffic(_), JobRun::Io(_)) => {
            unreachable!("one job of two kinds")
        }
    };
    let overlap = match &together {
        JobRun::Io(io) => overlap((io.span_seconds[0], io.span_seconds[1]), others),
        JobRun::Traffic(_) => 1.0,
    };
    ConcurrentJob { job, alone, together, slowdown, overlap }
}

/// Jobs beside each other, each of which has its result alone and together.
pub(super) fn beside_all(
    jobs: &[usize],
    runs: impl Iterator<Item = (JobRun, JobRun)>,
) -> Vec<ConcurrentJob> {
    let runs: Vec<(JobRun, JobRun)> = runs.collect();
    let span = |run: &JobRun| match run {
        JobRun::Io(io) => (io.span_seconds[0], io.span_seconds[1]),
        JobRun::Traffic(_) => (0.0, f64::INFINITY),
    };
    let spans: Vec<(f64, f64)> = runs.iter().map(|(_, together)| span(together)).collect();
    let of_job = |((place, &job), (alone, together)): ((usize, &usize), (JobRun, JobRun))| {
        let others = spans.iter().enumerate().filter(|(other, _)| *other != place);
        let others: Vec<(f64, f64)> = others.map(|(_, span)| *span).collect();
        beside(job, alone, together, &others)
    };
    jobs.iter().enumerate().zip(runs).map(of_job).collect()
}

/// Share of a time in which at least one of the others is.
fn overlap(own: (f64, f64), others: &[(f64, f64)]) -> f64 {
    let mut parts: Vec<(f64, f64)> =
        others.iter().map(|(begin, end)| (begin.max(own.0), end.min(own.1))).collect();
    parts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut covered, mut reached) = (0.0, own.0);
    for (begin, end) in parts {
        covered += (end - begin.max(reached)).max(0.0);
        reached = reached.max(end);
    }
    if own.1 > own.0 { covered / (own.1 - own.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_beside_several_others_counts_once() {
        assert_eq!(overlap((0.0, 10.0), &[(0.0, 4.0), (2.0, 6.0), (9.0, 20.0)]), 0.7);
        assert_eq!(overlap((0.0, 10.0), &[(0.0, f64::INFINITY)]), 1.0);
        assert_eq!(overlap((5.0, 10.0), &[(0.0, 4.0)]), 0.0);
    }
}
