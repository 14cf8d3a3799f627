//! Errors of a configuration with their lines, and values that several entries have.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::path::{Path, PathBuf};

use forebay_units::Bytes;
use toml::Spanned;

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
    pub fn error(&self, at: Range<usize>, reason: impl fmt::Display) -> ConfigError {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        ConfigError {
            file: self.file.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            reason: reason.to_string(),
        }
    }

    pub fn size(&self, text: &Spanned<String>) -> Result<Bytes, ConfigError> {
        let size: Result<Bytes, _> = text.get_ref().parse();
        match size {
            Ok(Bytes(0)) => Err(self.error(text.span(), "the size must not be zero")),
            Ok(size) => Ok(size),
            Err(error) => Err(self.error(text.span(), error)),
        }
    }

    pub fn address(&self, text: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
        let written = text.get_ref();
        let wrong = |reason: String| self.error(text.span(), reason);
        if !written.contains(':') {
            return Err(wrong(format!(
                "`{written}` has no port; write `host:port`, for instance `{written}:7510`"
            )));
        }
        let mut found = written
            .to_socket_addrs()
            .map_err(|error| wrong(format!("`{written}` is not an address: {error}")))?;
        let address = found.next().ok_or_else(|| wrong(format!("`{written}` has no address")))?;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(wrong(format!(
                "other hosts cannot connect to `{written}`; write an address of this host and a port"
            )));
        }
        Ok(address)
    }

    pub fn absolute(&self, path: &Spanned<PathBuf>) -> Result<PathBuf, ConfigError> {
        if path.get_ref().is_absolute() {
            return Ok(path.get_ref().clone());
        }
        let reason = format!(
            "`{}` is relative; write a path that begins with `/`",
            path.get_ref().display()
        );
        Err(self.error(path.span(), reason))
    }

    pub fn path(
        &self,
        path: &Option<Spanned<PathBuf>>,
        default: &Path,
    ) -> Result<PathBuf, ConfigError> {
        path.as_ref().map_or_else(|| Ok(default.to_owned()), |path| self.absolute(path))
    }

    pub fn name(&self, name: &Spanned<String>) -> Result<String, ConfigError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let text = name.get_ref();
        if text.is_empty() || text.len() > 255 || !text.chars().all(plain) {
            let reason = format!("`{text}` is not a name; use letters, digits and `_-.`");
            return Err(self.error(name.span(), reason));
        }
        Ok(text.clone())
    }
}
