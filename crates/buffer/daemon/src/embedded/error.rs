//! The error of embedded pools.

use std::fmt;
use std::path::{Path, PathBuf};

/// The reason for which a pool cannot be used.
#[derive(Debug)]
pub struct PoolError {
    directory: PathBuf,
    reason: String,
}

impl PoolError {
    pub(super) fn new(directory: &Path, reason: impl fmt::Display) -> PoolError {
        PoolError { directory: directory.to_owned(), reason: reason.to_string() }
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}: {}", self.directory.display(), self.reason)
    }
}

impl std::error::Error for PoolError {}
