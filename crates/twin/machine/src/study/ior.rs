//! IOR on burst buffers.

use super::{Progress, SimOptions, StudyError, build, peak_rss, run};
use crate::group::Group;
use crate::io::measure::{PhaseCounts as Counted, Waits};
use crate::io::{IoJob, MPI_LATENCY, Tag};
use crate::limit;
use crate::links::{Links, class_use, each_link, heat, intervals, utilisation};
use crate::results::{IorPoint, NodeRates, Phase, RunCost, Series, Spread};
use crate::scenario::Scenario;
use forebay_engine::{Simulation, Statistics};
use forebay_machine_file::machine::{BurstBuffer, Machine, NodeKind};
use forebay_network::{Timeline, Topology, lookahead};
use forebay_units::Bytes;
use forebay_workload::ior::{Access, AccessPattern, Action, Ior, NodeOrder, Processes};
use forebay_workload::placement::Placer;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Simulates one IOR test with `ppn` processes on each of `nodes` nodes.
///
/// # Errors
/// [`StudyError`] when the machine has too few nodes or no burst buffers, or the test does not
/// fit them.
pub fn simulate_ior(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
    progress: &dyn Progress,
) -> Result<IorPoint, StudyError> {
    let nodes = Placer::new(machine, options.seed).place_job(nodes, options.placement)?;
    let topology = Arc::new(Topology::new(machine));
    let world = Arc::new(Scenario {
        machine: machine.clone(),
        network: Arc::new(options.network(machine)?),
        io: Some(job(machine, &topology, ior, nodes, ppn, options)?),
        topology,
        traffic: None,
        bytes_done: 0.into(),
        each_link: options.each_link,
    });
    let mut simulation = build(&world, options);
    let running = Instant::now();
    let statistics = run_job(&world, &mut simulation, progress)?;
    let cost = cost(&mut simulation, &statistics, options, running);
    Ok(describe(&world, simulation.into_partitions(), cost))
}

/// Checks that a test fits a machine, as [`ior_point`] does before it simulates.
///
/// # Errors
/// [`StudyError`] as [`ior_point`].
pub fn check_ior_fits(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<(), StudyError> {
    let nodes = Placer::new(machine, options.seed).place_job(nodes, options.placement)?;
    options.network(machine)?;
    unplaced(machine, ior, nodes, ppn, options).map(|_| ())
}

/// Runs a simulation with an IOR job to its end, with progress by bytes.
pub(super) fn run_job(
    world: &Scenario,
    simulation: &mut Simulation<Group>,
    progress: &dyn Progress,
) -> Result<Statistics, StudyError> {
    let total = world.io.as_ref().map_or(0.0, |job| {
        let phases = job
            .steps
            .iter()
            .filter(|s| matches!(s.action, Action::Transfer(_)))
            .count();
        let transfers = job.layout.transfers_per_rank() * u64::from(job.tasks());
        (transfers * job.layout.transfer_bytes()) as f64 * phases as f64
    });
    run(simulation, progress, &|_, _| {
        world.bytes_done.load(Ordering::Relaxed) as f64 / total
    })
}

pub(super) fn cost(
    simulation: &mut Simulation<Group>,
    statistics: &Statistics,
    options: &SimOptions,
    running: Instant,
) -> RunCost {
    let mut packets = 0;
    simulation.for_each_partition(|_, group, _| {
        packets += group.fabric.traffic.iter().map(|t| t.packets).sum::<u64>();
    });
    RunCost {
        wall_seconds: running.elapsed().as_secs_f64(),
        simulated_seconds: statistics.last_event as f64 * 1e-12,
        events: statistics.events,
        packets_delivered: packets,
        threads: options.threads as u32,
        peak_rss_bytes: peak_rss(),
    }
}

/// An IOR job on given nodes and on the machine's burst buffers.
pub(super) fn job(
    machine: &Machine,
    topology: &Topology,
    ior: &Ior,
    nodes: Vec<u32>,
    ppn: u32,
    options: &SimOptions,
) -> Result<IoJob, StudyError> {
    let mut job = unplaced(machine, ior, nodes, ppn, options)?;
    let mut ranks_of_group = vec![0; usize::from(topology.groups)];
    for rank in 0..job.tasks() {
        let slot = &mut ranks_of_group[usize::from(topology.location(job.node_of(rank)).group)];
        job.slot_of_rank.push(*slot);
        *slot += 1;
    }
    job.groups_with_ranks = ranks_of_group.iter().filter(|&&ranks| ranks > 0).count() as u32;
    Ok(job)
}

/// The same without where in its group each rank is.
fn unplaced(
    machine: &Machine,
    ior: &Ior,
    nodes: Vec<u32>,
    ppn: u32,
    options: &SimOptions,
) -> Result<IoJob, StudyError> {
    let Some(burst_buffer) = machine.burst_buffer.clone() else {
        return Err(StudyError::NoBurstBuffers(machine.name.clone()));
    };
    let servers = instance(machine, options.burst_buffers)?;
    let Some(count) = (nodes.len() as u32).checked_mul(ppn) else {
        return Err(StudyError::TooMany {
            what: "processes",
            most: Tag::RANKS,
            remedy: FEWER_PROCESSES,
        });
    };
    check_length(ior)?;
    let processes = Processes {
        count,
        per_node: ppn,
        order: NodeOrder::Block,
        seed: options.seed,
    };
    let layout = AccessPattern::new(ior, processes)?;
    let job = IoJob {
        steps: ior.steps().collect(),
        layout,
        slot_of_rank: Vec::new(),
        groups_with_ranks: 0,
        barrier_hop: barrier_hop(machine, layout.tasks()),
        client: machine.client.clone(),
        ior: ior.clone(),
        index_of_node: (0..)
            .zip(&nodes)
            .map(|(index, &node)| (node, index))
            .collect(),
        ppn,
        nodes,
        servers,
        burst_buffer,
    };
    check(machine, &job)?;
    Ok(job)
}

/// Half the time of a barrier: a latency for each level of a binary tree.
fn barrier_hop(machine: &Machine, tasks: u32) -> u64 {
    let levels = u64::from(tasks.next_power_of_two().trailing_zeros().max(1));
    (levels * MPI_LATENCY / 2).max(lookahead(&machine.network))
}

/// The burst-buffer nodes of an instance, spread evenly over those of the machine.
fn instance(machine: &Machine, asked: Option<u32>) -> Result<Vec<u32>, StudyError> {
    let all = machine.nodes_of_kind(NodeKind::BurstBuffer);
    let asked = asked.map_or(all.len(), |n| n as usize);
    if asked == 0 || asked > all.len() {
        return Err(StudyError::BurstBuffers {
            asked,
            machine: machine.name.clone(),
            have: all.len(),
        });
    }
    Ok((0..asked).map(|i| all[i * all.len() / asked]).collect())
}

/// Simulated time has 64 bits of picoseconds: 213 days.
fn check_length(ior: &Ior) -> Result<(), StudyError> {
    const REPETITIONS: u64 = 1 << 16;
    const DELAYS: u64 = 100 * 86_400;
    if u64::from(ior.repetitions) >= REPETITIONS {
        return Err(StudyError::TooMany {
            what: "repetitions",
            most: REPETITIONS,
            remedy: "lower -i",
        });
    }
    let phases = u64::from(ior.write) + u64::from(ior.read);
    let seconds = u64::from(ior.delay_seconds) * u64::from(ior.repetitions) * phases;
    if seconds > DELAYS {
        return Err(StudyError::Delays {
            seconds,
            most: DELAYS,
        });
    }
    Ok(())
}

const FEWER_PROCESSES: &str = "use fewer nodes or processes a node";
const SMALLER_TRANSFERS: &str = "use smaller transfers (-t)";

/// Limits of the numbers in which requests are told apart, and of the flash.
fn check(machine: &Machine, job: &IoJob) -> Result<(), StudyError> {
    let too_many = |what, most, remedy| Err(StudyError::TooMany { what, most, remedy });
    if u64::from(job.tasks()) >= Tag::RANKS {
        return too_many("processes", Tag::RANKS, FEWER_PROCESSES);
    }
    if job.layout.transfers_per_rank() >= Tag::CALLS {
        return too_many(
            "transfers of a process in one phase",
            Tag::CALLS,
            "use larger transfers (-t), a smaller block (-b) or fewer segments (-s)",
        );
    }
    // A transfer may begin and end within a piece.
    let unit = job
        .client
        .max_request
        .0
        .min(job.burst_buffer.substripe.0)
        .max(1);
    if job.layout.transfer_bytes() / unit + 2 >= Tag::REQUESTS {
        return too_many(
            "requests for one transfer",
            Tag::REQUESTS,
            SMALLER_TRANSFERS,
        );
    }
    if job.is_collective() {
        // Each extent and each window may begin and end within a piece.
        let extents = u64::from(job.layout.tasks().div_ceil(job.aggregators())) + 2;
        let bytes = extents * job.layout.transfer_bytes();
        let windows = bytes / job.client.collective_buffer.0.max(1) + extents;
        if bytes / unit + 2 * (extents + windows) >= Tag::REQUESTS {
            return too_many(
                "requests for one collective transfer",
                Tag::REQUESTS,
                SMALLER_TRANSFERS,
            );
        }
    }
    let kept = if job.ior.multi_file && job.ior.keep_file {
        u64::from(job.ior.repetitions)
    } else {
        1
    };
    let needed = u128::from(job.layout.total_bytes()) * u128::from(kept);
    let BurstBuffer {
        cards,
        card_capacity,
        ..
    } = job.burst_buffer;
    let have = card_capacity.0 * u64::from(cards) * job.servers.len() as u64;
    if needed > u128::from(have) {
        return Err(StudyError::Capacity {
            needed: Bytes(needed.min(u128::from(u64::MAX)) as u64),
            have: Bytes(have),
            servers: job.servers.len(),
            machine: machine.name.clone(),
        });
    }
    Ok(())
}

/// A phase of the whole machine.
pub(crate) struct PhaseTotals {
    pub counted: Counted,
    pub links: Links,
    /// The group whose processes were last to end their transfers: what held it back held the
    /// phase back.
    pub last: LastGroup,
}

/// Transfers of the processes of one group.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastGroup {
    pub group: usize,
    pub operations: u64,
    /// Sum of the transfers' times, ps.
    pub time: u64,
    pub waits: Waits,
}

impl PhaseTotals {
    /// The groups' counts of one phase, added up.
    fn add(phases: Vec<Counted>) -> PhaseTotals {
        let mut links = Vec::new();
        let mut counted = Counted::default();
        let mut last = LastGroup::default();
        for (group, phase) in phases.into_iter().enumerate() {
            if phase.operations > 0 && phase.transfers.last > counted.transfers.last {
                (last.group, last.operations, last.time) = (group, phase.operations, phase.time);
            }
            counted.iteration = phase.iteration;
            counted.access = phase.access;
            (counted.begun, counted.ended) = (phase.begun, phase.ended);
            counted.opens.join(&phase.opens);
            counted.transfers.join(&phase.transfers);
            counted.closes.join(&phase.closes);
            counted.bytes += phase.bytes;
            counted.operations += phase.operations;
            counted.times += &phase.times;
            counted.time += phase.time;
            counted.least_mean = match (counted.least_mean, phase.least_mean) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            counted.node_rates.extend(phase.node_rates);
            counted.timeline.merge(&phase.timeline);
            counted.waits.resize(phase.waits.len(), Waits::default());
            for (sum, waits) in counted.waits.iter_mut().zip(&phase.waits) {
                sum.add(waits);
            }
            counted.servers.extend(phase.servers);
            links.push(phase.links);
        }
        last.waits = counted.waits.get(last.group).copied().unwrap_or_default();
        PhaseTotals {
            counted,
            links,
            last,
        }
    }
}

/// The document of a run that has ended.
pub(super) fn describe(world: &Scenario, groups: Vec<Group>, cost: RunCost) -> IorPoint {
    let mut timeline = Timeline::default();
    let mut by_phase: Vec<Vec<Counted>> = Vec::new();
    for group in groups {
        timeline.merge(&group.fabric.timeline);
        by_phase.resize_with(group.phases.len().max(by_phase.len()), Vec::new);
        for (all, phase) in by_phase.iter_mut().zip(group.phases) {
            all.push(phase);
        }
    }
    let phases: Vec<Phase> = by_phase
        .into_iter()
        .map(|phases| describe_phase(world, &PhaseTotals::add(phases), &timeline))
        .collect();
    let best = |access: Access| {
        let of_kind = phases.iter().filter(|p| p.access == access.name());
        of_kind.max_by(|a, b| a.gbps.total_cmp(&b.gbps))
    };
    let limit = best(Access::Write)
        .or(best(Access::Read))
        .map(|p| p.limit.resource.clone());
    let job = world.io.as_ref();
    IorPoint {
        nodes: job.map_or(0, |job| job.nodes.len() as u32),
        processes: job.map_or(0, IoJob::tasks),
        write_gbps: best(Access::Write).map(|p| p.gbps),
        read_gbps: best(Access::Read).map(|p| p.gbps),
        write_acknowledged_node_gbps: best(Access::Write).map(|p| p.acknowledged_node_gbps.mean),
        read_acknowledged_node_gbps: best(Access::Read).map(|p| p.acknowledged_node_gbps.mean),
        limit: limit.unwrap_or_default(),
        phases,
        run: cost,
    }
}

fn seconds(ps: u64) -> f64 {
    ps as f64 * 1e-12
}

fn describe_phase(world: &Scenario, whole: &PhaseTotals, timeline: &Timeline<4>) -> Phase {
    let counted = &whole.counted;
    let (first, last) = (counted.opens.first, counted.closes.last);
    let total = seconds(last.saturating_sub(first));
    let transfers = counted.transfers.length();
    let per_second = |amount: f64, time: f64| if time > 0.0 { amount / time } else { 0.0 };
    Phase {
        access: counted.access.name().into(),
        iteration: counted.iteration,
        bytes: counted.bytes,
        operations: counted.operations,
        seconds: total,
        open_seconds: seconds(counted.opens.length()),
        transfer_seconds: seconds(transfers),
        close_seconds: seconds(counted.closes.length()),
        gbps: per_second(counted.bytes as f64 / 1e9, total),
        acknowledged_node_gbps: node_rates(counted.node_rates.clone()),
        iops: per_second(counted.operations as f64, seconds(transfers)),
        operation_seconds: spread(&counted.times, counted.time),
        least_mean_seconds: counted.least_mean.unwrap_or(0.0) * 1e-12,
        limit: limit::find(world, whole),
        links: class_use(&whole.links, transfers),
        heat: heat(&whole.links),
        series: series(world, whole, timeline),
        each_link: each_link(world, &whole.links, transfers),
    }
}

fn spread(times: &Histogram<u64>, sum: u64) -> Spread {
    if times.is_empty() {
        return Spread::default();
    }
    let ns = |value: u64| value as f64 * 1e-9;
    Spread {
        mean: seconds(sum) / times.len() as f64,
        min: ns(times.min()),
        p50: ns(times.value_at_quantile(0.5)),
        p99: ns(times.value_at_quantile(0.99)),
        max: ns(times.max()),
    }
}

/// Spread of rates in bytes a second, in GB/s; percentiles are those of the nearest rank.
fn node_rates(mut rates: Vec<f64>) -> NodeRates {
    rates.sort_by(f64::total_cmp);
    let count = rates.len();
    let rank = |percent: usize| (count * percent).div_ceil(100).saturating_sub(1);
    let at = |percent: usize| rates.get(rank(percent)).map_or(0.0, |rate| rate / 1e9);
    NodeRates {
        mean: rates.iter().sum::<f64>() / count.max(1) as f64 / 1e9,
        min: at(0),
        p5: at(5),
        p50: at(50),
        p95: at(95),
        max: at(100),
    }
}

/// Rate and link utilisation over the phase, from its first open on.
fn series(world: &Scenario, whole: &PhaseTotals, timeline: &Timeline<4>) -> Series {
    let counted = &whole.counted;
    let (from, to) = (counted.opens.first, counted.closes.last);
    let mut moved = counted.timeline.clone();
    // Bring both to intervals of the same length.
    let mut links = timeline.clone();
    links.merge(&Timeline::with_interval(moved.interval()));
    moved.merge(&Timeline::with_interval(links.interval()));
    let mut series = utilisation(&links, &whole.links, &world.network, from, to);
    let interval = seconds(moved.interval());
    let mut rates: Vec<f64> = intervals(&moved, from, to)
        .map(|(_, row)| row[0] as f64 / 1e9 / interval)
        .collect();
    rates.resize(series.seconds.len(), 0.0);
    series
        .columns
        .insert(0, (format!("{}_GBps", counted.access.name()), rates));
    series
}
