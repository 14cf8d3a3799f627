//! Errors.

use crate::module::Module;
use std::fmt;

/// A region of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The header.
    Header,
    /// The job record with the command line and the mount table.
    Job,
    /// The names of files.
    Names,
    /// The records of a module.
    Records(Module),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => write!(f, "header"),
            Place::Job => write!(f, "job record"),
            Place::Names => write!(f, "file names"),
            Place::Records(module) => write!(f, "{module} records"),
        }
    }
}

/// A log that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// The region.
    pub place: Place,
    /// Offset in the log up to which it was understood, bytes.
    pub offset: u64,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.place, self.offset, self.problem)
    }
}

impl std::error::Error for LogError {}
