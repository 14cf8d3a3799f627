//! Programs of MPI under the interception library.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod background;
mod codes;
mod durability;
mod handles;
mod interception;
mod libraries;
mod limits;
mod log_mapping;
mod order;
mod pnetcdf_order;
mod random_programs;
mod recovery;
mod removal;
mod selection;
mod support;
mod threads;
