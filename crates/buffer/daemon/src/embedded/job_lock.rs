//! Locks of jobs: at most one process runs, or recovers, a job of an embedded pool.
//!
//! The lock of a job is a file in the pool's directory `runs`. The kernel releases it when its process
//! ends, however that happens, so a locked file means a living process.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use forebay_net::lock_file::{open_lock_file, try_lock};
use rustix::fs::FlockOperation;

use crate::error::DaemonError;

/// The name of the directory with the locks.
const DIRECTORY: &str = "runs";

/// The lock of a job, for as long as this exists.
pub struct JobLock {
    path: PathBuf,
    _file: File,
}

/// The result of trying to lock a job.
pub enum JobLocked {
    /// This process has the lock.
    Own(JobLock),
    /// Another process has it: its id, as far as it has noted that.
    Other(String),
}

impl JobLock {
    /// Locks the job `token`, which is a valid name, in the pool in `directory`.
    pub(super) fn try_lock(directory: &Path, token: &str) -> Result<JobLocked, DaemonError> {
        let runs = directory.join(DIRECTORY);
        let path = runs.join(token);
        let lock = || {
            fs::create_dir_all(&runs)?;
            loop {
                let mut file = open_lock_file(&path)?;
                if !try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
                    let process = fs::read_to_string(&path).unwrap_or_default();
                    return Ok(JobLocked::Other(process.trim().to_owned()));
                }
                // The process that had it may have removed the file meanwhile.
                if !is_file(&path, &file)? {
                    continue;
                }
                file.set_len(0)?;
                writeln!(file, "{}", std::process::id())?;
                return Ok(JobLocked::Own(JobLock { path: path.clone(), _file: file }));
            }
        };
        let context = format!("`{DIRECTORY}/{token}` cannot be locked");
        lock().map_err(DaemonError::with_context::<io::Error>(context))
    }
}

impl Drop for JobLock {
    fn drop(&mut self) {
        // While the file is locked, so that nobody else's is removed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether `path` still names the open file.
fn is_file(path: &Path, file: &File) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(named) => {
            let own = file.metadata()?;
            Ok((named.dev(), named.ino()) == (own.dev(), own.ino()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_is_locked_once_until_its_process_releases_it() {
        let pool = tempfile::tempdir().unwrap();
        let lock = || JobLock::try_lock(pool.path(), "42").unwrap();
        let own = lock();
        assert!(matches!(&own, JobLocked::Own(_)));
        let JobLocked::Other(process) = lock() else { panic!("locked twice") };
        assert_eq!(process, std::process::id().to_string());
        assert!(matches!(JobLock::try_lock(pool.path(), "43").unwrap(), JobLocked::Own(_)));
        drop(own);
        assert_eq!(fs::read_dir(pool.path().join(DIRECTORY)).unwrap().count(), 0);
        // As of a process that was killed.
        fs::write(pool.path().join(DIRECTORY).join("42"), "1\n").unwrap();
        assert!(matches!(lock(), JobLocked::Own(_)));
    }
}
