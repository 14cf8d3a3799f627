//! IOR jobs on a machine, and the checks that they fit it.

use super::error::StudyError;
use super::joined::{JoinedTest, lustre_of};
use super::options::SimOptions;
use crate::io::{Aggregators, IoJob, RequestTag};
use crate::mpi::{Team, TeamId};
use crate::phase_collector::PhaseCollector;
use crate::pool::{Instance, StoragePool};
use crate::scenario::Scenario;
use crate::storage::{FileSystem, Storage, target_as_server};
use forebay_job_script::{Capacity, OptimizationStrategy};
use forebay_machine_file::machine::{BurstBuffer, Client, Lustre, Machine, ParallelFileSystem};
use forebay_network::lookahead;
use forebay_units::{Bytes, Rate, Time};
use forebay_workload::ior::{AccessPattern, Api, Ior, Processes};
use rustc_hash::FxHashMap;
use std::sync::Arc;

const FEWER_PROCESSES: &str = "use fewer nodes or processes a node";
const SMALLER_TRANSFERS: &str = "use smaller transfers (-t)";

/// An IOR job on given nodes of an idle machine and on the file system of the options.
pub(super) fn ior_job(
    idle: &Scenario,
    test: &JoinedTest,
    nodes: Vec<u32>,
    ppn: u32,
    options: &SimOptions,
) -> Result<IoJob, StudyError> {
    let storage = storage(&idle.machine, options)?;
    ior_job_on(idle, test, nodes, ppn, options, storage)
}

/// An IOR job on given nodes of an idle machine and on a storage with the parameters of its servers.
pub(super) fn ior_job_on(
    idle: &Scenario,
    test: &JoinedTest,
    nodes: Vec<u32>,
    ppn: u32,
    options: &SimOptions,
    (storage, burst_buffer): (Storage, BurstBuffer),
) -> Result<IoJob, StudyError> {
    let (machine, topology) = (&*idle.machine, &idle.topology);
    let (packet, request) = (idle.network.packet, machine.client.control_message);
    if request > packet {
        return Err(StudyError::Machine(format!(
            "requests without data have {request}, and do not fit packets of {packet}; use packets of at \
             least {request}"
        )));
    }
    let ior = &test.ior;
    let Some(count) = (nodes.len() as u32).checked_mul(ppn) else {
        return Err(too_many("processes", RequestTag::MAX_RANKS, FEWER_PROCESSES));
    };
    check_duration(ior)?;
    let processes = Processes { count, per_node: ppn, seed: options.seed };
    let pattern = AccessPattern::new(ior, processes)?;
    let is_collective = ior.collective && ior.api == Api::MpiIo && !ior.file_per_process;
    let rule = machine.client.aggregators;
    let aggregators = Aggregators::new(rule, pattern.tasks(), ppn, storage.servers_of_file());
    let clients = match options.file_system {
        FileSystem::BurstBuffer => {
            let buffer_bytes =
                buffers_of_node(machine, &pattern, is_collective, (ppn, &aggregators));
            clients(machine, buffer_bytes)
        }
        FileSystem::Parallel { .. } => pfs_clients(machine, test.calls, &storage)?,
    };
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
        number: 0,
        start: 0,
        rate_limit: None,
        server_queues: options.server_queues,
        steps: ior.steps().collect(),
        pattern,
        slot_of_rank: Vec::new(),
        team: Arc::new(team),
        groups_without_ranks: Vec::new(),
        lookahead: lookahead(&machine.network),
        aggregators,
        client: match options.file_system {
            FileSystem::BurstBuffer => machine.client.clone(),
            FileSystem::Parallel { .. } => clients[0].clone(),
        },
        clients,
        client_of_node,
        node_link: machine.network.node.rate,
        ior: ior.clone(),
        index_of_node: nodes.iter().copied().zip(0..).collect(),
        ppn,
        nodes,
        storage,
        calls_joined: test.calls,
        burst_buffer,
        topology: topology.clone(),
        phases: PhaseCollector::new(topology.groups, phases_of(ior)),
        network: idle.network.clone(),
        each_link: idle.each_link,
        is_given: options.is_given,
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

/// Bytes of the buffers of a node whose data its client moves: each process has a buffer of one transfer,
/// each aggregator of collective transfers that of a window.
fn buffers_of_node(
    machine: &Machine,
    pattern: &AccessPattern,
    is_collective: bool,
    (ppn, aggregators): (u32, &Aggregators),
) -> u64 {
    let (buffer, count) = match is_collective {
        true => (machine.client.collective_buffer.0, aggregators.per_node()),
        false => (pattern.transfer_bytes(), ppn),
    };
    buffer.saturating_mul(u64::from(count))
}

/// The clients of the types of nodes, with their rates for a node's buffers.
fn clients(machine: &Machine, buffer_bytes: u64) -> Vec<Client> {
    let with_rates = |client: &Client| {
        let mut client = client.clone();
        if buffer_bytes > client.cache.0 {
            let share = |rate: Rate| Rate(rate.0 / 100 * u64::from(client.uncached_percent));
            (client.write_rate, client.read_rate) =
                (share(client.write_rate), share(client.read_rate));
        }
        client
    };
    machine.clients().into_iter().map(|(client, _)| with_rates(client)).collect()
}

/// The clients of the parallel file system on the types of nodes. Rates and costs of other types of nodes
/// are in the same proportion as those of their clients of the burst buffer.
fn pfs_clients(
    machine: &Machine,
    calls_joined: u64,
    storage: &Storage,
) -> Result<Vec<Client>, StudyError> {
    let (_, lustre) = described_lustre(machine)?;
    let base = &machine.client;
    let scaled = |value: u64, own: u64, base: u64| {
        (u128::from(value) * u128::from(own) / u128::from(base.max(1))) as u64
    };
    let in_flight = lustre.rpcs_in_flight.saturating_mul(storage.servers_of_file());
    let in_flight = in_flight.min(RequestTag::MAX_REQUESTS as u32 - 1);
    let client = |own: &Client| {
        let overhead = match base.call_overhead.0 {
            0 => lustre.call_overhead.0,
            of_base => scaled(lustre.call_overhead.0, own.call_overhead.0, of_base),
        };
        Client {
            write_rate: Rate(scaled(lustre.write_rate.0, own.write_rate.0, base.write_rate.0)),
            read_rate: Rate(scaled(lustre.read_rate.0, own.read_rate.0, base.read_rate.0)),
            process: lustre.process_rates(&own.name),
            call_overhead: Time(overhead.saturating_mul(calls_joined)),
            max_request: lustre.max_rpc,
            requests_in_flight: in_flight,
            // The limit is one for each target.
            requests_per_node: u32::MAX,
            ..own.clone()
        }
    };
    Ok(machine.clients().into_iter().map(|(own, _)| client(own)).collect())
}

/// The storage of the options' file system, and the parameters of its servers.
pub(super) fn storage(
    machine: &Machine,
    options: &SimOptions,
) -> Result<(Storage, BurstBuffer), StudyError> {
    match options.file_system {
        FileSystem::BurstBuffer => {
            let make = burst_buffer(machine)?;
            let instance = allocate_instance(machine, &make, options.burst_buffers)?;
            Ok((Storage::of_instance(instance, &make), make))
        }
        FileSystem::Parallel { stripe_count, stripe } => {
            let (pfs, lustre) = described_lustre(machine)?;
            let storage = Storage::of_targets(machine, (pfs, lustre), stripe_count, stripe)?;
            Ok((storage, target_as_server(pfs, lustre, stripe)))
        }
    }
}

/// The burst buffers of a machine.
pub(super) fn burst_buffer(machine: &Machine) -> Result<BurstBuffer, StudyError> {
    machine.burst_buffer.clone().ok_or_else(|| {
        StudyError::Machine(format!(
            "{} has no burst-buffer nodes; IOR is simulated on burst buffers: \
             choose a machine that has some (`forebay machine list`)",
            machine.name
        ))
    })
}

/// The parallel file system of a machine, and its parts.
fn described_lustre(machine: &Machine) -> Result<(&ParallelFileSystem, &Lustre), StudyError> {
    lustre_of(machine).ok_or_else(|| {
        StudyError::Machine(format!(
            "the machine file of {} does not describe the servers of a parallel file system \
             (`[pfs.lustre]`); cori, cori-phase1, shaheen2, edison and edison-scratch3 do",
            machine.name
        ))
    })
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
            match job.is_given {
                true => "use more processes, or write less",
                false => "use larger transfers (-t), a smaller block (-b) or fewer segments (-s)",
            },
        );
    }
    // A transfer may begin and end within a piece.
    let unit = job.largest_request();
    if job.pattern.transfer_bytes() / unit + 2 >= RequestTag::MAX_REQUESTS {
        return too_many("requests for one transfer", RequestTag::MAX_REQUESTS, SMALLER_TRANSFERS);
    }
    // Requests without data carry the number of their server.
    let servers = job.storage.servers().len() as u64;
    let is_numbered = job.ior.fsync || job.storage.is_parallel();
    if is_numbered && servers >= RequestTag::MAX_REQUESTS {
        return too_many(
            "servers",
            RequestTag::MAX_REQUESTS,
            "use a smaller instance, or a machine file with fewer OSTs",
        );
    }
    if job.is_collective() {
        // Each extent and each window may begin and end within a piece.
        let extents = u64::from(job.tasks().div_ceil(job.aggregators.count())) + 2;
        let bytes = extents * job.pattern.transfer_bytes();
        let windows = bytes / job.client.collective_buffer.0.max(1) + extents;
        let requests = bytes / unit + 2 * (extents + windows);
        let numbers = windows * u64::from(job.aggregators.per_node());
        if requests.max(numbers) >= RequestTag::MAX_REQUESTS {
            return too_many(
                "requests for one collective transfer",
                RequestTag::MAX_REQUESTS,
                SMALLER_TRANSFERS,
            );
        }
    }
    Ok(())
}

/// Checks that the test's files fit the file system.
fn check_capacity(machine: &Machine, job: &IoJob) -> Result<(), StudyError> {
    let kept = job.ior.sets_of_files();
    let needed = u128::from(job.pattern.total_bytes()) * u128::from(kept);
    let capacity = job.storage.capacity;
    if needed > u128::from(capacity.0) {
        let servers = match job.storage.is_parallel() {
            true => "the parallel file system".to_string(),
            false => format!("{} burst-buffer nodes", job.storage.data_servers().len()),
        };
        let holds = if job.storage.is_parallel() { "holds" } else { "hold" };
        let remedy = match job.is_given {
            true => "",
            false => ": use a smaller block (-b), fewer segments (-s) or fewer processes",
        };
        return Err(StudyError::Capacity(format!(
            "the test's files have {}, and {servers} of {} {holds} {capacity}{remedy}",
            Bytes(u64::try_from(needed).unwrap_or(u64::MAX)),
            machine.name
        )));
    }
    Ok(())
}
