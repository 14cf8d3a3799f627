//! Errors in IOR command lines and scripts.

use std::fmt;

/// Location of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OptionLocation {
    /// On the command line: the argument's number, from 1, not counting the program's name.
    Argument(usize),
    /// In a script: the file as named by `-f`; line, and column in characters, from 1.
    Script { file: String, line: usize, column: usize },
}

impl fmt::Display for OptionLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionLocation::Argument(n) => write!(f, "argument {n}"),
            OptionLocation::Script { file, line, column } => write!(f, "{file}:{line}:{column}"),
        }
    }
}

impl OptionLocation {
    /// An error at this location.
    pub(super) fn error(&self, problem_and_remedy: fmt::Arguments<'_>) -> IorError {
        IorError::Invalid(format!("{self}: {problem_and_remedy}"))
    }

    /// An option that IOR does not have.
    pub(super) fn unknown(&self, option: &str, suggestion: &str) -> IorError {
        self.error(format_args!("IOR has no option `{option}`; {suggestion}"))
    }

    /// An option of IOR that the simulator does not support.
    pub(super) fn not_simulated(&self, option: &str, reason: &str) -> IorError {
        self.error(format_args!("IOR's option `{option}` is not simulated: {reason}"))
    }
}

/// The reason why an IOR command line gives no test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IorError {
    /// `-h` or `--help` was given; [`super::help`] has the text.
    #[error("help requested")]
    Help,
    /// An error in the command line or script: its location, the problem and the remedy.
    #[error("{0}")]
    Invalid(String),
}

/// The reason why an [`Ior`](super::Ior) test does not fit the processes of its job, and the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccessPatternError(pub(super) String);
