//! Building and running the simulation of a scenario.

use super::error::StudyError;
use super::options::SimOptions;
use crate::collective_job::CollectiveNodes;
use crate::event::PacketKind;
use crate::group::Group;
use crate::io::Io;
use crate::observe::{Delays, IoObserver, Observed, observed};
use crate::results::RunCost;
use crate::scenario::Scenario;
use crate::traffic::Traffic;
use forebay_engine::Simulation;
use forebay_network::{DeliveryStatistics, Fabric, lookahead};
use forebay_units::Time;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Receives the simulated time, the share of the work that is done (0 to 1), and the number of events
/// so far. Returning `false` ends the simulation with [`StudyError::Interrupted`].
pub type Progress<'a> = &'a (dyn Fn(Time, f64, u64) -> bool + Sync);

/// A simulation that has ended.
pub(super) struct Outcome {
    pub groups: Vec<Group>,
    /// Time of the last event, ps.
    pub end: u64,
    /// Wall-clock time of the first event.
    pub started: Instant,
    pub cost: RunCost,
    pub delays: Option<Delays>,
    pub observed: Observed,
}

/// Runs a scenario to its end, where nothing is in flight.
pub(super) fn run(
    scenario: &Scenario,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<Outcome, StudyError> {
    let mut simulation = begin(scenario, options);
    add_jobs(&mut simulation, scenario, 0);
    finish(simulation, scenario, options, progress)
}

/// Simulates the traffic of a scenario until the time `until`, ps, which is the end of its warm-up.
pub(super) fn warm_up(
    scenario: &Scenario,
    options: &SimOptions,
    until: u64,
    progress: Progress<'_>,
) -> Result<Simulation<Group>, StudyError> {
    let mut simulation = begin(scenario, options);
    let stopped = AtomicBool::new(false);
    simulation.run_until(until, &|now, events| {
        let goes_on = progress(Time(now), 0.0, events);
        stopped.fetch_or(!goes_on, Ordering::Relaxed);
        goes_on
    });
    if stopped.into_inner() { Err(StudyError::Interrupted) } else { Ok(simulation) }
}

/// Runs a scenario to its end after the warm-up of its traffic.
pub(super) fn run_after(
    mut simulation: Simulation<Group>,
    scenario: &Scenario,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<Outcome, StudyError> {
    simulation.for_each_partition(|_, group, _| {
        let traffic = group.traffic.iter_mut().zip(&scenario.traffic);
        traffic.for_each(|(traffic, job)| traffic.go_on_as(job));
    });
    let reached = simulation.statistics().last_event;
    add_jobs(&mut simulation, scenario, reached);
    finish(simulation, scenario, options, progress)
}

/// Runs a simulation to its end, where nothing is in flight.
fn finish(
    mut simulation: Simulation<Group>,
    scenario: &Scenario,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<Outcome, StudyError> {
    let started = Instant::now();
    let stopped = AtomicBool::new(false);
    let statistics = simulation.run(&|now, events| {
        let done = scenario.share_done(now).clamp(0.0, 1.0);
        let goes_on = progress(Time(now), done, events);
        stopped.fetch_or(!goes_on, Ordering::Relaxed);
        goes_on
    });
    if stopped.into_inner() {
        return Err(StudyError::Interrupted);
    }
    let mut sums = DeliveryStatistics::default();
    simulation.for_each_partition(|number, group, queue| {
        assert!(queue.is_empty(), "events left in group {number}");
        assert!(group.fabric.is_idle(), "packets stuck in group {number}");
        assert!(group.io.as_ref().is_none_or(Io::is_idle), "a process waits in group {number}");
        let nodes = group.collective.as_ref();
        assert!(nodes.is_none_or(CollectiveNodes::is_idle), "a node waits in group {number}");
        group.fabric.deliveries.iter().for_each(|d| sums.merge(d));
    });
    assert_eq!(sums.packets, sums.injected_packets, "packets lost");
    assert_eq!(sums.bytes, sums.injected_bytes, "bytes lost");
    // Deliveries may be announced: the last one can lie behind the last event.
    let end = statistics.last_event.max(sums.last);
    let cost = RunCost {
        wall_seconds: started.elapsed().as_secs_f64(),
        simulated_seconds: end as f64 * 1e-12,
        events: statistics.events,
        packets_delivered: sums.packets,
        threads: options.threads as u32,
        peak_rss_bytes: peak_rss(),
    };
    let mut groups = simulation.into_partitions();
    let (delays, observed) = observed(&scenario.observe, scenario, &mut groups, end);
    Ok(Outcome { groups, end, started, cost, delays, observed })
}

/// The groups of a scenario with the first events of its traffic.
fn begin(scenario: &Scenario, options: &SimOptions) -> Simulation<Group> {
    let (topology, network) = (&scenario.topology, &scenario.network);
    let groups = (0..topology.groups)
        .map(|group| Group {
            fabric: Fabric::new(topology.clone(), network.clone(), group, options.seed),
            traffic: Vec::new(),
            io: None,
            collective: None,
        })
        .collect();
    let mut simulation = Simulation::new(groups, lookahead(network), options.threads);
    simulation.for_each_partition(|number, group, queue| {
        let number = number as u16;
        if !scenario.traffic.is_empty() {
            group.fabric.announce_deliveries(PacketKind::Traffic.number());
        }
        let jobs = scenario.traffic.iter();
        group.traffic = jobs.map(|job| Traffic::new(job, topology, number, queue)).collect();
        if scenario.observe.is_any() {
            let probe = scenario.observe.probe(topology.groups, scenario.labels.as_deref());
            group.fabric.observe(&probe);
        }
    });
    simulation
}

/// Adds the first events of all other jobs. `reached` is the time of the last event that has run, ps.
fn add_jobs(simulation: &mut Simulation<Group>, scenario: &Scenario, reached: u64) {
    let topology = &scenario.topology;
    simulation.for_each_partition(|number, group, queue| {
        let number = number as u16;
        if let Some(job) = &scenario.collective {
            group.collective = Some(CollectiveNodes::new(job, topology, number, queue));
        }
        if !scenario.io.is_empty() {
            let io = Io::new(&scenario.io, &mut group.fabric, number, queue, reached);
            group.io = Some(io);
        }
        if scenario.observe.is_any()
            && let Some(io) = &mut group.io
        {
            io.observer = Some(Box::new(IoObserver::new(&scenario.observe, topology.groups)));
        }
    });
}

/// Largest resident set of this process so far, in bytes; 0 where the system does not report it.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
