//! A simulated machine: compute nodes, burst-buffer nodes and jobs on a fabric.
//!
//! A [`forebay_machine_file::machine::Machine`] and a workload become [`results`]; [`study`] has the
//! calls.
#![warn(missing_docs)]

mod group;
mod io;
mod limit;
mod links;
pub mod results;
mod scenario;
pub mod study;
mod traffic;
