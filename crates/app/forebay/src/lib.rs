//! The `forebay` command: reads what was typed, calls the simulator, shows what it said.
//!
//! Tables go to standard output, progress to standard error, everything else into a run
//! directory. Nothing about the simulated machine is decided here.
#![warn(missing_docs)]

pub mod cli;
pub mod console;
mod csv_text;
pub mod failure;
pub mod figures;
pub mod interrupt;
pub mod ior_output;
pub mod links;
pub mod plot;
pub mod progress;
pub mod report;
pub mod run_directory;
pub mod series;
pub mod show;
pub mod stage_meter;
pub mod table;
pub mod top;
pub mod validate;
