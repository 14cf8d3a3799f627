//! IOR jobs on a machine, and the checks that they fit it.

use super::error::StudyError;
use super::options::SimOptions;
use crate::io::{IoJob, RequestTag};
use crate::pool::{Instance, StoragePool};
use forebay_job_script::Capacity;
use forebay_job_script::OptimizationStrategy;
use forebay_machine_file::machine::{BurstBuffer, Machine};
use forebay_network::{Topology, lookahead};
use forebay_units::Bytes;
use forebay_workload::ior::{AccessPattern, Ior, NodeOrder, Processes};
use std::sync::Arc;

/// One step of a barrier's tree, ps: the MPI latency across Cori is 0.25 to 3.7 us (NERSC).
const MPI_LATENCY: u64 = 1_000_000;

const FEWER_PROCESSES: &str = "use fewer nodes or processes a node";
const SMALLER_TRANSFERS: &str = "use smaller transfers (-t)";

/// An IOR job on given nodes and on an instance of the machine's burst buffers.
pub(super) fn ior_job(
    machine: &Machine,
    topology: &Arc<Topology>,
    ior: &Ior,
    nodes: Vec<u32>,
    ppn: u32,
    options: &SimOptions,
) -> Result<IoJob, StudyError> {
    let Some(burst_buffer) = machine.burst_buffer.clone() else {
        return Err(StudyError::NoBurstBuffers(machine.name.clone()));
    };
    let instance = allocate_instance(machine, options.burst_buffers)?;
    let Some(count) = (nodes.len() as u32).checked_mul(ppn) else {
        return Err(StudyError::TooMany {
            what: "processes",
            limit: RequestTag::MAX_RANKS,
            remedy: FEWER_PROCESSES,
        });
    };
    check_duration(ior)?;
    let processes = Processes { count, per_node: ppn, order: NodeOrder::Block, seed: options.seed };
    let pattern = AccessPattern::new(ior, processes)?;
    let mut job = IoJob {
        steps: ior.steps().collect(),
        pattern,
        slot_of_rank: Vec::new(),
        groups_with_ranks: 0,
        barrier_hop: barrier_hop(machine, pattern.tasks()),
        client: machine.client.clone(),
        node_link: machine.network.node.rate,
        ior: ior.clone(),
        index_of_node: nodes.iter().copied().zip(0..).collect(),
        ppn,
        nodes,
        instance,
        burst_buffer,
        topology: topology.clone(),
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
    job.groups_with_ranks = ranks_of_group.iter().filter(|&&ranks| ranks > 0).count() as u32;
    Ok(job)
}

/// Half the duration of a barrier: a latency for each level of a binary tree.
fn barrier_hop(machine: &Machine, tasks: u32) -> u64 {
    let levels = u64::from(tasks.next_power_of_two().trailing_zeros().max(1));
    (levels * MPI_LATENCY / 2).max(lookahead(&machine.network))
}

/// An instance on `asked` whole nodes of the machine, or on all.
fn allocate_instance(machine: &Machine, asked: Option<u32>) -> Result<Instance, StudyError> {
    let none = || StudyError::NoBurstBuffers(machine.name.clone());
    let stripe = machine.burst_buffer.as_ref().ok_or_else(none)?.stripe;
    let mut pool = StoragePool::new(machine, stripe).ok_or_else(none)?;
    let have = pool.len();
    let asked = asked.map_or(have, |n| n as usize);
    let capacity = Capacity::Nodes(u32::try_from(asked).unwrap_or(u32::MAX));
    pool.allocate(capacity, OptimizationStrategy::Bandwidth).map_err(|_| StudyError::BurstBuffers {
        asked,
        machine: machine.name.clone(),
        have,
    })
}

/// Checks that simulated time, 64 bits of picoseconds (213 days), can represent the test.
fn check_duration(ior: &Ior) -> Result<(), StudyError> {
    const MAX_REPETITIONS: u64 = 1 << 16;
    const MAX_DELAYS_S: u64 = 100 * 86_400;
    if u64::from(ior.repetitions) >= MAX_REPETITIONS {
        return Err(StudyError::TooMany {
            what: "repetitions",
            limit: MAX_REPETITIONS,
            remedy: "lower -i",
        });
    }
    let phases = u64::from(ior.write) + u64::from(ior.read);
    let seconds = u64::from(ior.delay_seconds) * u64::from(ior.repetitions) * phases;
    if seconds > MAX_DELAYS_S {
        return Err(StudyError::Delays { seconds, limit: MAX_DELAYS_S });
    }
    Ok(())
}

/// Checks that request tags can number the job's processes, calls and requests.
fn check_request_numbers(job: &IoJob) -> Result<(), StudyError> {
    let too_many = |what, limit, remedy| Err(StudyError::TooMany { what, limit, remedy });
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
    let max_request = job.client.max_request.0;
    let unit = max_request.min(job.burst_buffer.substripe.0).max(1);
    if job.pattern.transfer_bytes() / unit + 2 >= RequestTag::MAX_REQUESTS {
        return too_many("requests for one transfer", RequestTag::MAX_REQUESTS, SMALLER_TRANSFERS);
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
    let have = card_capacity.0 * u64::from(cards) * servers as u64;
    if needed > u128::from(have) {
        return Err(StudyError::Capacity {
            needed: Bytes(u64::try_from(needed).unwrap_or(u64::MAX)),
            have: Bytes(have),
            servers,
            machine: machine.name.clone(),
        });
    }
    Ok(())
}
