//! The lock on a directory that one process uses at a time.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Permissions of the file. Another user who could open it could lock it, too, and keep a daemon from
/// starting.
const MODE: u32 = 0o600;

/// Opens a file that processes of the same user lock; creates it if it is missing.
pub fn open_lock_file(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    let options = options.create(true).truncate(false).read(true).write(true).mode(MODE);
    let file = options.open(path)?;
    if file.metadata()?.permissions().mode() & 0o777 != MODE {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

/// Locks the file `lock` in a directory, which must exist. `None`: another process has locked it.
/// Closing the file releases the lock.
///
/// # Errors
/// The file cannot be created or locked.
pub fn lock_directory(directory: &Path) -> io::Result<Option<File>> {
    let file = open_lock_file(&directory.join("lock"))?;
    Ok(try_lock(&file, FlockOperation::NonBlockingLockExclusive)?.then_some(file))
}

/// Locks a file as `operation` says, which does not wait. `false`: another process has it locked.
pub fn try_lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn directory_is_locked_once_and_others_cannot_open_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        // As an earlier release has left it.
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let locked = lock_directory(directory.path()).unwrap();
        assert!(locked.is_some() && lock_directory(directory.path()).unwrap().is_none());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        drop(locked);
        assert!(lock_directory(directory.path()).unwrap().is_some());
    }
}
