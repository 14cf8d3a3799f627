//! A simulated machine: compute nodes, burst-buffer nodes and jobs on a fabric.
//!
//! A [`forebay_model::machine::Machine`] and a workload become [`results`].
#![warn(missing_docs)]

pub mod results;
