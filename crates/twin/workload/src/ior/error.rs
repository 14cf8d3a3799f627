//! What can be wrong with an IOR command line or script.

use std::fmt;

/// Where an option was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionLocation {
    /// On the command line: the argument's number, from 1, not counting the program's name.
    Argument(usize),
    /// In a script.
    Script {
        /// The file as it was named with `-f`.
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

/// What is wrong with an IOR command line or script, for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IorError {
    /// `-h` or `--help` was given: not a fault, but no run either; [`super::help`] has the text.
    Help,
    /// An option that IOR does not have.
    Unknown {
        /// The option as given.
        option: String,
        /// Where.
        place: OptionLocation,
        /// What may have been meant, or which options there are.
        suggestion: String,
    },
    /// An option of IOR's that the simulator cannot honour.
    NotSimulated {
        /// The option as given.
        option: String,
        /// Where.
        place: OptionLocation,
        /// Why not, or what to use.
        why: String,
    },
    /// An option without the value it needs.
    MissingValue {
        /// The option as given.
        option: String,
        /// Where.
        place: OptionLocation,
        /// What would be right.
        right: String,
    },
    /// A value that cannot be.
    BadValue {
        /// The option as given.
        option: String,
        /// Where.
        place: OptionLocation,
        /// The value as given.
        value: String,
        /// What would be right.
        right: String,
    },
    /// Options that do not go together.
    Conflict {
        /// Where the later of them was given, if any was.
        place: Option<OptionLocation>,
        /// What is wrong.
        what: String,
        /// What would be right.
        right: String,
    },
    /// A script that cannot be understood.
    Script {
        /// Where.
        place: OptionLocation,
        /// What is wrong.
        what: String,
        /// What would be right.
        right: String,
    },
    /// A script file that cannot be read.
    Unreadable {
        /// The file as named with `-f`.
        file: String,
        /// Where it was named.
        place: OptionLocation,
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for IorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IorError::Help => write!(f, "help was asked for"),
            IorError::Unknown {
                option,
                place,
                suggestion,
            } => {
                write!(f, "{place}: IOR has no option `{option}`; {suggestion}")
            }
            IorError::NotSimulated { option, place, why } => {
                write!(
                    f,
                    "{place}: IOR's option `{option}` is not simulated: {why}"
                )
            }
            IorError::MissingValue {
                option,
                place,
                right,
            } => {
                write!(f, "{place}: option `{option}` needs a value: {right}")
            }
            IorError::BadValue {
                option,
                place,
                value,
                right,
            } => {
                write!(f, "{place}: option `{option}` cannot be `{value}`: {right}")
            }
            IorError::Conflict { place, what, right } => {
                if let Some(place) = place {
                    write!(f, "{place}: ")?;
                }
                write!(f, "{what}; {right}")
            }
            IorError::Script { place, what, right } => write!(f, "{place}: {what}; {right}"),
            IorError::Unreadable {
                file,
                place,
                reason,
            } => {
                write!(f, "{place}: cannot read the IOR script `{file}`: {reason}")
            }
        }
    }
}

impl std::error::Error for IorError {}

/// An [`super::Ior`] that does not fit the processes it is to run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessPatternError {
    /// No process, or no process per node.
    NoProcesses,
    /// `-N` asks for more tasks than there are processes.
    TooFewProcesses {
        /// Tasks of `-N`.
        asked: u32,
        /// Processes of the job.
        processes: u32,
    },
    /// Files or transfers that 63-bit offsets cannot address.
    TooLarge {
        /// Which product is too large.
        what: String,
    },
    /// `-Z -Q n` with as many or more tasks excluded than there are.
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
                write!(f, "IOR needs at least one process, and one process a node")
            }
            AccessPatternError::TooFewProcesses { asked, processes } => write!(
                f,
                "-N asks for {asked} tasks, but the job has only {processes} processes; \
                 lower -N or give the job more nodes or processes a node"
            ),
            AccessPatternError::TooLarge { what } => write!(
                f,
                "{what} is beyond the 2^63 bytes that a file offset can address; \
                 lower -b or -s, or use fewer tasks"
            ),
            AccessPatternError::OffsetTooFar { excluded, tasks } => write!(
                f,
                "-Z with -Q keeps each task from reading what {excluded} tasks from its own on \
                 wrote, and the run has only {tasks}; lower -Q or raise -N"
            ),
        }
    }
}

impl std::error::Error for AccessPatternError {}
