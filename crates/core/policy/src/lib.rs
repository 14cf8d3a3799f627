//! Decisions of the burst buffer, as pure functions.
//!
//! - [`allocate`]: from the state of a pool and a request to a [`allocate::Share`] on each node;
//! - [`layout`]: from a file's offset to a node, and from a directory's name to its metadata node;
//! - [`copies`]: from a compute node to the copy of a load-balanced instance that it reads;
//! - [`staging`]: from queued stages to the order in which they start;
//! - [`removal`]: from the uses of an instance to the permission to remove it.
//!
//! No function reads a clock, a random source or a disk. The buffer's daemons and the twin call the
//! same functions. Ties are broken by the explicit order of [`pool::NodeId`].
#![warn(missing_docs)]

pub mod allocate;
pub mod copies;
pub mod layout;
pub mod pool;
pub mod removal;
pub mod staging;
