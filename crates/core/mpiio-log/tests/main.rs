//! The log of MPI-IO requests.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod batches;
mod datatypes;
mod foreign;
mod interruption;
mod merging;
mod netcdf;
mod random;
mod recovery;
mod requests;
