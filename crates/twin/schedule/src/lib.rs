//! A queue of jobs on a machine with compute nodes and a shared burst buffer.
//!
//! A job's burst buffer is allocated when its stage-in begins, before it has nodes, and is freed when its
//! stage-out ends, after it has released them, as with DataWarp under Slurm. [`policy::decide`] is a pure
//! function from the queue, the jobs that hold resources and the time to what begins now;
//! [`simulation::simulate`] drives it through the arrivals and ends of a trace. Granules are allocated
//! by `forebay-policy`, as in the pool, and stages share rates by `forebay-flow`.
#![warn(missing_docs)]

pub mod cluster;
pub mod job;
pub mod outcome;
pub mod policy;
mod pool;
pub mod profile;
pub mod requests;
pub mod simulation;
pub mod summary;
pub mod time;
pub mod trace;
mod transfers;
pub mod usage;
