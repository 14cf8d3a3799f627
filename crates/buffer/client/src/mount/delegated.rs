//! Changes of entries that the mount reports to the kernel before the storage node has made them.
//!
//! The kernel checks permissions, and asks for the removal of an entry that it has looked up under the lease
//! on names. So with a [delegation](crate::sessions::Delegation) a removal can fail only for reasons that
//! concern the storage node or the connection to it.

use super::convert;
use super::mounted_fs::MountedFs;
use forebay_fuse::{INodeNo, ReplyEmpty, Request};
use forebay_protocol::message::{DIRECTORY_ENTRY_BYTES, NameRequest};
use forebay_protocol::{Attr, Credentials, Errno, Ino, Timestamp};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Instant, SystemTime};

impl MountedFs {
    /// Removes an entry that is no directory, after the reply that it is removed. Returns the reply if that is
    /// not possible.
    pub fn unlink_delegated(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEmpty,
    ) -> Option<ReplyEmpty> {
        if self.synchronous || !self.trusted {
            return Some(reply);
        }
        let (dir, name) = (convert::ino(parent), name.as_bytes());
        let sessions = self.fs.sessions();
        let Some(outstanding) = sessions.delegation.begin(Instant::now) else {
            return Some(reply);
        };
        let Some((known, _)) = self.kernel_cache.attributes.attributes(dir, Instant::now()) else {
            return Some(reply);
        };
        let change = self.kernel_cache.attributes.change_entry(dir);
        change.removed(name);
        let now = time_of_change(&known);
        let size = known.size.saturating_sub(DIRECTORY_ENTRY_BYTES);
        let attr = Attr { size, mtime: now, ctime: now, ..known };
        self.kernel_cache.attributes.note_changed_directory(&attr, outstanding.until());
        // With the reply the kernel asks for the attributes of the directory.
        drop(change);
        self.fs.requester.attachment.reservations.record_removal();
        reply.ok();
        let unlink = NameRequest::Unlink { parent: dir, name: name.to_vec() };
        let caller = checked_caller(request);
        if sessions.carry_out(outstanding, (dir, now), &caller, unlink).is_err() {
            self.kernel_cache.drop_all(); // what the kernel was told is wrong
        }
        None
    }

    /// Reports, once, a change of an entry of a directory that failed after it was reported as made.
    pub fn sync_directory(&self, request: &Request, dir: Ino) -> Result<(), Errno> {
        self.fs_for(request).sync()?;
        self.fs.sessions().delegation.report_failure(dir)
    }
}

/// The process that made a request, whose permissions the kernel has checked.
fn checked_caller(request: &Request) -> Credentials {
    Credentials { uid: request.uid(), gid: request.gid(), groups: Some(Vec::new()), checked: true }
}

/// The time of a change of a directory with these attributes: not before the last one.
fn time_of_change(directory: &Attr) -> Timestamp {
    directory.ctime.max(Timestamp::from(SystemTime::now()))
}
