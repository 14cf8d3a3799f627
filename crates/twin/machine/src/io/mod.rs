//! IOR on burst buffers: client processes, servers with flash, and the messages between them.
//!
//! # The life of a write
//!
//! A process calls `write`; after the cost of the call its client sends *requests* of at most
//! `max_request` bytes, cut at the boundaries of stripes and sub-stripes, each to the server that
//! has the stripe. The server takes one request after another off the wire (dispatch) and gives
//! each to a free thread. The thread fetches the data from the client (a `Get` goes out, the
//! client's interface answers with the data) as the server's data path has time for it, takes
//! the lock of the file's object, writes to the SSD controller of the sub-stripe, acknowledges,
//! and is free again. The call returns when all its requests are acknowledged.
//!
//! # The life of a read
//!
//! The same, with the lock shared and the data read from flash before they go out over the data
//! path; the call returns when the last byte has come.
//!
//! Collective transfers (`-a MPIIO -c`) go through aggregators, which are clients as above: see
//! `collective.rs` for who accesses what, `client/exchange.rs` for how data come to them.

pub(crate) mod barrier;
pub(crate) mod client;
pub(crate) mod collective;
mod locks;
pub(crate) mod measure;
mod pieces;
pub(crate) mod server;
mod ssd;

pub(crate) use pieces::{Piece, Pieces};

use forebay_machine_file::machine::{BurstBuffer, Client};
use forebay_workload::ior::{AccessPattern, Api, FileId, Ior, Step};
use forebay_workload::random::{hash, stream_label};
use rustc_hash::FxHashMap;

/// `Packet::kind` of the messages: what a message asks for or brings.
pub(crate) mod kind {
    /// Client to server: write this piece.
    pub const WRITE: u8 = 1;
    /// Client to server: read this piece.
    pub const READ: u8 = 2;
    /// Client to server: make what was written durable.
    pub const SYNC: u8 = 3;
    /// Client to server: open, create, close or remove a file.
    pub const METADATA: u8 = 4;
    /// Server to client: send the data of this piece.
    pub const GET: u8 = 5;
    /// Client to server: the data.
    pub const WRITE_DATA: u8 = 6;
    /// Server to client: the data.
    pub const READ_DATA: u8 = 7;
    /// Server to client: done.
    pub const DONE: u8 = 8;
    /// Aggregator to a process: send your bytes of this window.
    pub const ASK: u8 = 9;
    /// Process to aggregator: the bytes.
    pub const SHARE: u8 = 10;
    /// Aggregator to a process: its bytes of a window.
    pub const DELIVER: u8 = 11;
}

/// Written on each packet: whose request it belongs to. What is asked for follows from these
/// numbers and the job's layout, which both sides know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub rank: u32,
    /// Call of the rank in this phase.
    pub call: u64,
    /// Request of the call; between a process and an aggregator, the aggregator's window.
    pub request: u32,
}

impl Tag {
    /// Most ranks.
    pub const RANKS: u64 = 1 << 24;
    /// Most calls of a rank in one phase.
    pub const CALLS: u64 = 1 << 28;
    /// Most requests of a call.
    pub const REQUESTS: u64 = 1 << 12;

    pub fn pack(self) -> u64 {
        (u64::from(self.rank) << 40) | (self.call << 12) | u64::from(self.request)
    }

    pub fn unpack(bits: u64) -> Self {
        Tag {
            rank: (bits >> 40) as u32,
            call: (bits >> 12) & (Self::CALLS - 1),
            request: (bits & (Self::REQUESTS - 1)) as u32,
        }
    }
}

/// An IOR run on an instance of burst-buffer nodes.
pub(crate) struct IoJob {
    pub ior: Ior,
    pub steps: Vec<Step>,
    /// For repetition 0.
    pub layout: AccessPattern,
    /// Node numbers of the job's nodes.
    pub nodes: Vec<u32>,
    /// The same the other way: which node of the job a node is.
    pub index_of_node: FxHashMap<u32, u32>,
    /// Processes a node.
    pub ppn: u32,
    /// Node numbers of the instance's burst-buffer nodes.
    pub servers: Vec<u32>,
    pub burst_buffer: BurstBuffer,
    pub client: Client,
    /// Position of each rank among the ranks of its group.
    pub slot_of_rank: Vec<u32>,
    /// Groups in which there are ranks.
    pub groups_with_ranks: u32,
    /// A barrier takes twice this, ps: up to the root and down again.
    pub barrier_hop: u64,
}

/// One step of a barrier's tree, ps: the MPI latency across Cori is 0.25 to 3.7 us (NERSC).
pub(crate) const MPI_LATENCY: u64 = 1_000_000;

impl IoJob {
    pub fn tasks(&self) -> u32 {
        self.layout.tasks()
    }

    pub fn node_of(&self, rank: u32) -> u32 {
        self.nodes[self.layout.node_of(rank) as usize]
    }

    /// Whether transfers are collective. A file that each process has to itself it also opens by
    /// itself (IOR: on `MPI_COMM_SELF`).
    pub fn is_collective(&self) -> bool {
        self.ior.collective && self.ior.api == Api::MpiIo && !self.ior.file_per_process
    }

    /// Aggregators of collective transfers: one a node.
    pub fn aggregators(&self) -> u32 {
        self.tasks().div_ceil(self.ppn.max(1))
    }

    /// The rank that is the aggregator of a node of the job.
    pub fn aggregator_on(&self, node: u32) -> u32 {
        node * self.ppn
    }

    /// Files begin at the instance's servers in turn.
    pub fn first_server(&self, file: FileId) -> usize {
        (file.0 % self.servers.len() as u64) as usize
    }

    /// The server (number within the instance) with the stripe that holds `offset`. Stripes go
    /// round the servers; each further round begins at another server, so that processes whose
    /// blocks in a shared file lie equally far apart do not all meet at the same few.
    pub fn server_of(&self, file: FileId, offset: u64) -> usize {
        let servers = self.servers.len() as u64;
        let stripe = offset / self.burst_buffer.stripe.0;
        let (round, within) = (stripe / servers, stripe % servers);
        let shift = if round == 0 {
            0
        } else {
            hash(file.0, stream_label("rounds"), round) % servers
        };
        ((file.0 % servers + within + shift) % servers) as usize
    }

    /// How a transfer is cut into requests.
    pub fn pieces(&self, offset: u64, bytes: u64) -> Pieces {
        Pieces {
            offset,
            end: offset + bytes,
            stripe: self.burst_buffer.stripe.0,
            substripe: self.burst_buffer.substripe.0,
            most: self.client.max_request.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_back_as_it_was() {
        let tag = Tag {
            rank: 0xff_fffe,
            call: Tag::CALLS - 2,
            request: 4095,
        };
        assert_eq!(Tag::unpack(tag.pack()), tag);
    }
}
