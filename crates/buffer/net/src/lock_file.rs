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

/// Locks the file `lock` in a directory, which must exist. `None`: another process has locked it.
/// Closing the file releases the lock.
///
/// # Errors
/// The file cannot be created or locked.
pub fn lock_directory(directory: &Path) -> io::Result<Option<File>> {
    let mut options = fs::OpenOptions::new();
    let options = options.create(true).truncate(false).read(true).write(true).mode(MODE);
    let file = options.open(directory.join("lock"))?;
    if file.metadata()?.permissions().mode() & 0o777 != MODE {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
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
