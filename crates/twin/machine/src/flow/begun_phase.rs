//! One phase of a job: opens, transfers, closes.

use super::calls::{LoneCall, LoneCalls};
use super::fabric::Fabric;
use super::page_cache::PageCaches;
use super::phase_links::{PhaseLinks, server_key};
use super::runs::Runs;
use super::transfers::{PhaseTransfers, Transfers};
use crate::io::{IoJob, PS_PER_SECOND, ServerRates};
use crate::warnings::PhaseParts;
use forebay_workload::ior::Access;

/// Runs begin and end at multiples of this part of a run, which shares clients and servers with those of
/// all processes; of a larger part with more than [`FINE_UP_TO`] processes, up to [`LEAST_RESOLUTION`].
const RESOLUTION: f64 = 512.0;
const FINE_UP_TO: u32 = 2_048;
const LEAST_RESOLUTION: f64 = 128.0;

/// Times of a phase, ps.
pub(super) struct PhaseTimes {
    /// Begin of the first open.
    pub begin: u64,
    /// Last end of an open.
    pub opened: u64,
    /// First begin and last end of a transfer, with the fsync.
    pub transfers: (u64, u64),
    /// First begin of a close, and last end.
    pub closes: (u64, u64),
    /// The longest time of a process in calls.
    pub most_in_calls: u64,
    /// Time of the transfers of an incomplete simulation's processes, divided by the one simulated.
    pub stretch: f64,
}

impl PhaseTimes {
    /// The parts of the phase, of `bytes` bytes and with this rate without ramp-up and tail, GB/s.
    pub fn parts(&self, (access, bytes): (Access, f64), steady: Option<f64>) -> PhaseParts {
        PhaseParts {
            access,
            bytes: bytes as u64,
            transfers: self.transfers.1.saturating_sub(self.transfers.0),
            total: self.closes.1.saturating_sub(self.begin),
            steady,
        }
    }
}

/// The parts of a run at which the runs of so many processes begin and end.
fn resolution(tasks: u32) -> f64 {
    let coarser = f64::from(tasks.max(FINE_UP_TO)) / f64::from(FINE_UP_TO);
    (RESOLUTION / coarser).max(LEAST_RESOLUTION)
}

/// Duration of a transfer alone, ps, by the node's index in the job.
pub(super) fn transfers_alone(calls: &[LoneCalls], access: Access) -> Vec<f64> {
    calls.iter().map(|calls| calls.of(access).transfer).collect()
}

/// A phase whose files are opened.
pub(super) struct BegunPhase<'a> {
    job: &'a IoJob,
    pub runs: Runs<'a>,
    calls: &'a [LoneCalls],
    /// Time of the first open, ps.
    begin: u64,
    /// End of the last open, ps.
    opened: u64,
    /// Time of the first transfer of each process, ps.
    pub starts: Vec<u64>,
}

impl<'a> BegunPhase<'a> {
    /// Opens the files of phases of several jobs at the time `begin`, ps: each server opens one file after
    /// another, those of the jobs in turn.
    ///
    /// `starts` has the time at which each process begins its transfers, after the first of them, ps, if it is known.
    /// Otherwise the processes of a job open in the order of their numbers, and leave a barrier together.
    pub fn open_all(
        phases: Vec<(&'a IoJob, Runs<'a>, &'a [LoneCalls])>,
        starts: Option<&[u64]>,
        begin: u64,
        fabric: &mut Fabric,
    ) -> Vec<BegunPhase<'a>> {
        let begun = |(job, runs, calls)| BegunPhase {
            job,
            runs,
            calls,
            begin,
            opened: begin,
            starts: vec![begin; job.tasks() as usize],
        };
        let mut all: Vec<BegunPhase<'a>> = phases.into_iter().map(begun).collect();
        let order = starts.map(|times| {
            let mut order: Vec<u32> = (0..times.len() as u32).collect();
            order.sort_by_key(|rank| times[*rank as usize]);
            order
        });
        let most = all.iter().map(|phase| phase.job.tasks()).max().unwrap_or(0);
        for turn in 0..most {
            for phase in all.iter_mut().filter(|phase| turn < phase.job.tasks()) {
                let rank = order.as_ref().map_or(turn, |order| order[turn as usize]);
                let alone = phase.calls_of(rank).open;
                let end = phase.at_metadata_server(rank, begin, fabric) + alone;
                phase.opened = phase.opened.max(end);
                phase.starts[rank as usize] = end;
            }
        }
        for phase in &mut all {
            let barriers = phase.job.ior.barriers;
            let first = match barriers {
                true => phase.opened,
                false => phase.starts.iter().copied().min().unwrap_or(begin),
            };
            match starts {
                Some(times) => phase.starts = times.iter().map(|time| first + time).collect(),
                None if barriers => phase.starts.fill(first),
                None => {}
            }
            if !barriers {
                phase.opened = phase.starts.iter().copied().max().unwrap_or(begin);
            }
        }
        all
    }

    fn calls_of(&self, rank: u32) -> LoneCall {
        self.calls[self.runs.pattern.node_of(rank) as usize].of(self.runs.access)
    }

    /// The time at which the metadata server of a process's file serves it, after the time `at`, ps.
    fn at_metadata_server(&self, rank: u32, at: u64, fabric: &mut Fabric) -> u64 {
        let job = self.job;
        let server = job.metadata_server_of(self.runs.pattern.file(rank, self.runs.access));
        let key = server_key(job, server);
        let free = fabric.metadata_free.entry(key).or_default();
        let begins = at.max(*free);
        *free = begins + PS_PER_SECOND / u64::from(job.burst_buffer.metadata_rate);
        begins
    }

    /// The transfers of the phase, which make use number `of_use` of the servers, and whose flows have this
    /// weight; and the resolution of their times, ps.
    pub fn transfers(
        &self,
        of_use: usize,
        weight: f64,
        fabric: &mut Fabric,
    ) -> (PhaseTransfers<'a>, u64) {
        let (job, access) = (self.job, self.runs.access);
        let lone = transfers_alone(self.calls, access);
        let first_run = self.runs.run(0, 0, job.pattern.transfers_per_rank());
        let links = PhaseLinks::new((job, access), of_use, &lone, fabric);
        let alone = lone.first().copied().unwrap_or(1.0) * first_run.transfers as f64;
        let of_a_run = alone.max(links.shared_time(first_run.bytes, fabric));
        let resolution = (of_a_run / resolution(job.tasks())).max(1.0) as u64;
        (PhaseTransfers::new(job, (self.runs.clone(), links), lone, weight), resolution)
    }

    /// The times of the phase with these transfers.
    pub fn times(&self, transfers: &Transfers, fabric: &mut Fabric) -> PhaseTimes {
        let (job, runs, starts) = (self.job, &self.runs, &self.starts);
        let first = starts.iter().copied().min().unwrap_or(0);
        let simulated: Vec<u64> = match transfers.is_complete {
            true => transfers.ranks.iter().map(|rank| rank.end).collect(),
            false => {
                let time = job_bytes(job) / transfers.rate * PS_PER_SECOND as f64;
                starts.iter().map(|start| start + time as u64).collect()
            }
        };
        let span = simulated.iter().copied().max().unwrap_or(0).saturating_sub(first) as f64;
        let (written, on_flash) = with_page_cache(job, runs.access, span / PS_PER_SECOND as f64);
        let longer = written * PS_PER_SECOND as f64 / span.max(1.0);
        let synced = if job.ior.fsync && runs.access == Access::Write {
            on_flash * PS_PER_SECOND as f64 + sync_time(job, runs)
        } else {
            0.0
        };
        let ends: Vec<u64> = simulated
            .iter()
            .map(|end| first + ((end - first) as f64 * longer + synced) as u64)
            .collect();
        let last = ends.iter().copied().max().unwrap_or(0);
        let (closes, most_in_calls) = self.ends_of_closes(&ends, last, fabric);
        // 2^64 ps are 213 days of all processes together.
        let simulated_time: u128 = transfers.ranks.iter().map(|rank| u128::from(rank.time)).sum();
        let time: f64 = ends.iter().zip(starts).map(|(end, start)| (end - start) as f64).sum();
        PhaseTimes {
            begin: self.begin,
            opened: self.opened,
            transfers: (first, last),
            closes,
            most_in_calls,
            stretch: if transfers.is_complete {
                longer
            } else {
                time / simulated_time.max(1) as f64
            },
        }
    }

    /// First begin and last end of the closes, and the longest time of a process in calls, ps.
    fn ends_of_closes(&self, ends: &[u64], last: u64, fabric: &mut Fabric) -> ((u64, u64), u64) {
        let mut order: Vec<(u64, u32)> = ends.iter().copied().zip(0..).collect();
        if self.job.ior.barriers {
            order.iter_mut().for_each(|end| end.0 = last);
        }
        order.sort_unstable();
        let first = order.first().map_or(0, |end| end.0);
        let mut done = 0;
        for (end, rank) in order {
            let alone = self.calls_of(rank).close;
            done = done.max(self.at_metadata_server(rank, end, fabric) + alone);
        }
        ((first, done), done - self.begin)
    }
}

/// Bytes that all processes move.
pub(super) fn job_bytes(job: &IoJob) -> f64 {
    (job.pattern.bytes_per_rank() * u64::from(job.tasks())) as f64
}

/// The time of writes that take `seconds` without flash, and the time after them until all data are on
/// flash.
fn with_page_cache(job: &IoJob, access: Access, seconds: f64) -> (f64, f64) {
    let make = &job.burst_buffer;
    if access == Access::Read || make.dirty_limit.0 == 0 {
        return (seconds, 0.0);
    }
    let servers = job.storage.data_servers().len() as f64;
    let unit = job.largest_request().min(job.pattern.transfer_bytes());
    let caches = PageCaches {
        limit: make.dirty_limit.0 as f64 * servers,
        background: make.dirty_background.0 as f64 * servers,
        flash: ServerRates::of(job, 0, unit, access).flash * servers,
    };
    caches.times(job_bytes(job), seconds)
}

/// Time of the fsyncs of all processes, ps: each asks all servers that have data of it.
fn sync_time(job: &IoJob, runs: &Runs<'_>) -> f64 {
    let (mut next, last) = (0, job.pattern.transfers_per_rank());
    let mut servers: Vec<u32> = Vec::new();
    while next < last && servers.len() < job.storage.data_servers().len() {
        let run = runs.run(0, next, last);
        servers.extend(run.servers.iter().map(|(server, _)| *server));
        servers.sort_unstable();
        servers.dedup();
        next += run.transfers;
    }
    let make = &job.burst_buffer;
    let requests = servers.len() as f64;
    let one = (make.dispatch.0 + make.sync.0) as f64;
    let alone = job.client.call_overhead.0 as f64
        + (requests / f64::from(job.client.requests_in_flight)).ceil() * one;
    let all = requests * f64::from(job.tasks());
    alone.max(all * make.dispatch.0 as f64 / job.storage.data_servers().len() as f64)
}
