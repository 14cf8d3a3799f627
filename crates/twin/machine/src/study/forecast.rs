//! The work of a simulation, estimated before it begins.
//!
//! A packet costs an event at each router, one at its destination, and, for the credits of the
//! buffers that it leaves, up to one for each: credits that return together share an event, so that
//! half of them is assumed. Its number of routers is that of minimal paths between nodes of the job
//! and the nodes that it talks to, of Valiant routing that of two such paths. Requests of IOR cost
//! packets without data, and events of client and server.

use super::error::StudyError;
use super::interference::InterferenceStudy;
use super::ior::ior_scenario;
use super::options::SimOptions;
use super::traffic::traffic_job;
use crate::io::IoJob;
use crate::scenario::Scenario;
use crate::traffic::Generation;
use forebay_machine_file::machine::{Machine, Routing};
use forebay_network::Topology;
use forebay_random::{RandomStream, below, stream_label};
use forebay_workload::ior::Ior;
use forebay_workload::traffic::TrafficSpec;

/// Pairs of nodes from which the mean length of paths is estimated.
const PAIRS: u64 = 1_000;
/// Events of client and server for a request with data, and for one without.
const EVENTS_PER_REQUEST: f64 = 6.0;
const EVENTS_PER_OPERATION: f64 = 3.0;
/// Share of the credits that return with an event of their own.
const CREDITS_APART: f64 = 0.5;

/// The estimated work of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Packets.
    pub packets: f64,
    /// Events.
    pub events: f64,
}

impl Forecast {
    /// The work of two simulations.
    pub fn and(self, other: Forecast) -> Forecast {
        Forecast { packets: self.packets + other.packets, events: self.events + other.events }
    }

    /// The work of `packets` packets that cross `hops` links between routers.
    fn of_packets(packets: f64, hops: f64) -> Forecast {
        let credits = CREDITS_APART * (hops + 1.0);
        Forecast { packets, events: packets * (hops + 2.0 + credits) }
    }
}

/// Estimates the work of [`simulate_ior`](super::simulate_ior).
///
/// # Errors
/// As [`simulate_ior`](super::simulate_ior).
pub fn forecast_ior(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<Forecast, StudyError> {
    Ok(forecast_of(&ior_scenario(machine, ior, nodes, ppn, options)?, options))
}

/// The work of a scenario with an IOR job.
pub(super) fn forecast_of(scenario: &Scenario, options: &SimOptions) -> Forecast {
    let Some(job) = scenario.io.first() else { unreachable!("a scenario without an IOR job") };
    forecast_of_job(scenario, job, options)
}

/// The work of one of the IOR jobs of a scenario.
pub(super) fn forecast_of_job(scenario: &Scenario, job: &IoJob, options: &SimOptions) -> Forecast {
    let ior = &job.ior;
    let routing = scenario.network.routing.algorithm;
    let servers: Vec<u32> = job.storage.data_servers().iter().map(|server| server.node).collect();
    let hops = mean_hops(&scenario.topology, &job.nodes, &servers, routing, options);
    let packet_bytes = scenario.network.packet.0;
    let (tasks, requests) = (f64::from(job.tasks()), requests(job));
    let data_packets = (job.pattern.total_bytes() as f64 / packet_bytes as f64).max(requests);
    let mut sum = Forecast { packets: 0.0, events: 0.0 };
    // A write has request, call for data, and acknowledgement; a read has its request.
    for (runs, control) in [(ior.write, 3.0), (ior.read, 1.0)] {
        if !runs {
            continue;
        }
        let repetitions = f64::from(ior.repetitions);
        // Open and close, with an answer each.
        let operations = 2.0 * tasks * repetitions;
        let packets = (data_packets + control * requests) * repetitions + 2.0 * operations;
        let mut phase = Forecast::of_packets(packets, hops);
        phase.events += requests * repetitions * EVENTS_PER_REQUEST;
        phase.events += operations * EVENTS_PER_OPERATION;
        sum = sum.and(phase);
    }
    sum
}

/// Requests with data in one phase.
fn requests(job: &IoJob) -> f64 {
    let unit = job.largest_request();
    let transfers = f64::from(job.tasks()) * job.pattern.transfers_per_rank() as f64;
    (job.pattern.total_bytes() as f64 / unit as f64).max(transfers)
}

/// Estimates the work of [`simulate_traffic`](super::simulate_traffic).
///
/// # Errors
/// As [`simulate_traffic`](super::simulate_traffic).
pub fn forecast_traffic(
    machine: &Machine,
    spec: &TrafficSpec,
    options: &SimOptions,
) -> Result<Forecast, StudyError> {
    let idle = options.idle_scenario(machine)?;
    let mut placer = options.placer(machine)?;
    let count = options.traffic_nodes.unwrap_or(placer.free_nodes());
    let nodes = placer.place_job(count, options.placement)?;
    traffic(machine, &idle, spec, nodes, options)
}

/// The work of traffic among `nodes`.
pub(super) fn traffic(
    machine: &Machine,
    scenario: &Scenario,
    spec: &TrafficSpec,
    nodes: Vec<u32>,
    options: &SimOptions,
) -> Result<Forecast, StudyError> {
    let generation = Generation::Messages(spec.messages);
    let job = traffic_job(machine, spec, nodes, options.seed, generation, None)?;
    let routing = scenario.network.routing.algorithm;
    let hops = mean_hops(&scenario.topology, &job.nodes, &job.nodes, routing, options);
    let of_message = spec.message.0.div_ceil(scenario.network.packet.0);
    let messages = job.nodes.len() as f64 * spec.messages as f64;
    let mut forecast = Forecast::of_packets(messages * of_message as f64, hops);
    // An event for each message; none at the destination, where no node reacts.
    forecast.events += messages - forecast.packets;
    Ok(forecast)
}

/// Estimates the work of [`simulate_interference`](super::simulate_interference): IOR twice, and twice
/// the traffic of as long as IOR takes at the rates of its clients and servers.
///
/// # Errors
/// As [`simulate_interference`](super::simulate_interference).
pub fn forecast_interference(
    machine: &Machine,
    study: &InterferenceStudy,
    options: &SimOptions,
) -> Result<Forecast, StudyError> {
    let InterferenceStudy { ior, ior_nodes, ppn, .. } = study;
    let of_ior = forecast_ior(machine, ior, *ior_nodes, *ppn, options)?;
    let scenario = ior_scenario(machine, ior, *ior_nodes, *ppn, options)?;
    let mut placer = options.placer(machine)?;
    placer.place_job(*ior_nodes, options.placement)?;
    let nodes = placer.place_job(study.traffic_nodes, study.traffic_placement)?;
    let seconds = scenario.io.first().map_or(0.0, |job| least_seconds(job, ior));
    let bytes = seconds * study.traffic.load * machine.link_rate(&nodes).0 as f64;
    let messages = (bytes / study.traffic.message.0 as f64).ceil().max(1.0) as u64;
    let spec = TrafficSpec { messages, ..study.traffic.clone() };
    let of_traffic = traffic(machine, &scenario, &spec, nodes, options)?;
    Ok(of_ior.and(of_ior).and(of_traffic).and(of_traffic))
}

/// The time of all phases at the rates of the clients or of the flash, in seconds.
fn least_seconds(job: &IoJob, ior: &Ior) -> f64 {
    let cards = job.storage.data_servers().len() as f64 * f64::from(job.burst_buffer.cards);
    let nodes = job.nodes.len() as f64;
    let time = |card: u64, client: u64| {
        let rate = (card as f64 * cards).min(client as f64 * nodes).max(1.0);
        job.pattern.total_bytes() as f64 * f64::from(ior.repetitions) / rate
    };
    let (make, client) = (&job.burst_buffer, &job.client);
    let write = time(make.card_write.0, client.write_rate.0);
    let read = time(make.card_read.0, client.read_rate.0);
    f64::from(u8::from(ior.write)) * write + f64::from(u8::from(ior.read)) * read
}

/// Mean number of links between the routers of `from` and `to` on the paths of a routing algorithm,
/// of a sample of pairs.
fn mean_hops(
    topology: &Topology,
    from: &[u32],
    to: &[u32],
    routing: Routing,
    options: &SimOptions,
) -> f64 {
    let random = RandomStream::of_unit(options.seed, stream_label("forecast"), 0);
    let pick = |nodes: &[u32], draw: u64| {
        let index = below(random.at(draw), nodes.len().max(1) as u64) as usize;
        nodes.get(index).map_or((0, 0), |node| {
            let location = topology.location(*node);
            (location.group, location.router)
        })
    };
    let pair = |i: u64| topology.links_between(pick(from, 2 * i), pick(to, 2 * i + 1));
    let minimal = (0..PAIRS).map(pair).sum::<u32>() as f64 / PAIRS as f64;
    match routing {
        Routing::Valiant => 2.0 * minimal,
        Routing::Minimal | Routing::UgalL | Routing::ProgressiveAdaptive => minimal,
    }
}
