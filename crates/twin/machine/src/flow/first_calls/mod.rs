//! The first calls of all processes of a phase, which begin at the same time.
//!
//! Rates let a process's client, links and servers work at the same time from the beginning. In its first call
//! they begin one after another, and servers serve the requests in the order of their arrival: the data of the
//! last process leave its server when those of all others have, and then take the rest of their way as alone.
//! Later calls are in the same order, so that this time is lost once in a phase. It matters where a process
//! makes few calls: of the parallel file system, whose clients move up to a window at once, or with large
//! transfers. So the requests of these calls, each with its data as one message, are simulated ([`reads`],
//! [`writes`], [`network`]).
//!
//! Where a process makes one call only, this simulation gives the duration of each, which no rate exceeds.

mod network;
mod parts;
mod reads;
mod writes;

use self::parts::{Part, messages_together, parts_of, rates_of_servers};
use self::reads::FirstReads;
use self::writes::FirstWrites;
use super::fabric::Fabric;
use super::phase_links::PhaseLinks;
use super::runs::Runs;
use crate::io::{IoJob, PS_PER_SECOND};
use forebay_flow::LinkId;
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;

/// Calls of a process from which on the first one is left out.
const MOST_CALLS: u64 = 64;
/// Parts of calls, each to one server, that are simulated at most.
const MOST_PARTS: usize = 1 << 14;
/// Times of the simulation are rounded up to this part of a call alone.
const RESOLUTION: f64 = 256.0;

/// The difference that the first calls of all processes make.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstCalls {
    /// Time, ps, by which they take longer than their rates say.
    pub delay: u64,
    /// Duration of the only call of each process by its rank, ps; empty if they make several.
    pub durations: Vec<f64>,
}

/// Whether the first calls of a job's phases are simulated, so that the order of the processes' opens matters.
pub(super) fn are_simulated(job: &IoJob) -> bool {
    let requests = job.pattern.transfer_bytes().div_ceil(job.largest_request());
    let all = requests.saturating_mul(job.tasks().into());
    job.pattern.transfers_per_rank() <= MOST_CALLS && all <= MOST_PARTS as u64
}

/// The first calls of all processes; `starts` has the time and the rank of each, in the order of the times.
/// `lone` is the duration of a call alone by the node's index.
pub(super) fn first_calls(
    (job, runs): (&IoJob, &Runs<'_>),
    starts: &[(u64, u32)],
    (links, lone): (&PhaseLinks<'_>, &[f64]),
    fabric: &mut Fabric,
) -> FirstCalls {
    if job.pattern.transfers_per_rank() > MOST_CALLS {
        return FirstCalls::default();
    }
    let together = match runs.access {
        Access::Read => messages_together(job),
        Access::Write => 1,
    };
    let parts = parts_of(job, runs, starts, together);
    let rates = rates_of_servers(&parts, links, fabric);
    let shared = SharedTimes::new((job, runs.access), &parts, &rates);
    let ends = (parts.len() <= MOST_PARTS).then(|| {
        let resolution = (lone[0] / RESOLUTION).max(1.0) as u64;
        let all: Vec<usize> = (0..parts.len()).collect();
        let first: Vec<usize> = (0..parts.len()).filter(|at| parts[*at].process == 0).collect();
        let simulate = |some: &[usize]| match runs.access {
            Access::Read => {
                FirstReads { job, parts: &parts, rates: &rates, resolution }.simulate(some, starts)
            }
            Access::Write => FirstWrites { job, parts: &parts, resolution }.simulate(some, starts),
        };
        (simulate(&all), simulate(&first)[0])
    });
    let (mut longest, mut steady) = (0.0_f64, time_at_links(runs, starts, links, fabric));
    let mut durations = vec![0.0; starts.len()];
    for (process, (_, rank)) in starts.iter().enumerate() {
        let node = runs.pattern.node_of(*rank);
        let (alone, at_client) = (lone[node as usize], shared.of_node[&node]);
        let (others, requests) = shared.of_process[process];
        let first = match &ends {
            Some((ends, end_alone)) => alone + ends[process] - end_alone,
            None => {
                let own = runs.pattern.length_of(0) as f64 / client_rate(job, node, runs.access);
                others / requests.max(1) as f64 + alone + (at_client - own).max(0.0)
            }
        };
        durations[*rank as usize] = first.max(1.0);
        longest = longest.max(first);
        steady = steady.max(alone).max(at_client);
    }
    if ends.is_some() && job.pattern.transfers_per_rank() == 1 {
        return FirstCalls { delay: 0, durations };
    }
    FirstCalls { delay: (longest - steady).max(0.0) as u64, durations: Vec::new() }
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

/// Times that the first calls take at their clients and servers at their rates, ps.
struct SharedTimes {
    /// By the node's index in the job.
    of_node: FxHashMap<u32, f64>,
    /// Of each process: the longest time of a server for the calls of others, and its requests.
    of_process: Vec<(f64, u64)>,
}

impl SharedTimes {
    fn new(
        (job, access): (&IoJob, Access),
        parts: &[Part],
        rates: &FxHashMap<u32, f64>,
    ) -> SharedTimes {
        let mut of_server: FxHashMap<u32, f64> = FxHashMap::default();
        let mut own_at_server: FxHashMap<(usize, u32), f64> = FxHashMap::default();
        let mut of_node: FxHashMap<u32, f64> = FxHashMap::default();
        for part in parts {
            let takes = part.bytes / rates[&part.server];
            *of_server.entry(part.server).or_default() += takes;
            *own_at_server.entry((part.process, part.server)).or_default() += takes;
            *of_node.entry(part.node).or_default() +=
                part.bytes / client_rate(job, part.node, access);
        }
        let processes = parts.iter().map(|part| part.process + 1).max().unwrap_or(0);
        let mut of_process = vec![(0.0, 0); processes];
        for part in parts {
            let all = of_server[&part.server];
            let (others, requests) = &mut of_process[part.process];
            *others = f64::max(*others, all - own_at_server[&(part.process, part.server)]);
            *requests += part.requests;
        }
        SharedTimes { of_node, of_process }
    }
}
