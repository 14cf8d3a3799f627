//! The parallel file system of a machine.

use forebay_units::{Bytes, Rate, Time};
use serde::Serialize;
use std::collections::BTreeMap;

/// The parallel file system behind the LNET nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParallelFileSystem {
    /// Name (Lustre).
    pub name: String,
    /// Peak aggregate rate.
    pub rate: Rate,
    /// Capacity.
    pub capacity: Bytes,
    /// Object storage targets, 0 if not published.
    pub osts: u32,
    /// Its parts, as far as a simulation needs them; `None`: it cannot be simulated.
    pub lustre: Option<Lustre>,
}

/// Rates at which a client moves the data of one process, one request after the other: the process's own copies
/// and the pages of its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessRates {
    /// Of writes; `None`: that of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Rate>,
    /// Of reads; `None`: that of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Rate>,
}

impl ProcessRates {
    /// Whether a process has no limit of its own.
    pub fn is_unlimited(&self) -> bool {
        *self == ProcessRates::default()
    }
}

/// The parts of a Lustre file system: clients, LNET routers, servers, targets, locks, layout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lustre {
    /// Payload rate at which one node's client sends data of writes, for all its processes.
    pub write_rate: Rate,
    /// Payload rate at which one node's client takes in data of reads, for all its processes.
    pub read_rate: Rate,
    /// Rates at which the client moves the data of one process.
    #[serde(skip_serializing_if = "ProcessRates::is_unlimited")]
    pub process: ProcessRates,
    /// The same on types of nodes that differ in them, by the names of their clients.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub process_of_types: BTreeMap<String, ProcessRates>,
    /// Cost of one call of a program, besides the data's.
    pub call_overhead: Time,
    /// Bytes of a process's file that its client holds for write-back, or reads ahead: consecutive
    /// calls move them together.
    pub window: Bytes,
    /// Bytes of a request for data.
    pub max_rpc: Bytes,
    /// Requests of a process in flight to one target.
    pub rpcs_in_flight: u32,
    /// Rate at which an LNET router forwards data, each way.
    pub router_rate: Rate,
    /// Time of a message through a router and the storage network, one way.
    pub router_latency: Time,
    /// Object storage targets of one object storage server.
    pub targets_per_server: u32,
    /// Rate at which a server moves data between the storage network and its targets, each way.
    pub server_rate: Rate,
    /// Serial cost of a request at its target's server.
    pub dispatch: Time,
    /// Threads of a server for the requests of one target.
    pub threads: u32,
    /// Sequential write rate of a target.
    pub target_write: Rate,
    /// Sequential read rate of a target.
    pub target_read: Rate,
    /// Writes of one command a second of a target, at most.
    pub target_write_iops: u64,
    /// Reads of one command a second of a target, at most.
    pub target_read_iops: u64,
    /// Commands on which the disks of a target work at the same time.
    pub target_channels: u32,
    /// Latency of a command, in addition to its transfer time.
    pub target_latency: Time,
    /// Time of the messages to and from the clients that hold locks on the extent of a request, when
    /// these are called back; without the time until their data are on disk.
    pub lock_callback: Time,
    /// Metadata servers; files are distributed over them.
    pub metadata_servers: u32,
    /// Opens, creates and closes a second of a metadata server.
    pub metadata_rate: u32,
    /// Bytes of a stripe, where the test does not say.
    pub stripe: Bytes,
    /// Targets of a file, where the test does not say.
    pub stripe_count: u32,
}

impl Lustre {
    /// The rates of one process on the nodes of a type, by the name of their client.
    pub fn process_rates(&self, client: &str) -> ProcessRates {
        self.process_of_types.get(client).copied().unwrap_or(self.process)
    }
}
