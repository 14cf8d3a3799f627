//! A simulated machine: compute nodes, burst-buffer nodes, the parallel file system and jobs on a fabric.
//!
//! A [`forebay_machine_file::machine::Machine`] and a workload become [`results`]; [`study`] has
//! the functions.
#![warn(missing_docs)]

mod collective_job;
pub mod estimate;
mod event;
mod flow;
mod group;
mod io;
mod latency_counts;
mod limit;
mod links;
mod mpi;
pub mod observe;
mod phase_collector;
mod phase_result;
mod phase_totals;
pub mod pool;
pub mod results;
mod scenario;
mod steady;
pub(crate) mod storage;
pub mod study;
mod traffic;
mod warnings;
