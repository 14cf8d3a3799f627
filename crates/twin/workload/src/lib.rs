//! Workloads: an IOR command line, a Darshan log or a traffic pattern becomes operations, one at a time.
//!
//! - [`collective`]: the messages of MPI's collective operations, by rank and round.
//! - [`darshan`]: the I/O of a Darshan log, as tests of IOR.
//! - [`ior`]: IOR's own options, scripts and output; the transfers of each rank and the steps of
//!   a run, computed by index without a table.
//! - [`traffic`]: synthetic messages between the nodes of a job, for studying the network.
//! - [`placement`]: the nodes of a machine that a job gets.
//!
//! No function uses a clock or a thread. The only file read is the IOR script named by `-f`.
//! Everything is a function of its arguments: the same input and seed give the same operations on
//! every platform.
#![warn(missing_docs)]

pub mod collective;
pub mod darshan;
pub mod ior;
pub mod placement;
pub mod traffic;
