//! Small copies on the parallel file system: each is written to a file without a name, which gets its name
//! when it is complete. A mover that dies leaves nothing, and no other can have the file open.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, fstat, linkat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

use super::local::{OpenFile, lock_copy};
use super::{FileHandle, PutOutcome, SmallFile};
use crate::tree::hidden_name;

impl OpenFile {
    /// Creates files in this directory, as [`DirHandle::put_small_files`](super::DirHandle::put_small_files).
    pub(super) fn put_unnamed_files(
        &self,
        files: &[SmallFile<'_>],
    ) -> Vec<Result<PutOutcome, Errno>> {
        // Once for all of them: that takes more system calls than a file.
        let entered = match self.enter() {
            Ok(entered) => entered,
            Err(errno) => return vec![Err(errno); files.len()],
        };
        let put = files.iter().map(|file| self.put_unnamed(file)).collect();
        drop(entered);
        put
    }

    /// Creates a file, with the permissions of the user.
    fn put_unnamed(&self, file: &SmallFile<'_>) -> Result<PutOutcome, Errno> {
        if self.lacks_unnamed_files.load(Ordering::Relaxed) {
            return Ok(PutOutcome::Unsupported);
        }
        // Nobody can open it before it has its name.
        let mode = Mode::from_raw_mode(file.stat.mode & 0o777);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let fd = match openat(&self.fd, ".", flags, mode) {
            Ok(fd) => fd,
            // The file system has none; some kernels take the flag for that of a directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                self.lacks_unnamed_files.store(true, Ordering::Relaxed);
                return Ok(PutOutcome::Unsupported);
            }
            Err(errno) => return Err(errno),
        };
        let unnamed = OpenFile::new(fd, &None);
        let _ = unnamed.has_reliable_syncfs.set(self.has_reliable_syncfs());
        unnamed.write_all_at(file.contents, 0)?;
        let made = fstat(&unnamed.fd)?;
        let owned = self.set_owner(&unnamed.fd, &made, file.stat)?;
        OpenFile::set_mode_and_times(&unnamed.fd, &owned, file.stat)?;
        if unnamed.needs_fdatasync() {
            unnamed.fdatasync()?;
        }
        self.name_file(&unnamed.fd, file.name)
    }

    /// Gives a complete file its name, replacing what has that name.
    fn name_file(&self, file: &OwnedFd, name: &OsStr) -> Result<PutOutcome, Errno> {
        match self.link_file(file, name) {
            Ok(()) => return Ok(PutOutcome::Stored),
            Err(Errno::EXIST) => {}
            // The directory was removed, or the file system has no links to such files.
            Err(Errno::NOENT | Errno::OPNOTSUPP | Errno::XDEV | Errno::PERM | Errno::INVAL) => {
                return Ok(PutOutcome::Unsupported);
            }
            Err(errno) => return Err(errno),
        }
        // Another stage must not write to it while it has the name of an incomplete copy.
        lock_copy(file, FlockOperation::NonBlockingLockExclusive)?;
        let hidden = hidden_name(name);
        match self.link_file(file, &hidden) {
            // An incomplete copy of an earlier run, or of another stage.
            Err(Errno::EXIST) => return Ok(PutOutcome::Unsupported),
            linked => linked?,
        }
        if renameat(&self.fd, &hidden, &self.fd, name).is_err() {
            let _ = unlinkat(&self.fd, &hidden, AtFlags::empty());
            return Ok(PutOutcome::Unsupported);
        }
        Ok(PutOutcome::Stored)
    }

    fn link_file(&self, file: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        match linkat(file, "", &self.fd, name, AtFlags::EMPTY_PATH) {
            // Before Linux 6.10, only root may do so by the descriptor.
            Err(Errno::NOENT) => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                linkat(CWD, path, &self.fd, name, AtFlags::SYMLINK_FOLLOW)
            }
            linked => linked,
        }
    }
}
