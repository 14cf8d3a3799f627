//! The `forebay` command: simulations with the twin, and jobs on the buffer.
//!
//! Tables are printed to standard output, progress and logs to standard error; a simulation
//! leaves its other results in a run directory.
#![warn(missing_docs)]

pub mod cli;
pub mod console;
pub mod csv_files;
pub mod figures;
pub mod interrupt;
pub mod ior_output;
pub mod measure;
pub mod plot;
pub mod progress;
pub mod report;
pub mod run_directory;
pub mod sensitivity;
pub mod show;
pub mod stage_meter;
pub mod top;
pub mod validate;
