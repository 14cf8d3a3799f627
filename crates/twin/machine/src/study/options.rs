//! Options of a simulation that neither the machine file nor the workload determines.

use super::error::StudyError;
use super::logged::LogFlush;
use crate::io::ServerQueues;
use crate::observe::ObserveOptions;
use crate::scenario::Scenario;
use crate::storage::FileSystem;
use forebay_machine_file::machine::{LONGEST_PACKET_TIME, Machine, NodeKind, Routing};
use forebay_network::Topology;
use forebay_units::Bytes;
use forebay_workload::placement::{Placement, Placer};
use std::sync::Arc;

/// The level of detail of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fidelity {
    /// Each packet at each link.
    #[default]
    Packet,
    /// Max-min fair rates.
    Flow,
    /// Packets if their events are estimated to be at most [`Fidelity::MOST_EVENTS`], or if flows cannot
    /// represent the test; else flows.
    Auto,
}

impl Fidelity {
    /// Events up to which [`Fidelity::Auto`] simulates packets: about ten seconds on one core.
    pub const MOST_EVENTS: f64 = 50e6;

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Fidelity::Packet => "packet",
            Fidelity::Flow => "flow",
            Fidelity::Auto => "auto",
        }
    }

    /// This fidelity, or the one chosen for [`Fidelity::Auto`]: packets if their `events` are at most
    /// [`Fidelity::MOST_EVENTS`] or if flows are impossible, else flows. `check` is the result of asking
    /// whether flows are possible.
    ///
    /// # Errors
    /// That of `check` for [`Fidelity::Flow`], and that of `events`.
    pub(super) fn chosen(
        self,
        check: &Result<(), StudyError>,
        events: impl FnOnce() -> Result<f64, StudyError>,
    ) -> Result<Fidelity, StudyError> {
        match self {
            Fidelity::Packet => Ok(Fidelity::Packet),
            Fidelity::Flow => check.clone().map(|()| Fidelity::Flow),
            Fidelity::Auto if check.is_err() || events()? <= Fidelity::MOST_EVENTS => {
                Ok(Fidelity::Packet)
            }
            Fidelity::Auto => Ok(Fidelity::Flow),
        }
    }
}

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Threads; results do not depend on them.
    pub threads: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// Routing algorithm; `None`: the machine's.
    pub routing: Option<Routing>,
    /// Placement of the job's nodes.
    pub placement: Placement,
    /// Packet size; `None`: the machine's.
    pub packet: Option<Bytes>,
    /// Burst-buffer nodes of the instance; `None`: all of the machine.
    pub burst_buffers: Option<u32>,
    /// Nodes of a traffic study; `None`: all that jobs may get.
    pub traffic_nodes: Option<u32>,
    /// First and last group of the nodes that jobs may get; `None`: all groups.
    pub groups: Option<(u32, u32)>,
    /// Type of the nodes that jobs may get, as named in the machine file; `None`: all types.
    pub node_kind: Option<String>,
    /// Report the use of each link.
    pub each_link: bool,
    /// Observation of single packets and requests.
    pub observe: ObserveOptions,
    /// The order in which servers serve the requests of several jobs.
    pub server_queues: ServerQueues,
    /// The file system of IOR's files.
    pub file_system: FileSystem,
    /// When the log of MPI-IO is applied to the file; `None`: the test writes without a log. Of IOR alone.
    pub log: Option<LogFlush>,
    /// Level of detail; those that a study cannot have are errors.
    pub fidelity: Fidelity,
    /// The test stands for I/O that cannot be changed: warnings and errors have no remedies in IOR's options.
    pub is_given: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            threads: 1,
            seed: 1,
            routing: None,
            placement: Placement::Contiguous,
            packet: None,
            burst_buffers: None,
            traffic_nodes: None,
            groups: None,
            node_kind: None,
            each_link: false,
            observe: ObserveOptions::default(),
            server_queues: ServerQueues::default(),
            file_system: FileSystem::default(),
            log: None,
            fidelity: Fidelity::default(),
            is_given: false,
        }
    }
}

impl SimOptions {
    /// Places jobs on the selected nodes of a machine.
    pub(super) fn placer(&self, machine: &Machine) -> Result<Placer, StudyError> {
        let mut placer = Placer::new(machine, self.seed);
        if let Some((first, last)) = self.groups {
            if first > last || last >= machine.network.groups {
                return Err(StudyError::Machine(format!(
                    "groups {first} to {last}: {} has the groups 0 to {}",
                    machine.name,
                    machine.network.groups - 1
                )));
            }
            placer.keep_groups(first, last);
        }
        if let Some(kind) = &self.node_kind {
            let nodes = machine.nodes_of_type(kind);
            if kind.is_empty() || nodes.is_empty() {
                return Err(StudyError::Machine(unknown_kind(machine, kind)));
            }
            placer.keep_nodes(&nodes);
            if placer.free_nodes() == 0 {
                let (first, last) = self.groups.unwrap_or_default();
                return Err(StudyError::Machine(format!(
                    "{} has no {kind} nodes in the groups {first} to {last}",
                    machine.name
                )));
            }
        }
        Ok(placer)
    }

    /// The machine with these options applied, without jobs.
    pub(super) fn idle_scenario(&self, machine: &Machine) -> Result<Scenario, StudyError> {
        let mut network = machine.network.clone();
        if let Some(routing) = self.routing {
            network.routing.algorithm = routing;
        }
        if let Some(packet) = self.packet {
            let links = [&network.node, &network.rank1, &network.rank2, &network.global];
            let smallest = links.iter().map(|l| l.buffer).min().unwrap_or_default();
            let least = machine.client.mpi_envelope;
            if packet < least || packet > smallest {
                return Err(StudyError::Machine(format!(
                    "packets of {packet} do not fit: messages without data have up to {least}, and \
                     the smallest buffer of {} has {smallest}; use packets of {least} to {smallest}",
                    machine.name
                )));
            }
            let time = network.longest_packet_time(packet);
            if time > LONGEST_PACKET_TIME {
                return Err(StudyError::Machine(format!(
                    "a packet of {packet} occupies the slowest link of {} for {time}; use packets \
                     that take at most {LONGEST_PACKET_TIME}",
                    machine.name
                )));
            }
            network.packet = packet;
        }
        Ok(Scenario {
            topology: Arc::new(Topology::new(machine)),
            machine: Arc::new(machine.clone()),
            network: Arc::new(network),
            traffic: Vec::new(),
            io: Vec::new(),
            collective: None,
            each_link: self.each_link,
            observe: self.observe,
            labels: None,
        })
    }
}

/// The error for a type of nodes that a machine does not have.
fn unknown_kind(machine: &Machine, kind: &str) -> String {
    let name = &machine.name;
    let named: Vec<String> = machine
        .clients()
        .into_iter()
        .filter(|(client, _)| !client.name.is_empty())
        .map(|(client, nodes)| format!("{} ({} nodes)", client.name, nodes.len()))
        .collect();
    if named.is_empty() {
        let count = machine.count_nodes(NodeKind::Compute);
        return format!(
            "no compute nodes of type `{kind}`: the {count} compute nodes of {name} are of one type, \
             which has no name"
        );
    }
    format!("no compute nodes of type `{kind}`: {name} has {}", named.join(" and "))
}
