//! Problems of single files, and why a stage failed.

use std::fmt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::io::Errno;

/// Maximum number of problems that are listed; further ones are only counted.
pub(crate) const MAX_LISTED_PROBLEMS: usize = 1000;

/// A problem with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Description of the problem and, where it is not obvious, of what would be right.
    pub reason: String,
    /// The closest number of `errno(3)`; 0 for a warning.
    pub code: i32,
}

impl Problem {
    pub(crate) fn new(
        path: impl Into<PathBuf>,
        reason: impl Into<String>,
        errno: Errno,
    ) -> Problem {
        Problem { path: path.into(), reason: reason.into(), code: errno.raw_os_error() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = escape_controls(&self.path.to_string_lossy());
        write!(f, "{path}: {}", escape_controls(&self.reason))
    }
}

/// Text whose control characters, line ends included, are written as in a string of Rust: a name with
/// them must not look like several lines of a report.
fn escape_controls(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// Failure of a stage. The source is unchanged, and so are existing target files whose replacement
/// was not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageError {
    /// The stage could not start, or not continue.
    Stopped(Problem),
    /// Some files could not be staged; all others were.
    Incomplete {
        /// The problems, at most a thousand of them.
        problems: Vec<Problem>,
        /// Number of problems.
        count: u64,
    },
    /// The stage was cancelled.
    Cancelled,
    /// This mover has copied its share of the stage, but another one has not.
    OtherShare,
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        match self {
            StageError::Stopped(problem) => problem.fmt(f),
            StageError::Cancelled => f.write_str("cancelled"),
            StageError::OtherShare => f.write_str("another node could not copy its share"),
            StageError::Incomplete { problems, count } => {
                for (index, problem) in problems.iter().take(SHOWN).enumerate() {
                    let end = if index > 0 { "\n" } else { "" };
                    write!(f, "{end}{problem}")?;
                }
                match count.saturating_sub(SHOWN as u64) {
                    0 => Ok(()),
                    more => write!(f, "\n… and {more} more"),
                }
            }
        }
    }
}

impl std::error::Error for StageError {}

/// Failure to copy one file.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A problem of this file only.
    File(String, Errno),
    /// A problem that affects all files, for instance a full target.
    Fatal(String, Errno),
    /// The stage was cancelled.
    Cancelled,
}

impl Failure {
    /// The target failed while `action`. A full or unreachable target stops the whole stage.
    pub fn target(action: &str, errno: Errno) -> Failure {
        let reason = format!("{action}: {}", describe(errno));
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::STALE | Errno::NOTCONN => {
                Failure::Fatal(reason, errno)
            }
            _ => Failure::File(reason, errno),
        }
    }

    /// The source failed while `action`.
    pub fn source(action: &str, errno: Errno) -> Failure {
        let reason = format!("{action}: {}", describe(errno));
        match errno {
            Errno::STALE | Errno::NOTCONN => Failure::Fatal(reason, errno),
            Errno::NOENT => Failure::File("vanished while it was staged".to_owned(), errno),
            _ => Failure::File(reason, errno),
        }
    }
}

/// A problem outside of single files stops the stage.
impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        let errno = Errno::from_raw_os_error(problem.code);
        let reason =
            if problem.path.as_os_str().is_empty() { problem.reason } else { problem.to_string() };
        Failure::Fatal(reason, errno)
    }
}

/// An error number in words.
pub(crate) fn describe(errno: Errno) -> String {
    match errno {
        Errno::NOSPC => "no space left there; free some or request more capacity".to_owned(),
        Errno::BUSY => "another stage copies to the same name; wait for its end".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

/// Problems from all threads of a stage.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    inner: Mutex<(Vec<Problem>, u64)>,
}

impl Problems {
    /// Adds a problem and returns the number of problems so far.
    pub fn add(&self, problem: Problem) -> u64 {
        let mut inner = self.inner.lock();
        inner.1 += 1;
        if inner.0.len() < MAX_LISTED_PROBLEMS {
            inner.0.push(problem);
        }
        assert!(inner.0.len() as u64 <= inner.1, "every listed problem is counted");
        inner.1
    }

    /// Adds something that could not be preserved.
    pub fn warn(&self, path: &Path, reason: impl Into<String>) {
        self.add(Problem { path: path.to_owned(), reason: reason.into(), code: 0 });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Number of problems.
    pub fn count(&self) -> u64 {
        self.inner.lock().1
    }

    /// Takes the problems, sorted by path, and their number.
    pub fn take(&self) -> (Vec<Problem>, u64) {
        let mut inner = self.inner.lock();
        let mut problems = std::mem::take(&mut inner.0);
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        (problems, std::mem::take(&mut inner.1))
    }
}
