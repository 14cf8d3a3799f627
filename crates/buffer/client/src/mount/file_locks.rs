//! File locks through the mount.

use super::convert;
use super::mounted_fs::MountedFs;
use super::reply::empty;
use forebay_fuse::{FileHandle, Lock, LockRequest, ReplyEmpty, ReplyLock, Request};
use forebay_protocol::lock::{FileLock, MAX_LOCK_OFFSET};
use forebay_protocol::{Errno, LockOwner};

impl MountedFs {
    pub fn do_set_lock(
        &self,
        request: &Request,
        lock: &LockRequest,
        wait: bool,
        reply: ReplyEmpty,
    ) {
        let open = match self.open_file(lock.handle) {
            Ok(open) => open,
            Err(error) => return reply.error(error.0),
        };
        let wanted = convert::lock(lock);
        if lock.lock.kind == libc::F_UNLCK {
            let FileLock { owner, start, end, .. } = wanted;
            return empty(reply, open.file.unlock_for(owner, start, end));
        }
        self.lock_waits.lock(request.id(), &open, wanted, wait, reply);
    }

    pub fn do_test_lock(&self, lock: &LockRequest, reply: ReplyLock) {
        let wanted = convert::lock(lock);
        let conflict = self.open_file(lock.handle).and_then(|open| open.file.test_lock(wanted));
        match conflict {
            Ok(None) => reply.locked(Lock { start: 0, end: 0, kind: libc::F_UNLCK, pid: 0 }),
            Ok(Some(FileLock { start, end, exclusive, pid, .. })) => {
                let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
                reply.locked(Lock { start, end, kind, pid });
            }
            Err(error) => reply.error(error.0),
        }
    }

    /// A process closes a file, which reports errors of delayed writes, and releases all its `fcntl` locks on
    /// it. Then the kernel is told of changes by mapped memory.
    pub fn do_flush(&self, handle: FileHandle, owner: u64) -> Result<(), Errno> {
        let open = self.open_file(handle)?;
        let written = open.file.check_writes();
        if open.object_has_changed() {
            self.kernel_cache.entries.invalidate_attributes(open.file.ino());
        }
        let owner = LockOwner::Fcntl(owner);
        open.file.unlock_for(owner, 0, MAX_LOCK_OFFSET).and(written)
    }
}
