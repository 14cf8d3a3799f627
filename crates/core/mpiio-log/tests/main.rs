//! The log of MPI-IO requests.

mod datatypes;
mod foreign;
mod interruption;
mod merging;
mod netcdf;
mod random;
mod recovery;
mod requests;
