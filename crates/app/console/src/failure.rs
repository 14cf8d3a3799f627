//! Errors of commands and their exit codes.

use std::path::Path;

/// An error of a command, with a message for the user.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Invalid input: exit code 2. The message names the expected input.
    #[error("{0}")]
    Input(String),
    /// The command failed: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::Failed(_) => 1,
        }
    }

    /// A failed file operation: `cannot DOING PATH: reason`.
    pub fn io(doing: &str, path: &Path, error: std::io::Error) -> Failure {
        Failure::Failed(format!("cannot {doing} {}: {error}", path.display()))
    }
}
