//! A log file that is opened again after SIGHUP, so that it can be renamed while it is in use.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A log file, open for appending.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// Set by the signal's handler.
    reopen: Arc<AtomicBool>,
}

impl LogFile {
    /// Opens the file, and again at the first write after `reopen` was set.
    ///
    /// # Errors
    /// The file can neither be opened nor created.
    pub fn open(path: PathBuf, reopen: Arc<AtomicBool>) -> io::Result<LogFile> {
        let file = append_to(&path)?;
        Ok(LogFile { path, file, reopen })
    }
}

fn append_to(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // If it cannot be opened, lines go to the old one, and the next signal tries again.
        if self.reopen.swap(false, Ordering::Relaxed)
            && let Ok(file) = append_to(&self.path)
        {
            self.file = file;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn renamed_log_is_written_until_the_signal_and_then_a_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let [path, old] = ["log", "log.1"].map(|name| directory.path().join(name));
        let reopen = Arc::new(AtomicBool::new(false));
        let mut log = LogFile::open(path.clone(), reopen.clone()).unwrap();
        log.write_all(b"first\n").unwrap();
        fs::rename(&path, &old).unwrap();
        log.write_all(b"second\n").unwrap();
        reopen.store(true, Ordering::Relaxed);
        log.write_all(b"third\n").unwrap();
        assert_eq!(fs::read(&old).unwrap(), b"first\nsecond\n");
        assert_eq!(fs::read(&path).unwrap(), b"third\n");

        // Its directory is gone: the open file is kept.
        fs::remove_dir_all(directory.path()).unwrap();
        reopen.store(true, Ordering::Relaxed);
        log.write_all(b"fourth\n").unwrap();
    }
}
