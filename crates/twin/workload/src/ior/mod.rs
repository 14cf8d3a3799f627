//! IOR by its own command line: options, scripts, transfers, steps and output.
//!
//! The semantics are those of IOR 4.1 (<https://github.com/hpc/ior>). [`Ior::parse`] turns
//! arguments into tests; [`AccessPattern`] gives the bytes that each rank moves, by index;
//! [`Ior::steps`] lists the steps of all ranks in order; [`report`] prints results in IOR's format.

mod access_pattern;
mod builder;
mod check;
mod command_line;
mod directive;
mod error;
mod options;
pub mod report;
mod script;
mod size;
mod spec;
mod steps;

pub use access_pattern::{Access, AccessPattern, FileId, Processes, Transfer};
pub use command_line::value_given;
pub use error::{AccessPatternError, IorError};
pub use options::help;
pub use spec::{Api, Ior, Note, Reorder, Stonewall};
pub use steps::{Action, Step};
