//! Errors of commands and their exit codes.

use std::path::Path;
use std::process::ExitCode;

use crate::print_stderr;

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
    /// The exit code of a program with this outcome, whose failure is printed to standard error.
    pub fn exit(outcome: Result<(), Failure>) -> ExitCode {
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                print_stderr(format_args!("error: {failure}"));
                ExitCode::from(failure.exit_code())
            }
        }
    }

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
