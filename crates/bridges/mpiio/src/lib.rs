//! Interception library: `LD_PRELOAD=libforebay_mpiio.so program`, or linked before the MPI library.
//!
//! Writes of an MPI program to selected files are appended to a log, on a burst buffer or any other
//! directory, and applied to the file in large writes when it is closed (`file`). What is not
//! selected, or not supported, is passed on to the MPI library. `calls` has the functions.
//!
//! One library serves Open MPI and MPICH; it is built without either (`mpi`).

mod calls;
mod file;
mod files;
mod inside;
mod mpi;
mod selection;
mod statistics;
