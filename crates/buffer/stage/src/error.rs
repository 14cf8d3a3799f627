//! What went wrong with which file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::io::Errno;

/// Problems that are listed one by one; more are counted.
pub(crate) const MAX_LISTED_PROBLEMS: usize = 1000;

/// Something that went wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which file.
    pub path: PathBuf,
    /// What was wrong and, where that is not plain, what would be right.
    pub reason: String,
    /// The number of `errno(3)` that comes closest; 0 for a warning.
    pub code: i32,
}

impl Problem {
    pub(crate) fn new(
        path: impl Into<PathBuf>,
        reason: impl Into<String>,
        errno: Errno,
    ) -> Problem {
        Problem {
            path: path.into(),
            reason: reason.into(),
            code: errno.raw_os_error(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// Why a stage did not succeed. The source is untouched, and so is what the target had under
/// names that were not yet replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageError {
    /// It could not begin, or not go on.
    Stopped(Problem),
    /// Some files could not be staged; all others were.
    Incomplete {
        /// The problems, at most a thousand of them.
        problems: Vec<Problem>,
        /// How many there were.
        count: u64,
    },
    /// It was cancelled.
    Cancelled,
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        match self {
            StageError::Stopped(problem) => problem.fmt(f),
            StageError::Cancelled => f.write_str("cancelled"),
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

/// How copying one thing failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// With a problem that concerns this file alone.
    File(String, Errno),
    /// With one that makes going on useless (a full target, for instance).
    Fatal(String, Errno),
    /// The stage was cancelled.
    Cancelled,
}

impl Failure {
    /// What doing `what` met. A full or failing target stops the whole stage.
    pub fn target(what: &str, errno: Errno) -> Failure {
        let reason = format!("{what}: {}", describe(errno));
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::STALE | Errno::NOTCONN => {
                Failure::Fatal(reason, errno)
            }
            _ => Failure::File(reason, errno),
        }
    }

    /// What doing `what` with the source met.
    pub fn source(what: &str, errno: Errno) -> Failure {
        let reason = format!("{what}: {}", describe(errno));
        match errno {
            Errno::STALE | Errno::NOTCONN => Failure::Fatal(reason, errno),
            Errno::NOENT => Failure::File("vanished while it was staged".to_owned(), errno),
            _ => Failure::File(reason, errno),
        }
    }
}

/// An error number in words.
pub(crate) fn describe(errno: Errno) -> String {
    match errno {
        Errno::NOSPC => "no space left there; free some or ask for more capacity".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

/// Collects problems from all threads.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    inner: Mutex<(Vec<Problem>, u64)>,
}

impl Problems {
    /// Notes a problem and says how many there are now.
    pub fn add(&self, problem: Problem) -> u64 {
        let mut inner = self
            .inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        inner.1 += 1;
        if inner.0.len() < MAX_LISTED_PROBLEMS {
            inner.0.push(problem);
        }
        inner.1
    }

    /// Notes something that could not be kept.
    pub fn warn(&self, path: &Path, reason: impl Into<String>) {
        self.add(Problem {
            path: path.to_owned(),
            reason: reason.into(),
            code: 0,
        });
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .1
            == 0
    }

    /// The problems in the order of their paths, and how many there were.
    pub fn take(&self) -> (Vec<Problem>, u64) {
        let mut inner = self
            .inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut problems = std::mem::take(&mut inner.0);
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        (problems, std::mem::take(&mut inner.1))
    }
}
