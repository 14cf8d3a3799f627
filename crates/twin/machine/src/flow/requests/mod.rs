//! Calls of all processes of a phase, which begin at the same time, request by request.
//!
//! Rates let a process's client, links and servers work at the same time from the beginning, and spread the bytes of a
//! phase over its time. In a call they work one after another; processes that call at the same time move their data at
//! the same time, and wait together where they share a link or a server. So the requests of a phase with few of them
//! are simulated one by one, each with its data as one message: with the servers of the packets ([`calls`]), and with
//! a network whose messages are flows ([`network`]). This gives the time of each process, which no rate exceeds.
//!
//! Of a longer phase only the first calls are simulated. The data of the last process leave its server when those of
//! all others have, and then take the rest of their way as alone. Later calls are in the same order, so that this time
//! is lost once in a phase.

mod calls;
mod network;
mod request;

use self::calls::{Calls, CallsOfProcess};
use self::request::{Requests, rate_of_server};
use super::fabric::{Fabric, Resource};
use super::phase_links::PhaseLinks;
use super::runs::Runs;
use crate::io::{IoJob, PS_PER_SECOND};
use forebay_flow::LinkId;
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;

/// Calls of a process from which on the first one is left out.
const MOST_CALLS: u64 = 64;
/// Requests of a phase that are simulated at most: up to two seconds on one core where many messages meet.
const MOST_REQUESTS: u64 = 1 << 16;
/// Requests of the first calls of a longer phase that are simulated at most.
const MOST_OF_FIRST_CALLS: u64 = 1 << 14;
/// Times of messages are rounded up to this part of a call alone.
const RESOLUTION: f64 = 1024.0;
/// Below this share of waits for others in the time of a process's calls it is their limit itself, as with packets.
const LEAST_WAITS: f64 = 0.15;

/// Result of the simulation of a phase's requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhaseCalls {
    /// Time, ps, by which the first calls of all processes take longer than their rates say.
    pub delay: u64,
    /// By rank, if all calls were simulated.
    pub of_ranks: Vec<RankCalls>,
}

/// The calls of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankCalls {
    /// Time from its start to the end of each call, ps.
    ends: Vec<u64>,
    /// Bytes of each request, and the time from the start to its end, ps.
    pub moved: Vec<(u64, u64)>,
    /// The resource that limits them; none if that is the process itself.
    pub(super) limit: Option<Resource>,
}

impl RankCalls {
    /// The time of some calls, one after another, ps.
    pub fn time_of(&self, calls: std::ops::Range<u64>) -> f64 {
        let end_of = |calls: u64| calls.checked_sub(1).map_or(0, |last| self.ends[last as usize]);
        (end_of(calls.end) - end_of(calls.start)).max(1) as f64
    }
}

/// The times of the calls of all processes of a phase, without other jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallTimes {
    /// By rank.
    of_ranks: Vec<RankCalls>,
    /// Mean over the processes of the time from the start to the end of each call, ps.
    mean_ends: Vec<f64>,
}

impl CallTimes {
    /// Those of a phase whose calls were all simulated.
    pub fn of(calls: PhaseCalls) -> CallTimes {
        let of_ranks = calls.of_ranks;
        let count = of_ranks.first().map_or(0, |calls| calls.ends.len());
        let mean_end = |call: usize| {
            let ends = of_ranks.iter().map(|calls| calls.ends[call] as f64);
            ends.sum::<f64>() / of_ranks.len() as f64
        };
        let mean_ends = (0..count).map(mean_end).collect();
        CallTimes { of_ranks, mean_ends }
    }

    /// The rate of some calls of a process, one after another, as a multiple of that of the same calls of all
    /// processes; 1 where they are not known.
    pub fn relative_rate(&self, rank: u32, calls: std::ops::Range<u64>) -> f64 {
        let Some(of_rank) = self.of_ranks.get(rank as usize) else { return 1.0 };
        let end_of =
            |calls: u64| calls.checked_sub(1).map_or(0.0, |last| self.mean_ends[last as usize]);
        let mean = (end_of(calls.end) - end_of(calls.start)).max(1.0);
        mean / of_rank.time_of(calls)
    }
}

/// Requests of one call of each process.
fn requests_of_first_calls(job: &IoJob) -> u64 {
    let requests = job.pattern.transfer_bytes().div_ceil(job.largest_request());
    requests.saturating_mul(job.tasks().into())
}

/// Whether all requests of a phase are simulated. Calls of a process without others take the time of a call alone.
pub(crate) fn all_are_simulated(job: &IoJob) -> bool {
    let calls = job.pattern.transfers_per_rank();
    job.tasks() > 1 && requests_of_first_calls(job).saturating_mul(calls) <= MOST_REQUESTS
}

/// Whether calls of a job's phases are simulated, so that the order in which the processes begin matters.
pub(super) fn are_simulated(job: &IoJob) -> bool {
    let is_short = job.tasks() > 1 && job.pattern.transfers_per_rank() <= MOST_CALLS;
    all_are_simulated(job) || is_short && requests_of_first_calls(job) <= MOST_OF_FIRST_CALLS
}

/// The calls of all processes, if there are few requests; `starts` has the time and the rank of each, in the order of
/// the times. `lone` is the duration of a call alone by the node's index.
pub(super) fn all_calls(
    (job, runs): (&IoJob, &Runs<'_>),
    starts: &[(u64, u32)],
    lone: &[f64],
) -> Option<PhaseCalls> {
    if !all_are_simulated(job) {
        return None;
    }
    let calls = job.pattern.transfers_per_rank();
    let all = simulate((job, runs), starts, (lone[0], calls));
    let mut of_ranks = vec![RankCalls::default(); starts.len()];
    for (&(_, rank), of_process) in starts.iter().zip(all) {
        let alone = lone[runs.pattern.node_of(rank) as usize] * calls as f64;
        let limit = limit_of(&of_process, alone);
        of_ranks[rank as usize] =
            RankCalls { ends: of_process.ends, moved: of_process.moved, limit };
    }
    Some(PhaseCalls { delay: 0, of_ranks })
}

/// The resource for which the requests of a process waited longest; none if its calls hardly take longer than the
/// `alone` ps that they take alone.
fn limit_of(calls: &CallsOfProcess, alone: f64) -> Option<Resource> {
    let time = calls.ends.last().copied().unwrap_or(0) as f64;
    if time - alone < LEAST_WAITS * time {
        return None;
    }
    let longest = calls.waits.iter().max_by_key(|(_, waited)| **waited);
    longest.map(|(resource, _)| *resource)
}

/// Simulates the first `calls` of all processes, of which one alone takes `lone` ps.
fn simulate(
    (job, runs): (&IoJob, &Runs<'_>),
    starts: &[(u64, u32)],
    (lone, calls): (f64, u64),
) -> Vec<CallsOfProcess> {
    let requests = Requests::of((job, runs), starts, calls);
    let resolution = (lone / RESOLUTION).max(1.0) as u64;
    Calls::new((job, runs.access), &requests, starts, resolution).run()
}

/// Time, ps, by which the first calls of all processes take longer than their rates say; `starts` has the time and the
/// rank of each, in the order of the times. `lone` is the duration of a call alone by the node's index.
pub(super) fn delay_of_first_calls(
    (job, runs): (&IoJob, &Runs<'_>),
    starts: &[(u64, u32)],
    (links, lone): (&PhaseLinks<'_>, &[f64]),
    fabric: &mut Fabric,
) -> u64 {
    if job.tasks() == 1 || job.pattern.transfers_per_rank() > MOST_CALLS {
        return 0;
    }
    let longest = if requests_of_first_calls(job) <= MOST_OF_FIRST_CALLS {
        let all = simulate((job, runs), starts, (lone[0], 1));
        all.iter().flat_map(|calls| calls.ends.last()).copied().max().unwrap_or(0) as f64
    } else {
        longest_first_call((job, runs), starts, (links, lone), fabric)
    };
    let alone = lone.iter().copied().fold(0.0, f64::max);
    (longest - time_at_links(runs, starts, links, fabric).max(alone)).max(0.0) as u64
}

/// The longest time of a first call, ps, where there are many: a call waits at its servers for one request of all others, and
/// at the client of its node for their calls.
fn longest_first_call(
    (job, runs): (&IoJob, &Runs<'_>),
    starts: &[(u64, u32)],
    (links, lone): (&PhaseLinks<'_>, &[f64]),
    fabric: &Fabric,
) -> f64 {
    let requests = Requests::of((job, runs), starts, 1);
    let client_rate = |node: u32| client_rate(job, node, runs.access);
    let mut at_server: FxHashMap<u32, f64> = FxHashMap::default();
    let mut own_at_server: FxHashMap<(u32, u32), f64> = FxHashMap::default();
    let mut at_client: FxHashMap<u32, f64> = FxHashMap::default();
    for request in &requests.all {
        let bytes = request.extent.bytes as f64;
        let takes = bytes / rate_of_server(request.server, links, fabric);
        *at_server.entry(request.server).or_default() += takes;
        *own_at_server.entry((request.process, request.server)).or_default() += takes;
        *at_client.entry(request.node).or_default() += bytes / client_rate(request.node);
    }
    let mut longest = 0.0_f64;
    for (process, of_process) in (0..).zip(&requests.of_process) {
        let own = &requests.all[of_process.clone()];
        let Some(first) = own.first() else { continue };
        let of_others = |request: &request::Request| {
            at_server[&request.server] - own_at_server[&(process, request.server)]
        };
        let others = own.iter().map(of_others).fold(0.0, f64::max);
        let bytes: u64 = own.iter().map(|request| request.extent.bytes).sum();
        let at_own_client = bytes as f64 / client_rate(first.node);
        let of_client = (at_client[&first.node] - at_own_client).max(0.0);
        let alone = lone[first.node as usize];
        longest = longest.max(others / own.len() as f64 + alone + of_client);
    }
    longest
}

/// The longest time that a link needs for the first calls of all processes at its rate, ps: of a client or server, of a
/// data path that servers share, or of the network.
fn time_at_links(
    runs: &Runs<'_>,
    starts: &[(u64, u32)],
    links: &PhaseLinks<'_>,
    fabric: &mut Fabric,
) -> f64 {
    let mut bytes: FxHashMap<LinkId, f64> = FxHashMap::default();
    for &(_, rank) in starts {
        let call = runs.run(rank, 0, 1);
        for (link, share) in links.path(runs.pattern.node_of(rank), &call, fabric) {
            *bytes.entry(link).or_default() += call.bytes as f64 * share;
        }
    }
    let solver = fabric.links.transport.solver();
    let time = |(link, bytes): (&LinkId, &f64)| bytes / solver.capacity(*link);
    bytes.iter().map(time).fold(0.0, f64::max) * PS_PER_SECOND as f64
}

/// Rate of the client of a node of the job, bytes per picosecond.
fn client_rate(job: &IoJob, node: u32, access: Access) -> f64 {
    let client = &job.clients[usize::from(job.client_of_node[node as usize])];
    let rate = match access {
        Access::Write => client.write_rate,
        Access::Read => client.read_rate,
    };
    rate.0 as f64 / PS_PER_SECOND as f64
}
