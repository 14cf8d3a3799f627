//! File locks through the mount.

use super::convert::errno;
use super::mounted_fs::MountedFs;
use super::reply::empty;
use forebay_protocol::lock::{FileLock, MAX_LOCK_OFFSET};
use forebay_protocol::{Errno, LockOwner};
use fuser::{FileHandle, ReplyEmpty, ReplyLock};

impl MountedFs {
    pub fn do_set_lock(
        &self,
        tid: u32,
        handle: FileHandle,
        (kind, wanted): (i32, FileLock),
        wait: bool,
        reply: ReplyEmpty,
    ) {
        let open = match self.open_file(handle) {
            Ok(open) => open,
            Err(error) => return reply.error(errno(error)),
        };
        if kind == libc::F_UNLCK {
            let FileLock { owner, start, end, .. } = wanted;
            return empty(reply, open.file.unlock_for(owner, start, end));
        }
        self.lock_waits.lock(tid, &open, wanted, wait, reply);
    }

    pub fn do_test_lock(&self, handle: FileHandle, wanted: FileLock, reply: ReplyLock) {
        let conflict = self.open_file(handle).and_then(|open| open.file.test_lock(wanted));
        match conflict {
            Ok(None) => reply.locked(0, 0, libc::F_UNLCK, 0),
            Ok(Some(lock)) => {
                let kind = if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
                reply.locked(lock.start, lock.end, kind, lock.pid);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    /// A process closes a file, which releases all its `fcntl` locks on it. Then the kernel is told of
    /// changes by mapped memory.
    pub fn do_flush(&self, handle: FileHandle, owner: u64) -> Result<(), Errno> {
        let open = self.open_file(handle)?;
        if open.object_has_changed() {
            self.kernel_cache.entries.invalidate_attributes(open.file.ino());
        }
        let owner = LockOwner::Fcntl(owner);
        open.file.unlock_for(owner, 0, MAX_LOCK_OFFSET)
    }
}
