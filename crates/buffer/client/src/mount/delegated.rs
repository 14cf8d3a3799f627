//! Changes of entries that the mount reports to the kernel before the storage node has made them.
//!
//! The kernel checks permissions, and asks for the removal of an entry that it has looked up under the lease
//! on names, or for the creation of one that it has looked for. So with a
//! [delegation](crate::sessions::Delegation) a removal can fail only for reasons that concern the storage
//! node or the connection to it; and so can the creation of a file that was [prepared](super::prepared_files),
//! which needs nothing but its name.

use super::convert;
use super::mounted_fs::MountedFs;
use crate::file::File;
use crate::fs::Opened;
use crate::sessions::Reported;
use forebay_fuse::{INodeNo, ReplyCreate, ReplyEmpty, Request};
use forebay_protocol::message::{CreateMode, DIRECTORY_ENTRY_BYTES, NameRequest};
use forebay_protocol::{Attr, Credentials, Errno, FileKind, Ino, Timestamp};
use rustix::fs::{Timespec, Timestamps, futimens};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant, SystemTime};

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
        let Some(outstanding) = sessions.delegation.begin((dir, name), Instant::now) else {
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
        let reported = Reported { dir, created: None, now };
        let caller = checked_caller(request);
        if sessions.carry_out(outstanding, reported, &caller, unlink, || ()).is_err() {
            self.kernel_cache.drop_all(); // what the kernel was told is wrong
        }
        None
    }

    /// Creates and opens a file, after the reply that it is created. Returns the reply if that is not possible.
    pub fn create_delegated(
        &self,
        request: &Request,
        (dir, name): (Ino, &[u8]),
        (mode, flags): (CreateMode, i32),
        reply: ReplyCreate,
    ) -> Option<ReplyCreate> {
        // Set-id bits may depend on the caller's groups.
        if mode.bits & 0o7000 != 0 {
            return Some(reply);
        }
        let sessions = self.fs.sessions();
        let Some(outstanding) = sessions.delegation.begin((dir, name), Instant::now) else {
            return Some(reply);
        };
        let cache = &self.kernel_cache.attributes;
        let Some((known, _)) = cache.attributes(dir, Instant::now()) else {
            return Some(reply);
        };
        // It may have a default access control list.
        if known.extended || !self.is_known_to_be_absent(dir, name) {
            return Some(reply);
        }
        let Some(file) = self.prepared_files.take(&self.fs) else {
            return Some(reply);
        };
        let file = File::on_behalf_of(file, self.fs_for(request).requester);
        let now = time_of_data();
        let changed = known.ctime.max(now);
        let attr = attributes_of_new_file(request, &known, (file.ino(), mode), (now, changed));
        if set_times(&file, now).is_err() {
            drop(outstanding); // the close may wait for all of them
            return Some(reply);
        }
        file.note_new();
        let ttl = outstanding.until().saturating_duration_since(Instant::now());
        let opened = Opened { file: file.clone(), attr, created: true, ttl };
        let change = cache.change([attr.ino]);
        let register = |descriptor: BorrowedFd<'_>| reply.register(descriptor);
        let Ok(open) = self.add_open(&opened, (flags, change), register) else {
            drop(outstanding);
            return Some(reply);
        };
        self.negative_lookups.add_name(dir, name);
        let change = cache.change_entry(dir);
        change.created(name);
        self.directory_reads.note_name(dir, &attr);
        let size = known.size + DIRECTORY_ENTRY_BYTES;
        let directory = Attr { size, mtime: changed, ctime: changed, ..known };
        cache.note_changed_directory(&directory, outstanding.until());
        drop(change);
        self.reply_created(Ok((convert::attr(&attr), ttl, open)), reply);

        let create = NameRequest::Create {
            parent: dir,
            name: name.to_vec(),
            mode,
            exclusive: true,
            handle: file.handle(),
            open: file.mode(),
        };
        let (caller, sent_at) = (checked_caller(request), Instant::now());
        let reported = Reported { dir, created: Some(attr.ino), now };
        let mut next = None;
        let prepare_next = || next = self.prepared_files.begin_next(&self.fs);
        match sessions.carry_out(outstanding, reported, &caller, create, prepare_next) {
            Ok(Duration::ZERO) => {}
            Ok(_) => self.negative_lookups.confirm_alone(sent_at),
            Err(_) => self.kernel_cache.drop_all(), // what the kernel was told is wrong
        }
        // Until it has a name, the file ends with its handle, although the program may have closed it.
        drop((opened, file));
        if let Some(next) = next {
            self.prepared_files.finish_next(&self.fs, next);
        }
        None
    }

    /// Whether a directory has no such name, as the kernel has found: no other client can have created it since.
    fn is_known_to_be_absent(&self, dir: Ino, name: &[u8]) -> bool {
        let listed = || self.kernel_cache.attributes.entry(dir, name, Instant::now());
        self.negative_lookups.is_absent(dir, name) || matches!(listed(), Some((None, _)))
    }

    /// A file was created in reply to the kernel: has another one prepared if more are likely to follow, and
    /// could be reported before they are created.
    pub fn prepare_next_file(&self) {
        if let Some(next) = self.prepared_files.begin_next(&self.fs) {
            self.prepared_files.finish_next(&self.fs, next);
        }
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

/// The time by the clock with which the kernel stamps writes, some milliseconds behind the exact one. A write must
/// not be earlier than the last access, or the next read would not be recorded.
fn time_of_data() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { secs: now.tv_sec, nanos: now.tv_nsec as u32 }
}

/// The attributes of an empty file that is created at `now` in a directory without a default access control list,
/// as the storage node determines them. `changed`: the time of the change of the directory.
fn attributes_of_new_file(
    request: &Request,
    directory: &Attr,
    (ino, mode): (Ino, CreateMode),
    (now, changed): (Timestamp, Timestamp),
) -> Attr {
    let sets_group = directory.mode & 0o2000 != 0;
    Attr {
        ino,
        kind: FileKind::File,
        mode: mode.bits & !(mode.umask & 0o777),
        nlink: 1,
        uid: request.uid(),
        gid: if sets_group { directory.gid } else { request.gid() },
        atime: now,
        mtime: now,
        ctime: changed,
        ..Attr::default()
    }
}

/// Sets the times of the data object, which are those of the file.
fn set_times(file: &File, now: Timestamp) -> Result<(), Errno> {
    let object = file.descriptor().ok_or(Errno::EBADF)?;
    let time = Timespec { tv_sec: now.secs, tv_nsec: i64::from(now.nanos) };
    let times = Timestamps { last_access: time, last_modification: time };
    futimens(object, &times).map_err(|errno| std::io::Error::from(errno).into())
}
