//! Building and running the simulation of a scenario.

use super::error::StudyError;
use super::options::SimOptions;
use super::progress::Progress;
use crate::group::Group;
use crate::io::Io;
use crate::results::RunCost;
use crate::scenario::Scenario;
use crate::traffic::Traffic;
use forebay_engine::{Picoseconds, Simulation, Statistics};
use forebay_network::{DeliveryStatistics, Fabric, lookahead};
use forebay_units::Time;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The groups of a scenario with their first events.
pub(super) fn build(scenario: &Scenario, options: &SimOptions) -> Simulation<Group> {
    let (topology, network) = (&scenario.topology, &scenario.network);
    let groups = (0..topology.groups)
        .map(|group| Group {
            fabric: Fabric::new(topology.clone(), network.clone(), group, options.seed),
            traffic: None,
            io: None,
        })
        .collect();
    let mut simulation = Simulation::new(groups, lookahead(network), options.threads);
    simulation.for_each_partition(|number, group, queue| {
        let number = number as u16;
        if let Some(job) = &scenario.traffic {
            group.traffic = Some(Traffic::new(job, topology, number, queue));
        }
        if let Some(job) = &scenario.io {
            group.io = Some(Io::new(job, &group.fabric, number, queue));
        }
    });
    simulation
}

/// Forwards the engine's reports; `done` computes the share of the work from time and events.
struct Reporter<'a> {
    progress: &'a dyn Progress,
    done: &'a (dyn Fn(Picoseconds, u64) -> f64 + Sync),
    stopped: AtomicBool,
}

impl forebay_engine::Progress for Reporter<'_> {
    fn update(&self, now: Picoseconds, events: u64) -> bool {
        let done = (self.done)(now, events).clamp(0.0, 1.0);
        let go_on = self.progress.update(Time(now), done, events);
        if !go_on {
            self.stopped.store(true, Ordering::Relaxed);
        }
        go_on
    }
}

/// Runs a simulation to its end, where nothing is in flight.
pub(super) fn run(
    simulation: &mut Simulation<Group>,
    progress: &dyn Progress,
    done: &(dyn Fn(Picoseconds, u64) -> f64 + Sync),
) -> Result<Statistics, StudyError> {
    let reporter = Reporter { progress, done, stopped: AtomicBool::new(false) };
    let statistics = simulation.run(&reporter);
    if reporter.stopped.into_inner() {
        return Err(StudyError::Interrupted);
    }
    let mut sums = DeliveryStatistics::default();
    simulation.for_each_partition(|number, group, queue| {
        assert!(queue.is_empty(), "events left in group {number}");
        assert!(group.fabric.is_idle(), "packets stuck in group {number}");
        group.fabric.deliveries.iter().for_each(|d| sums.merge(d));
    });
    assert_eq!(sums.packets, sums.injected_packets, "packets lost");
    assert_eq!(sums.bytes, sums.injected_bytes, "bytes lost");
    Ok(statistics)
}

/// The cost of a run that began at `started`.
pub(super) fn run_cost(
    simulation: &mut Simulation<Group>,
    statistics: &Statistics,
    options: &SimOptions,
    started: Instant,
) -> RunCost {
    let mut packets = 0;
    simulation.for_each_partition(|_, group, _| {
        packets += group.fabric.deliveries.iter().map(|d| d.packets).sum::<u64>();
    });
    RunCost {
        wall_seconds: started.elapsed().as_secs_f64(),
        simulated_seconds: statistics.last_event as f64 * 1e-12,
        events: statistics.events,
        packets_delivered: packets,
        threads: options.threads as u32,
        peak_rss_bytes: peak_rss(),
    }
}

/// Largest resident set of this process so far, in bytes; 0 where the system does not report it.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
