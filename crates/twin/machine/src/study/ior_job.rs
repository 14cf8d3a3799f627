//! IOR jobs on a machine, and the checks that they fit it.

use super::error::StudyError;
use super::options::SimOptions;
use crate::io::{IoJob, RequestTag};
use crate::mpi::{Team, TeamId};
use crate::phase_collector::PhaseCollector;
use crate::pool::{Instance, StoragePool};
use crate::scenario::Scenario;
use forebay_job_script::{Capacity, OptimizationStrategy};
use forebay_machine_file::machine::{BurstBuffer, Client, Machine};
use forebay_network::lookahead;
use forebay_units::{Bytes, Rate};
use forebay_workload::ior::{AccessPattern, Api, Ior, Processes};
use rustc_hash::FxHashMap;
use std::sync::Arc;

const FEWER_PROCESSES: &str = "use fewer nodes or processes a node";
const SMALLER_TRANSFERS: &str = "use smaller transfers (-t)";

/// An IOR job on given nodes of an idle machine and on an instance of its burst buffers.
pub(super) fn ior_job(
    idle: &Scenario,
    ior: &Ior,
    nodes: Vec<u32>,
    ppn: u32,
    options: &SimOptions,
) -> Result<IoJob, StudyError> {
    let (machine, topology) = (&*idle.machine, &idle.topology);
    let Some(burst_buffer) = machine.burst_buffer.clone() else {
        return Err(StudyError::Machine(format!(
            "{} has no burst-buffer nodes; IOR is simulated on burst buffers: \
             choose a machine that has some (`forebay machine list`)",
            machine.name
        )));
    };
    let instance = allocate_instance(machine, &burst_buffer, options.burst_buffers)?;
    let Some(count) = (nodes.len() as u32).checked_mul(ppn) else {
        return Err(too_many("processes", RequestTag::MAX_RANKS, FEWER_PROCESSES));
    };
    check_duration(ior)?;
    let processes = Processes { count, per_node: ppn, seed: options.seed };
    let pattern = AccessPattern::new(ior, processes)?;
    let clients = clients(machine, ior, ppn, pattern.transfer_bytes());
    let client_of_node = clients_of_nodes(machine, &nodes);
    let team = Team::new(
        TeamId::Io,
        &nodes,
        (ppn, pattern.tasks()),
        (clients.clone(), client_of_node.clone()),
        machine.network.node.rate,
        options.seed,
    );
    let mut job = IoJob {
        steps: ior.steps().collect(),
        pattern,
        slot_of_rank: Vec::new(),
        team: Arc::new(team),
        groups_without_ranks: Vec::new(),
        lookahead: lookahead(&machine.network),
        client: machine.client.clone(),
        clients,
        client_of_node,
        node_link: machine.network.node.rate,
        ior: ior.clone(),
        index_of_node: nodes.iter().copied().zip(0..).collect(),
        ppn,
        nodes,
        instance,
        burst_buffer,
        topology: topology.clone(),
        phases: PhaseCollector::new(topology.groups, phases_of(ior)),
        network: idle.network.clone(),
        each_link: idle.each_link,
        bytes_done: 0.into(),
    };
    check_request_numbers(&job)?;
    check_capacity(machine, &job)?;
    let mut ranks_of_group = vec![0; usize::from(topology.groups)];
    for rank in 0..job.tasks() {
        let group = topology.location(job.node_of(rank)).group;
        let slot = &mut ranks_of_group[usize::from(group)];
        job.slot_of_rank.push(*slot);
        *slot += 1;
    }
    job.groups_without_ranks = (0..)
        .zip(&ranks_of_group)
        .filter(|(_, ranks)| **ranks == 0)
        .map(|(group, _)| group)
        .collect();
    Ok(job)
}

/// Phases of a test, unless some are skipped.
fn phases_of(ior: &Ior) -> u64 {
    (u64::from(ior.write) + u64::from(ior.read)) * u64::from(ior.repetitions)
}

/// The clients of the types of nodes, with their rates for the buffers of a test: each process has
/// a buffer of one transfer, the aggregator of collective transfers that of a window.
fn clients(machine: &Machine, ior: &Ior, ppn: u32, transfer_bytes: u64) -> Vec<Client> {
    let with_rates = |client: &Client| {
        let mut client = client.clone();
        let is_collective = ior.collective && ior.api == Api::MpiIo && !ior.file_per_process;
        let buffers = match is_collective {
            true => client.collective_buffer.0,
            false => transfer_bytes.saturating_mul(u64::from(ppn)),
        };
        if buffers > client.cache.0 {
            let share = |rate: Rate| Rate(rate.0 / 100 * u64::from(client.uncached_percent));
            (client.write_rate, client.read_rate) =
                (share(client.write_rate), share(client.read_rate));
        }
        client
    };
    machine.clients().into_iter().map(|(client, _)| with_rates(client)).collect()
}

/// Index of the client of each node of a job.
pub(super) fn clients_of_nodes(machine: &Machine, nodes: &[u32]) -> Vec<u8> {
    let mut client_of: FxHashMap<u32, u8> = FxHashMap::default();
    for (index, (_, of_type)) in (0u8..).zip(machine.clients()) {
        client_of.extend(of_type.into_iter().map(|node| (node, index)));
    }
    nodes.iter().map(|node| client_of.get(node).copied().unwrap_or_default()).collect()
}

/// An instance on `requested` whole nodes of the machine, or on all.
fn allocate_instance(
    machine: &Machine,
    burst_buffer: &BurstBuffer,
    requested: Option<u32>,
) -> Result<Instance, StudyError> {
    let mut pool = StoragePool::new(machine, burst_buffer, burst_buffer.stripe);
    let available = pool.len() as u32;
    let requested = requested.unwrap_or(available);
    pool.allocate(Capacity::Nodes(requested), OptimizationStrategy::Bandwidth).map_err(|_| {
        StudyError::Machine(format!(
            "an instance on {requested} burst-buffer nodes; {} has {available}: \
             request 1 to {available}",
            machine.name
        ))
    })
}

/// More of something than the simulator can number.
fn too_many(things: &str, limit: u64, remedy: &str) -> StudyError {
    StudyError::Limit(format!(
        "too many {things}: the simulator supports fewer than {limit}; {remedy}"
    ))
}

/// Checks that simulated time, 64 bits of picoseconds (213 days), can represent the test.
fn check_duration(ior: &Ior) -> Result<(), StudyError> {
    const MAX_REPETITIONS: u64 = 1 << 16;
    const MAX_DELAYS_S: u64 = 100 * 86_400;
    if u64::from(ior.repetitions) >= MAX_REPETITIONS {
        return Err(too_many("repetitions", MAX_REPETITIONS, "lower -i"));
    }
    let seconds = u64::from(ior.delay_seconds) * phases_of(ior);
    if seconds > MAX_DELAYS_S {
        return Err(StudyError::Limit(format!(
            "the delays (-d) add up to {seconds} s; at most {MAX_DELAYS_S} s ({} days) are \
             simulated: use a shorter one or fewer repetitions (-i)",
            MAX_DELAYS_S / 86_400
        )));
    }
    Ok(())
}

/// Checks that request tags can number the job's processes, calls and requests.
fn check_request_numbers(job: &IoJob) -> Result<(), StudyError> {
    let too_many = |things, limit, remedy| Err(too_many(things, limit, remedy));
    if u64::from(job.tasks()) >= RequestTag::MAX_RANKS {
        return too_many("processes", RequestTag::MAX_RANKS, FEWER_PROCESSES);
    }
    if job.pattern.transfers_per_rank() >= RequestTag::MAX_CALLS {
        return too_many(
            "transfers of a process in one phase",
            RequestTag::MAX_CALLS,
            "use larger transfers (-t), a smaller block (-b) or fewer segments (-s)",
        );
    }
    // A transfer may begin and end within a piece.
    let unit = job.largest_request();
    if job.pattern.transfer_bytes() / unit + 2 >= RequestTag::MAX_REQUESTS {
        return too_many("requests for one transfer", RequestTag::MAX_REQUESTS, SMALLER_TRANSFERS);
    }
    if job.ior.fsync && job.instance.nodes().len() as u64 >= RequestTag::MAX_REQUESTS {
        return too_many(
            "servers for an fsync",
            RequestTag::MAX_REQUESTS,
            "use a smaller instance",
        );
    }
    if job.is_collective() {
        // Each extent and each window may begin and end within a piece.
        let extents = u64::from(job.tasks().div_ceil(job.aggregators())) + 2;
        let bytes = extents * job.pattern.transfer_bytes();
        let windows = bytes / job.client.collective_buffer.0.max(1) + extents;
        if bytes / unit + 2 * (extents + windows) >= RequestTag::MAX_REQUESTS {
            return too_many(
                "requests for one collective transfer",
                RequestTag::MAX_REQUESTS,
                SMALLER_TRANSFERS,
            );
        }
    }
    Ok(())
}

/// Checks that the test's files fit the instance.
fn check_capacity(machine: &Machine, job: &IoJob) -> Result<(), StudyError> {
    let kept =
        if job.ior.multi_file && job.ior.keep_file { u64::from(job.ior.repetitions) } else { 1 };
    let needed = u128::from(job.pattern.total_bytes()) * u128::from(kept);
    let BurstBuffer { cards, card_capacity, .. } = job.burst_buffer;
    let servers = job.instance.nodes().len();
    let capacity = card_capacity.0 * u64::from(cards) * servers as u64;
    if needed > u128::from(capacity) {
        return Err(StudyError::Capacity(format!(
            "the test's files have {}, and {servers} burst-buffer nodes of {} hold {}: \
             use a smaller block (-b), fewer segments (-s) or fewer processes",
            Bytes(u64::try_from(needed).unwrap_or(u64::MAX)),
            machine.name,
            Bytes(capacity)
        )));
    }
    Ok(())
}
