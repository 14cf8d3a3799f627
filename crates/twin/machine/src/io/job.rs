//! The IOR job of a simulation: processes, instance, limits of request numbers.

use super::aggregators::Aggregators;
use super::pieces::Pieces;
use super::server::{ServerQueues, object_of};
use crate::mpi::Team;
use crate::phase_collector::PhaseCollector;
use crate::storage::Storage;
use forebay_machine_file::machine::{BurstBuffer, Client, Network, SharedWrites};
use forebay_network::Topology;
use forebay_units::Rate;
use forebay_workload::ior::{AccessPattern, Action, Api, FileId, Ior, Step};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Picoseconds in a second.
pub(crate) const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// The tag of each packet: the request it belongs to. The request's bytes follow from these numbers
/// and the job's access pattern, so that client and server compute them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTag {
    /// Number of the job among the I/O jobs of the simulation.
    pub job: u8,
    pub rank: u32,
    /// Call of the rank in this phase.
    pub call: u64,
    /// Request of the call; between a process and an aggregator, [`IoJob::number_of_window`].
    pub request: u32,
}

impl RequestTag {
    /// Numbers of jobs are below this number.
    pub const MAX_JOBS: u64 = 1 << 4;
    /// Ranks are below this number.
    pub const MAX_RANKS: u64 = 1 << 22;
    /// Calls of a rank in one phase are below this number.
    pub const MAX_CALLS: u64 = 1 << 24;
    /// Requests of a call are below this number.
    pub const MAX_REQUESTS: u64 = 1 << 14;

    pub fn pack(self) -> u64 {
        debug_assert!(u64::from(self.job) < Self::MAX_JOBS, "{self:?}");
        debug_assert!(u64::from(self.rank) < Self::MAX_RANKS, "{self:?}");
        debug_assert!(self.call < Self::MAX_CALLS, "{self:?}");
        debug_assert!(u64::from(self.request) < Self::MAX_REQUESTS, "{self:?}");
        (u64::from(self.job) << 60)
            | (u64::from(self.rank) << 38)
            | (self.call << 14)
            | u64::from(self.request)
    }

    pub fn unpack(bits: u64) -> Self {
        RequestTag {
            job: (bits >> 60) as u8,
            rank: ((bits >> 38) & (Self::MAX_RANKS - 1)) as u32,
            call: (bits >> 14) & (Self::MAX_CALLS - 1),
            request: (bits & (Self::MAX_REQUESTS - 1)) as u32,
        }
    }
}

/// Names of the devices that keep data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Devices {
    /// As a limiting resource.
    pub resource: &'static str,
    /// In texts.
    pub word: &'static str,
}

/// An IOR run on an instance of burst-buffer nodes, or on the parallel file system.
pub(crate) struct IoJob {
    /// Its number among the I/O jobs of the simulation.
    pub number: u8,
    /// Time at which its processes start, ps.
    pub start: u64,
    /// Greatest rate of its data at each storage node, in each direction together.
    pub rate_limit: Option<Rate>,
    /// The order of the jobs' requests at servers.
    pub server_queues: ServerQueues,
    /// The test as it is simulated.
    pub ior: Ior,
    /// Calls of the program that are one call of the simulated test.
    pub calls_joined: u64,
    pub steps: Vec<Step>,
    /// For repetition 0.
    pub pattern: AccessPattern,
    /// Node numbers of the job's nodes.
    pub nodes: Vec<u32>,
    /// Inverse of `nodes`: the index of a node in the job.
    pub index_of_node: FxHashMap<u32, u32>,
    /// Processes per node.
    pub ppn: u32,
    pub storage: Storage,
    /// The parameters of its servers, be they burst-buffer nodes or targets of the parallel file system.
    pub burst_buffer: BurstBuffer,
    /// The client, where it is the same on all types of nodes.
    pub client: Client,
    /// The clients of the types of nodes.
    pub clients: Vec<Client>,
    /// Index of each node's client, by the node's index in the job.
    pub client_of_node: Vec<u8>,
    /// Rate of the link of a node's interface.
    pub node_link: Rate,
    pub topology: Arc<Topology>,
    /// Position of each rank among the ranks of its group.
    pub slot_of_rank: Vec<u32>,
    /// The processes in collective operations.
    pub team: Arc<Team>,
    /// The processes that access the file in collective transfers.
    pub aggregators: Aggregators,
    /// Groups that have no ranks.
    pub groups_without_ranks: Vec<u16>,
    /// Least time of a message to another group, ps.
    pub lookahead: u64,
    /// Phases that have ended.
    pub phases: PhaseCollector,
    /// The machine's network.
    pub network: Arc<Network>,
    /// Report the use of each link.
    pub each_link: bool,
    /// The test stands for I/O that cannot be changed.
    pub is_given: bool,
    /// Bytes that all processes have moved so far, for progress reports only.
    pub bytes_done: AtomicU64,
}

impl IoJob {
    pub fn tasks(&self) -> u32 {
        self.pattern.tasks()
    }

    /// The machine's number of the node of a rank.
    pub fn node_of(&self, rank: u32) -> u32 {
        self.nodes[self.pattern.node_of(rank) as usize]
    }

    /// Rate of all links of a node, bytes per second.
    pub fn links_rate(&self, node: u32) -> f64 {
        self.node_link.0 as f64 * f64::from(self.topology.count_interfaces_of(node))
    }

    /// Slots of the ranks on a node of the job.
    pub fn slots_on(&self, node: u32) -> std::ops::Range<u32> {
        let first = self.slot_of_rank[(node * self.ppn) as usize];
        first..first + self.team.processes_on(node)
    }

    /// The client of a rank's node.
    pub fn client_of(&self, rank: u32) -> &Client {
        let node = self.pattern.node_of(rank) as usize;
        &self.clients[usize::from(self.client_of_node[node])]
    }

    /// Whether several processes write to one file.
    pub fn has_shared_file(&self) -> bool {
        !self.ior.file_per_process && self.tasks() > 1
    }

    /// Whether the processes of a node write to their shared file one after the other.
    pub fn writes_in_turn(&self) -> bool {
        self.client.shared_writes == SharedWrites::InTurn
            && self.has_shared_file()
            && !self.storage.is_parallel()
    }

    /// Whether transfers are collective. With one file per process each opens its own (IOR: on
    /// `MPI_COMM_SELF`).
    pub fn is_collective(&self) -> bool {
        self.ior.collective && self.ior.api == Api::MpiIo && !self.ior.file_per_process
    }

    /// The number in a tag of the `nth` window of an aggregator, different for all windows of the aggregators of
    /// one node.
    pub fn number_of_window(&self, aggregator_rank: u32, nth: u32) -> u32 {
        nth * self.aggregators.per_node() + aggregator_rank % self.ppn
    }

    /// The aggregator on a node of the job and its window: the inverse of `number_of_window`.
    pub fn window_of_number(&self, node: u32, number: u32) -> (u32, u32) {
        let per_node = self.aggregators.per_node();
        (node * self.ppn + number % per_node, number / per_node)
    }

    /// The server with the stripe that holds `offset`, by its index in the storage.
    pub fn server_of(&self, file: FileId, offset: u64) -> u32 {
        self.storage.server_of(file.0, offset)
    }

    /// The server of metadata operations on a file, by its index in the storage.
    pub fn metadata_server_of(&self, file: FileId) -> u32 {
        self.storage.metadata_server_of(file.0)
    }

    /// The name in results of the devices of the servers.
    pub fn devices(&self) -> Devices {
        match self.storage.is_parallel() {
            true => Devices { resource: "ost", word: "disks" },
            false => Devices { resource: "ssd", word: "flash" },
        }
    }

    /// The number in its tag of a request without data, which is the `nth` of its call. Behind an LNET
    /// node are several servers: it names the request's own.
    pub fn number_of(&self, server: u32, nth: u32) -> u32 {
        if self.storage.is_parallel() { server } else { nth }
    }

    /// The object that holds `offset` of a file on the file's server.
    pub fn object_of(&self, offset: u64) -> u32 {
        object_of(offset, self.storage.data_servers().len() as u64, &self.burst_buffer)
    }

    /// End of the range of a file from `offset` on that is in one object because of its place in stripes.
    pub fn end_in_object(&self, offset: u64) -> u64 {
        let make = &self.burst_buffer;
        let end_of = |unit: u64| (offset / unit.max(1)).saturating_add(1).saturating_mul(unit);
        let of_stripe = if self.storage.servers_of_file() > 1 { make.stripe.0 } else { u64::MAX };
        let of_object = if make.objects_per_file > 1 { make.substripe.0 } else { u64::MAX };
        end_of(of_stripe).min(end_of(of_object))
    }

    /// The requests of a transfer.
    pub fn pieces(&self, offset: u64, bytes: u64) -> Pieces {
        Pieces {
            offset,
            end: offset + bytes,
            stripe: self.burst_buffer.stripe.0,
            substripe: self.burst_buffer.substripe.0,
            max_request: self.client.max_request.0,
        }
    }

    /// The most bytes of one request.
    pub fn largest_request(&self) -> u64 {
        let BurstBuffer { stripe, substripe, .. } = self.burst_buffer;
        self.client.max_request.0.min(stripe.0).min(substripe.0).max(1)
    }

    /// Bytes that all processes move in all phases, unless phases are skipped or stopped.
    pub fn bytes_in_total(&self) -> f64 {
        let phases = self.steps.iter().filter(|s| matches!(s.action, Action::Transfer(_))).count();
        (self.pattern.bytes_per_rank() * u64::from(self.tasks())) as f64 * phases as f64
    }

    /// Counts bytes for progress reports.
    pub fn count_done(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The step after the phase that begins at step `at` if the phase is skipped because the test's
    /// minutes (`-T`) have passed at `now`; `None` if the phase runs.
    pub fn skip_late_phase(&self, at: u32, now: u64) -> Option<u32> {
        let minutes = self.ior.max_minutes.filter(|&m| m > 0)?;
        if now < u64::from(minutes).saturating_mul(60 * PS_PER_SECOND) {
            return None;
        }
        let from = at as usize + 1;
        let end = self.steps[from..].iter().position(|s| matches!(s.action, Action::End(_)))?;
        Some((from + end + 1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_tag_unpacks_what_was_packed() {
        let tag = RequestTag {
            job: 15,
            rank: 0x3f_fffe,
            call: RequestTag::MAX_CALLS - 2,
            request: 0x3ffe,
        };
        assert_eq!(RequestTag::unpack(tag.pack()), tag);
    }
}
