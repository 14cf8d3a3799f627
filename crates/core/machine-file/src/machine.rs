//! A machine: network, nodes on its routers, burst buffers, clients.

use crate::network::named;
pub use crate::network::{
    AdaptiveBias, Arrangement, Detour, InputQueues, LONGEST_PACKET_TIME, LateDetour, LinkClass,
    LinkSpec, MAX_PORTS, Network, NicSpec, Plugging, Routing, RoutingSpec, Structure,
};
pub use crate::pfs::{Lustre, ParallelFileSystem, ProcessRates};
use forebay_policy::layout::StripeOrder;
use forebay_units::{Bytes, Rate, Time};
use serde::Serialize;

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// Runs jobs; its DVS-like client reaches the burst buffers.
    Compute,
    /// Carries flash and serves it (a DataWarp node).
    BurstBuffer,
    /// Forwards to the parallel file system (a Lustre network router).
    Lnet,
    /// Login, management, scheduler: without simulated traffic.
    Service,
}

/// One burst-buffer node: NIC, server software, flash.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BurstBuffer {
    /// Rate at which the server's data path moves payload between NIC and memory, each way.
    pub data_rate: Rate,
    /// Serial cost of receiving one request and passing it to a thread.
    pub dispatch: Time,
    /// Server threads; each holds one request from dispatch to completion.
    pub threads: u32,
    /// Rate at which one thread copies between its buffer and the page cache.
    pub copy_rate: Rate,
    /// Time for which a write holds the exclusive lock of its object besides that of the copy into
    /// the page cache (extent allocation); flash is written afterwards.
    pub lock_hold: Time,
    /// Additional time of a write to an object whose last writer was another compute node.
    pub lock_handover: Time,
    /// Rate at which such a write moves its bytes in this time, besides; `None`: the time does not depend
    /// on them.
    pub handover_rate: Option<Rate>,
    /// Block of the server's file system. In a shared file, a write that covers only a part of a
    /// block reads the block from flash first.
    pub block: Bytes,
    /// Most dirty data in the page cache of the node, where writes complete; those beyond it wait until
    /// data have been flushed. 0: a write completes when it is on flash.
    pub dirty_limit: Bytes,
    /// Dirty data from which on a thread of the node flushes them.
    pub dirty_background: Bytes,
    /// Cost, to the thread that flushes it, of an extent that does not continue the one before it.
    pub extent_cost: Time,
    /// Flushes in flight at most.
    pub flush_depth: u32,
    /// Cost of an fsync at one server, besides the waits for a thread and for flushes.
    pub sync: Time,
    /// Metadata operations (open, close, stat) per second of one server.
    pub metadata_rate: u32,
    /// SSD cards in the node.
    pub cards: u32,
    /// Controllers on each card.
    pub controllers_per_card: u32,
    /// Flash channels behind each controller.
    pub channels_per_controller: u32,
    /// Sequential read rate of one card.
    pub card_read: Rate,
    /// Sequential write rate of one card.
    pub card_write: Rate,
    /// 4 KiB random reads per second of one card.
    pub card_read_iops: u64,
    /// 4 KiB random writes per second of one card.
    pub card_write_iops: u64,
    /// Idle time of a controller's channels between two commands.
    pub command_gap: Time,
    /// Latency of one read command, in addition to its transfer time.
    pub read_latency: Time,
    /// Latency of one write command, in addition to its transfer time.
    pub write_latency: Time,
    /// Capacity of one card.
    pub card_capacity: Bytes,
    /// Granularity of allocations: capacities are rounded up to multiples of it; `None` if it is not
    /// published.
    pub granularity: Option<Bytes>,
    /// Length of a file's stripe on one node.
    pub stripe: Bytes,
    /// Order of a file's stripes over the nodes of an instance.
    pub stripe_order: StripeOrder,
    /// Length of a run of a file's bytes on one node that lie in one object.
    pub substripe: Bytes,
    /// Objects of a file on one node, each with one lock; substripes go to them in turn.
    pub objects_per_file: u32,
    /// Length of a run of a file's bytes on one SSD controller.
    pub flash_stripe: Bytes,
}

impl BurstBuffer {
    /// Additional time of a write of `bytes` to an object whose last writer was another compute node.
    pub fn handover_time(&self, bytes: Bytes) -> Time {
        let moved = self.handover_rate.map_or(Time::ZERO, |rate| rate.time_for(bytes));
        Time(self.lock_handover.0.saturating_add(moved.0))
    }
}

/// The DVS-like client on a compute node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Client {
    /// Type of the nodes (`haswell`); empty if the machine has one type.
    pub name: String,
    /// Payload rate at which one node's client sends data of writes, for all its processes.
    pub write_rate: Rate,
    /// Payload rate at which one node's client takes in data of reads, for all its processes.
    pub read_rate: Rate,
    /// Rates at which the client moves the data of one process; on the parallel file system only.
    #[serde(skip_serializing_if = "ProcessRates::is_unlimited")]
    pub process: ProcessRates,
    /// Maximum number of requests of one node in flight, for all its processes.
    pub requests_per_node: u32,
    /// Last-level cache of the node's processors.
    pub cache: Bytes,
    /// Share in percent of `write_rate` and `read_rate` at which data move if the buffers of the
    /// node's processes do not fit the cache together.
    pub uncached_percent: u32,
    /// Software cost of one application call (system call to request on the wire, and back).
    pub call_overhead: Time,
    /// Maximum request; longer transfers are split into concurrent requests, as are those of several
    /// stripes or substripes.
    pub max_request: Bytes,
    /// Maximum number of requests of one call in flight.
    pub requests_in_flight: u32,
    /// Size of a request or acknowledgement on the wire.
    pub control_message: Bytes,
    /// Buffer of an aggregator of collective MPI-IO.
    pub collective_buffer: Bytes,
    /// Number of aggregators of collective MPI-IO.
    pub aggregators: Aggregators,
    /// Writes of a node's processes to one file of the burst buffer.
    pub shared_writes: SharedWrites,
    /// Rate at which a process copies data of others on its node, and combines vectors of an MPI
    /// reduction.
    pub copy_rate: Rate,
    /// Time of a process to send an MPI message or to receive one, without the network's.
    pub mpi_overhead: Time,
    /// Time that a round of a collective operation takes a process beyond sending a message and
    /// receiving one.
    pub collective_round: Time,
    /// Latency of a message between processes of a node.
    pub shared_memory_latency: Time,
    /// Size on the wire of an MPI message without data, and the least of any.
    pub mpi_envelope: Bytes,
    /// Longest MPI message, with its envelope, that is sent before the receiver asks for it.
    pub eager_limit: Bytes,
}

/// The number of aggregators of collective MPI-IO, the processes that access the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregators {
    /// One on each node: the default of ROMIO.
    #[default]
    PerNode,
    /// One for each server that has stripes of the file, at most one a process: the default of Cray's MPI.
    PerStripe,
}

named!(Aggregators: PerNode "per-node", PerStripe "per-stripe");

/// The writes of a node's processes to one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedWrites {
    /// At the same time (the mount option `parallelwrite` of DVS).
    #[default]
    Parallel,
    /// One call after the other: a process has the lock of the file's inode until its call is done (DVS without that
    /// option).
    InTurn,
}

named!(SharedWrites: Parallel "parallel", InTurn "in-turn");

/// Compute nodes of another type than the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientType {
    /// These are the compute nodes of the groups from this one
    pub first_group: u32,
    /// to this one.
    pub last_group: u32,
    /// Their number.
    pub nodes: u32,
    /// Their client. All but name, rates, requests per node, and the costs of calls and MPI messages
    /// is equal for all types.
    pub client: Client,
}

/// One node of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its role.
    pub kind: NodeKind,
    /// Its router: group × routers per group + chassis × routers per chassis + slot (or the leaf). The
    /// first one if its interfaces are on several.
    pub router: u32,
    /// Its network interfaces.
    pub interfaces: u8,
    /// Neighbouring routers, from `router` on, that its interfaces are on in turn.
    pub routers: u8,
}

impl Node {
    /// A node with one network interface.
    pub fn new(kind: NodeKind, router: u32) -> Node {
        Node { kind, router, interfaces: 1, routers: 1 }
    }

    /// The router of each of its interfaces.
    pub fn routers_of_interfaces(&self) -> impl Iterator<Item = u32> {
        let (first, count) = (self.router, u32::from(self.routers));
        (0..u32::from(self.interfaces)).map(move |i| first + i % count)
    }
}

/// The source of a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Provenance {
    /// Dotted key in the machine file, as `network.rank1.rate`.
    pub key: String,
    /// The value as written.
    pub value: String,
    /// Document or data sheet.
    pub source: String,
    /// Id of the document in `[sources]`; `None` for an assumption.
    pub source_id: Option<String>,
    /// The measurement to which the number was fitted (an id of `validation/published.csv`).
    pub calibrated: Option<String>,
    /// The measurements (ids of `validation/published.csv`) that were known when the number was
    /// chosen, and that it decides.
    pub settled_in_view: Vec<String>,
    /// Name of the base that the machine file has the number from; `None`: it is the file's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

/// A file that a machine was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name, without a path.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A valid machine: every index is in range, every count is consistent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Short name (`trinity-phase2`).
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Modelling choices, and inconsistencies of the sources.
    pub notes: String,
    /// The interconnect.
    pub network: Network,
    /// All nodes by number; numbers ascend router by router.
    #[serde(skip)]
    pub nodes: Vec<Node>,
    /// The burst-buffer nodes, if the machine has any.
    pub burst_buffer: Option<BurstBuffer>,
    /// The client on the compute nodes, except those of `client_types`.
    pub client: Client,
    /// Compute nodes of other types.
    pub client_types: Vec<ClientType>,
    /// The parallel file system.
    pub pfs: Option<ParallelFileSystem>,
    /// Source of every number.
    pub provenance: Vec<Provenance>,
    /// The files from which it was read: the machine file, its bases under names of their own, and its node map.
    #[serde(skip)]
    pub files: Vec<SourceFile>,
}

named!(NodeKind: Compute "compute", BurstBuffer "burst-buffer", Lnet "lnet", Service "service");

impl Machine {
    /// Routers in one group.
    pub fn routers_per_group(&self) -> u32 {
        self.network.routers_per_group()
    }

    /// Routers in all groups, without the core routers of a fat tree.
    pub fn routers(&self) -> u32 {
        self.network.groups * self.routers_per_group()
    }

    /// The group of a node.
    pub fn group_of(&self, node: u32) -> u32 {
        self.nodes[node as usize].router / self.routers_per_group()
    }

    /// The numbers of all nodes of one kind, in ascending order.
    pub fn nodes_of_kind(&self, kind: NodeKind) -> Vec<u32> {
        (0..).zip(&self.nodes).filter(|(_, n)| n.kind == kind).map(|(i, _)| i).collect()
    }

    /// The clients of the types of compute nodes, each with the numbers of the type's nodes in
    /// ascending order.
    pub fn clients(&self) -> Vec<(&Client, Vec<u32>)> {
        let mut clients: Vec<(&Client, Vec<u32>)> = vec![(&self.client, Vec::new())];
        clients.extend(self.client_types.iter().map(|t| (&t.client, Vec::new())));
        for node in self.nodes_of_kind(NodeKind::Compute) {
            let group = self.group_of(node);
            let of_type = |t: &ClientType| (t.first_group..=t.last_group).contains(&group);
            let index = self.client_types.iter().position(of_type).map_or(0, |i| i + 1);
            clients[index].1.push(node);
        }
        clients
    }

    /// The numbers of the compute nodes of a type, in ascending order; empty for an unknown type.
    pub fn nodes_of_type(&self, name: &str) -> Vec<u32> {
        let of_type = self.clients().into_iter().find(|(client, _)| client.name == name);
        of_type.map(|(_, nodes)| nodes).unwrap_or_default()
    }

    /// Rate of all links of a node; of `nodes`, the one with the fewest.
    pub fn link_rate(&self, nodes: &[u32]) -> Rate {
        let interfaces = nodes.iter().map(|node| self.nodes[*node as usize].interfaces).min();
        self.network.node.rate.times(interfaces.unwrap_or(1).into())
    }

    /// Number of nodes of one kind.
    pub fn count_nodes(&self, kind: NodeKind) -> usize {
        self.nodes.iter().filter(|n| n.kind == kind).count()
    }
}
