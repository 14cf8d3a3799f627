//! Programs of MPI under the interception library.

mod background;
mod interception;
mod libraries;
mod log_mapping;
mod order;
mod pnetcdf_order;
mod random_programs;
mod recovery;
mod selection;
mod support;
