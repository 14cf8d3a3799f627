//! Errors of a configuration, with their lines.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An error of a configuration, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    /// From 1; 0 if it is about the whole file.
    line: usize,
    reason: String,
}

impl ConfigError {
    /// An error without a line.
    pub(super) fn about_file(file: &Path, reason: impl fmt::Display) -> ConfigError {
        ConfigError { file: file.to_owned(), line: 0, reason: reason.to_string() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// A configuration file, for naming its lines.
pub(super) struct Source<'a> {
    pub file: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a range of the text.
    pub fn error(&self, at: Range<usize>, reason: impl fmt::Display) -> ConfigError {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        ConfigError {
            file: self.file.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            reason: reason.to_string(),
        }
    }
}
