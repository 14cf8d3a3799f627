//! IOR on burst buffers and on the parallel file system: client processes, servers with flash or disks,
//! and the messages between them.
//!
//! # The life of a write
//!
//! A process calls `write`; after the cost of the call its client sends *requests* of at most
//! `max_request` bytes, cut at the boundaries of stripes and substripes, each to the server that
//! has the stripe. The server takes one request after another off the wire (dispatch) and gives
//! each to a free thread. The thread fetches the data from the client (a `FetchData` goes out, the
//! client's interface answers with the data) when the server's data path has time for it, waits for
//! room in the page cache, takes the lock of the file's object, copies the data into the cache,
//! acknowledges, and is free again. The call returns when all its requests are acknowledged. The
//! server's flushing thread writes each flash stripe to its SSD controller later; an fsync waits for
//! that. A server without room for dirty data writes to flash before it acknowledges.
//!
//! # The life of a read
//!
//! The same, with the lock shared and the data read from flash and copied out of the page cache
//! before they go out over the data path; the call returns when the last byte has arrived.
//!
//! # Synchronisation
//!
//! IOR's barriers are MPI operations ([`crate::mpi`]): messages in the same network. Each node leaves
//! a barrier at a time of its own. A group enters the next phase of the test when the first of its
//! nodes leaves; groups without processes are told by the node of rank 0. No request can precede
//! that, because each phase begins with another barrier.
//!
//! # The parallel file system
//!
//! A server is an object storage target behind an LNET node ([`crate::storage`]): its requests and data
//! cross the machine's network to that node, and then the data paths of the node and of the target's
//! object storage server. Instead of one lock for each object the clients' locks on extents order writes
//! (`extent_locks.rs`). Clients have caches: consecutive calls of a process are one here
//! ([`crate::study`]).
//!
//! Collective transfers (`-a MPIIO -c`) go through aggregators, which are clients as above: see
//! `collective.rs` for the bytes that each accesses, `client/exchange.rs` for the exchange of data.

mod aggregators;
mod client;
mod collective;
mod context;
mod extent_locks;
mod group_io;
mod job;
mod locks;
mod measure;
mod pieces;
mod position;
mod server;
mod ssd;

pub(crate) use aggregators::Aggregators;
pub(crate) use extent_locks::{ExtentLocks, ObjectOfFile};
pub(crate) use group_io::Io;
pub(crate) use job::{Devices, IoJob, PS_PER_SECOND, RequestTag};
pub(crate) use measure::{PhaseCounts, ServerUsage, Waits};
pub use server::ServerQueues;
pub use server::flash_rate;
pub(crate) use server::{Extent, Path, Server, ServerRates, copy_time};
pub(crate) use ssd::Ssd;
