//! Why a command ended without doing its work, and the exit code that says so.

use std::fmt;

/// An error of a command, written for the person who typed it.
#[derive(Debug)]
pub enum Failure {
    /// The input was wrong: exit code 2. Says what was wrong and what would be right.
    Input(String),
    /// The input was fine, but the work could not be done: exit code 1.
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

    /// A failed file operation: what was attempted, on which path, and the system's reason.
    pub fn io(doing: &str, path: &std::path::Path, error: std::io::Error) -> Failure {
        Failure::Failed(format!("cannot {doing} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(message) | Failure::Failed(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}
