//! The storage daemon: runs a [`Node`](crate::node::Node) with sockets, a clock, a log and threads.
//!
//! The event loop is one thread. It receives the metadata requests of all connections, steps the
//! node, writes the log once for the whole batch, and then sends the replies. A client in the same
//! process has its requests carried out by its own thread instead, one thread at a time. Other threads sync
//! (so that only requests for durability wait for the device), write checkpoints, compute
//! checksums of data at rest, read small objects that are not cached, and remove the objects of
//! removed instances. Each data connection has its own thread.

mod batch;
mod blocking_io;
mod calls;
mod charged_use;
mod checkpointer;
mod checksummer;
mod clock;
mod connection;
mod connections;
mod counters;
mod data;
mod data_service;
mod delayed_calls;
mod effects;
mod event_loop;
mod event_loop_thread;
mod handshakes;
mod log_writer;
mod mailbox;
mod munge_worker;
mod object_workers;
mod options;
mod peer_links;
mod replacement_syncer;
mod report;
mod scrubber;
mod start;
mod stats;
mod syncer;
mod trusted_hosts;
mod worker;

pub use charged_use::UserRateLimits;
pub use options::{StartError, StoreOptions};
pub use report::{DamagedObject, RequestStats, StoreGauges, StoreReport};
pub use scrubber::{ScrubOptions, ScrubProgress};
pub use start::Daemon;
pub use stats::StatsHandle;
pub use trusted_hosts::TrustedHosts;
