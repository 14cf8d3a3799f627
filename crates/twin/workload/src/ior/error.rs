//! Errors in IOR command lines and scripts.

use std::fmt;

/// Location of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionLocation {
    /// On the command line: the argument's number, from 1, not counting the program's name.
    Argument(usize),
    /// In a script.
    Script {
        /// The file, as named by `-f`.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
}

impl fmt::Display for OptionLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionLocation::Argument(n) => write!(f, "argument {n}"),
            OptionLocation::Script { file, line, column } => write!(f, "{file}:{line}:{column}"),
        }
    }
}

/// An error in an IOR command line or script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IorError {
    /// `-h` or `--help` was given; [`super::help`] has the text.
    Help,
    /// An unknown option.
    Unknown {
        /// The option, verbatim.
        option: String,
        /// Its location.
        location: OptionLocation,
        /// The most similar option, or a list of options.
        suggestion: String,
    },
    /// An option of IOR that the simulator does not support.
    NotSimulated {
        /// The option, verbatim.
        option: String,
        /// Its location.
        location: OptionLocation,
        /// The reason, or an alternative.
        why: String,
    },
    /// An option without its required value.
    MissingValue {
        /// The option, verbatim.
        option: String,
        /// Its location.
        location: OptionLocation,
        /// The remedy.
        right: String,
    },
    /// An invalid value.
    BadValue {
        /// The option, verbatim.
        option: String,
        /// Its location.
        location: OptionLocation,
        /// The value, verbatim.
        value: String,
        /// The remedy.
        right: String,
    },
    /// Options that exclude each other.
    Conflict {
        /// Location of the later one, if any was given.
        location: Option<OptionLocation>,
        /// The problem.
        what: String,
        /// The remedy.
        right: String,
    },
    /// An invalid script.
    Script {
        /// Its location.
        location: OptionLocation,
        /// The problem.
        what: String,
        /// The remedy.
        right: String,
    },
    /// An unreadable script file.
    Unreadable {
        /// The file, as named by `-f`.
        file: String,
        /// Location of `-f`.
        location: OptionLocation,
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for IorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IorError::Help => write!(f, "help requested"),
            IorError::Unknown { option, location, suggestion } => {
                write!(f, "{location}: IOR has no option `{option}`; {suggestion}")
            }
            IorError::NotSimulated { option, location, why } => {
                write!(f, "{location}: IOR's option `{option}` is not simulated: {why}")
            }
            IorError::MissingValue { option, location, right } => {
                write!(f, "{location}: option `{option}` needs a value: {right}")
            }
            IorError::BadValue { option, location, value, right } => {
                write!(f, "{location}: option `{option}` cannot be `{value}`: {right}")
            }
            IorError::Conflict { location, what, right } => {
                if let Some(location) = location {
                    write!(f, "{location}: ")?;
                }
                write!(f, "{what}; {right}")
            }
            IorError::Script { location, what, right } => write!(f, "{location}: {what}; {right}"),
            IorError::Unreadable { file, location, reason } => {
                write!(f, "{location}: cannot read the IOR script `{file}`: {reason}")
            }
        }
    }
}

impl std::error::Error for IorError {}

/// An [`Ior`](super::Ior) test that does not fit the processes of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessPatternError {
    /// No process, or no process per node.
    NoProcesses,
    /// `-N` requests more tasks than there are processes.
    TooFewProcesses {
        /// Tasks of `-N`.
        asked: u32,
        /// Processes of the job.
        processes: u32,
    },
    /// Files or transfers that 63-bit offsets cannot address.
    TooLarge {
        /// The product that is too large.
        what: String,
    },
    /// `-Z -Q n` excludes all tasks.
    OffsetTooFar {
        /// Tasks that `-Q` excludes, counted from the reader's own.
        excluded: u64,
        /// Tasks of the run.
        tasks: u32,
    },
}

impl fmt::Display for AccessPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessPatternError::NoProcesses => {
                write!(f, "IOR needs at least one process, and one process per node")
            }
            AccessPatternError::TooFewProcesses { asked, processes } => write!(
                f,
                "-N requests {asked} tasks, but the job has only {processes} processes; \
                 lower -N or give the job more nodes or processes per node"
            ),
            AccessPatternError::TooLarge { what } => write!(
                f,
                "{what} exceeds the 2^63 bytes that a file offset can address; \
                 lower -b or -s, or use fewer tasks"
            ),
            AccessPatternError::OffsetTooFar { excluded, tasks } => write!(
                f,
                "-Z with -Q excludes {excluded} tasks, beginning with its own, from each task's reads, \
                 but the run has only {tasks}; lower -Q or raise -N"
            ),
        }
    }
}

impl std::error::Error for AccessPatternError {}
