//! Refusal of writes.

use std::fmt;
use std::io;

/// Refusal of a write. Nothing of it was logged, unless an I/O error happened in its middle; then it
/// may be logged in part, which does no harm if the caller writes the same data to the file.
#[derive(Debug)]
pub enum AppendError {
    /// The limits of the log are reached, or its device is full: flush the log, or write through
    /// after flushing it.
    Full,
    /// The encoded view is longer than a segment can hold, or needs too much memory for a log
    /// ([`MAX_LOGGED_VIEW`](crate::MAX_LOGGED_VIEW)).
    ViewTooLarge {
        /// Bytes of the view.
        bytes: usize,
        /// Most bytes that fit.
        limit: u64,
    },
    /// The view does not contain the bytes, or they lie behind the largest file offset.
    BehindView,
    /// The log cannot be written.
    Io(io::Error),
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Full => f.write_str("the log is full"),
            AppendError::ViewTooLarge { bytes, limit } => {
                write!(
                    f,
                    "a file view of {bytes} bytes exceeds the {limit} that a segment holds, or the parts \
                     that a log may have"
                )
            }
            AppendError::BehindView => f.write_str("the write lies behind the end of its view"),
            AppendError::Io(error) => write!(f, "cannot write the log: {error}"),
        }
    }
}

impl std::error::Error for AppendError {}

impl From<io::Error> for AppendError {
    fn from(error: io::Error) -> AppendError {
        match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => AppendError::Full,
            Some(_) | None => AppendError::Io(error),
        }
    }
}
