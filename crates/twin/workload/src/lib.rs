//! What a job does: an IOR command line or a traffic pattern becomes operations, one at a time.
//!
//! - [`ior`]: IOR's own options, scripts and output; the transfers of each rank and the steps of
//!   a run, computed by index without a table.
//! - [`traffic`]: synthetic messages between the nodes of a job, for studying the network.
//! - [`placement`]: which nodes of a machine a job gets.
//! - [`random`]: the seeded random numbers under all of these.
//!
//! Nothing here has a clock or a thread. The only file ever read is the IOR script that `-f` names.
//! Everything is a function of its arguments: the same input and seed give the same operations on
//! every platform.
#![warn(missing_docs)]

pub mod ior;
pub mod placement;
pub mod random;
pub mod traffic;
