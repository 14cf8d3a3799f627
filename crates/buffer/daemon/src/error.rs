//! The error of daemons and of those who use a pool.

use std::fmt;

use crate::config::ConfigError;

/// The reason for which a daemon cannot start or had to stop, or a pool cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct DaemonError {
    reason: String,
    /// The configuration is at fault.
    bad_input: bool,
}

impl DaemonError {
    pub(crate) fn new(reason: impl fmt::Display) -> DaemonError {
        DaemonError { reason: reason.to_string(), bad_input: false }
    }

    /// Prefixes an error with the path or address it is about.
    pub(crate) fn with_context<E: fmt::Display>(
        context: impl fmt::Display,
    ) -> impl FnOnce(E) -> DaemonError {
        move |error| DaemonError::new(format!("{context}: {error}"))
    }

    /// Whether the user's input is at fault.
    pub fn is_bad_input(&self) -> bool {
        self.bad_input
    }
}

impl From<ConfigError> for DaemonError {
    fn from(error: ConfigError) -> DaemonError {
        DaemonError { reason: error.to_string(), bad_input: true }
    }
}
