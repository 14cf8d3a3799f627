//! Opening, reading and writing through the mount.

use super::attribute_cache::Change;
use super::convert;
use super::kernel_cache::Versions;
use super::mounted_fs::MountedFs;
use super::open_files::{OpenFile, SharedInode, object_time};
use super::recent_reads::is_read_to_be_shown;
use crate::file::File;
use crate::fs::{Fs, Opened};
use forebay_fuse::{
    BackingId, CopyRange, FileAttr, FileHandle, INodeNo, OpenFlags, ReadFlags, ReplyCreate,
    ReplyData, ReplyOpen, Request, WriteFlags,
};
use forebay_protocol::message::{Allocate, CreateMode, InodeRequest, SetAttr};
use forebay_protocol::{Attr, Errno, FileKind, Ino};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

thread_local! {
    /// The data that this thread reads for the kernel.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The reply to an open.
pub(super) struct OpenReply {
    handle: FileHandle,
    flags: OpenFlags,
    /// The data object for passthrough.
    backing: Option<Arc<BackingId>>,
}

impl MountedFs {
    pub fn do_open(&self, request: &Request, ino: INodeNo, flags: i32, reply: ReplyOpen) {
        // The kernel checks that for opens that write, and leaves this one to the file system.
        if flags & libc::O_TRUNC != 0 && self.opens.is_executed(convert::ino(ino)) {
            return reply.error(libc::ETXTBSY);
        }
        let change = self.kernel_cache.attributes.change([convert::ino(ino)]);
        let fs = self.fs_to_open(request, ino, flags);
        let opened =
            fs.and_then(|fs| fs.open_provisional(convert::ino(ino), convert::open_mode(flags)));
        let opened = self.note_if_removed(convert::ino(ino), opened);
        // Without privileges the truncation clears set-id bits. The kernel drops size and times from its
        // cache, but not the mode.
        if opened.is_ok() && flags & libc::O_TRUNC != 0 && request.uid() != 0 {
            self.kernel_cache.entries.invalidate_attributes(convert::ino(ino));
        }
        let added = opened.and_then(|opened| {
            self.add_open(&opened, (flags, change), |descriptor| reply.register(descriptor))
        });
        match added {
            Ok(open) => {
                if open.backing.is_some() {
                    self.mark_registered();
                }
                reply.opened(open.handle, open.flags, open.backing.as_deref());
            }
            Err(error) => reply.error(error.0),
        }
    }

    /// A file that may be executed can be opened for that also by processes that may not read it.
    fn fs_to_open(&self, request: &Request, ino: INodeNo, flags: i32) -> Result<Fs, Errno> {
        let fs = self.fs_for(request);
        if flags & convert::FMODE_EXEC == 0 || !self.trusted {
            return Ok(fs);
        }
        fs.access(convert::ino(ino), convert::ACCESS_EXECUTE)?;
        Ok(self.fs_as_root())
    }

    pub fn do_create(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        mode: CreateMode,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (parent, name) = (convert::ino(parent), name.as_bytes());
        let (exclusive, open) = (flags & libc::O_EXCL != 0, convert::open_mode(flags));
        let is_one_of_many = open.write && self.prepared_files.note_create(Instant::now());
        let reply = if is_one_of_many {
            match self.create_delegated(request, (parent, name), (mode, flags), reply) {
                Some(reply) => reply,
                None => return,
            }
        } else {
            reply
        };
        let fs = self.fs_for(request);
        self.negative_lookups.add_name(parent, name);
        let of_parent = self.kernel_cache.attributes.change_entry(parent);
        let created = self.track_name(parent, || {
            let opened = fs.create(parent, name, mode, exclusive, open)?;
            let ttl = opened.ttl;
            Ok((opened, ttl))
        });
        let added = created.and_then(|(opened, ttl)| {
            of_parent.created(name);
            let change = self.kernel_cache.attributes.change([opened.attr.ino]);
            self.directory_reads.note_name(parent, &opened.attr);
            let register = |descriptor: BorrowedFd<'_>| reply.register(descriptor);
            let open = self.add_open(&opened, (flags, change), register)?;
            Ok((convert::attr(&opened.attr), ttl, open))
        });
        // With the reply the kernel asks for the attributes of the directory.
        drop(of_parent);
        self.reply_created(added, reply);
        if is_one_of_many {
            self.prepare_next_file();
        }
    }

    /// Creates a file without a name (`O_TMPFILE`). The kernel gives it one only without `O_EXCL`.
    pub fn do_tmpfile(
        &self,
        request: &Request,
        parent: INodeNo,
        mode: CreateMode,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (linkable, open) = (flags & libc::O_EXCL == 0, convert::open_mode(flags));
        let created =
            self.fs_for(request).create_unnamed(convert::ino(parent), mode, linkable, open);
        let added = created.and_then(|opened| {
            let change = self.kernel_cache.attributes.change([opened.attr.ino]);
            let register = |descriptor: BorrowedFd<'_>| reply.register(descriptor);
            let open = self.add_open(&opened, (flags, change), register)?;
            // Another client that gives it a name is not known yet.
            Ok((convert::attr(&opened.attr), Duration::ZERO, open))
        });
        self.reply_created(added, reply);
    }

    /// Replies with a file that has been created and opened, and the time to live of its attributes.
    pub(super) fn reply_created(
        &self,
        added: Result<(FileAttr, Duration, OpenReply), Errno>,
        reply: ReplyCreate,
    ) {
        let ttl = added.as_ref().map_or(Duration::ZERO, |(_, ttl, _)| *ttl);
        let permit = self.kernel_cache.permit(ttl, Versions::Ignored);
        match added.map(|(attr, _, open)| (attr, permit.ttl_of(convert::ino(attr.ino)), open)) {
            Ok((attr, ttl, open)) => {
                if open.backing.is_some() {
                    self.mark_registered();
                }
                reply.created((ttl, &attr), open.handle, open.flags, open.backing.as_deref());
            }
            Err(error) => reply.error(error.0),
        }
    }

    /// Adds a file that was opened with `flags` to the table. `change` ends when it is closed. `register`
    /// registers its data object with the kernel.
    pub(super) fn add_open(
        &self,
        opened: &Opened,
        (flags, change): (i32, Change),
        register: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> Result<OpenReply, Errno> {
        let ino = opened.attr.ino;
        if opened.file.mode().truncate && opened.attr.extended {
            self.remove_capabilities(ino)?;
        }
        if flags & libc::O_NOATIME != 0 {
            opened.file.keep_access_time();
        }
        let shared = self.opens.acquire_inode(ino);
        if !is_read_to_be_shown(&opened.attr) {
            shared.was_read.store(true, Ordering::Relaxed);
        }
        if opened.attr.mode & 0o6000 != 0 {
            shared.set_id.store(true, Ordering::Release);
        }
        if opened.attr.extended {
            shared.capabilities.store(true, Ordering::Release);
        }
        let backing = match self.register_object(opened, &shared, register) {
            Ok(backing) => backing,
            Err(error) => {
                self.opens.release_inode(ino);
                return Err(error);
            }
        };
        let mut reply_flags = OpenFlags::empty();
        if backing.is_none() || opened.file.mode().write {
            reply_flags |= OpenFlags::DIRECT_IO;
            reply_flags |= OpenFlags::PARALLEL_DIRECT_WRITES;
        }
        let maps_writes = backing.is_some() && opened.file.mode().write;
        let known_time = if maps_writes { object_time(&opened.file) } else { None };
        let handle = self.opens.add(OpenFile {
            known_time: Mutex::new(known_time),
            file: opened.file.clone(),
            shared,
            executes: flags & convert::FMODE_EXEC != 0,
            _change: change,
        });
        Ok(OpenReply { handle, flags: reply_flags, backing })
    }

    fn register_object(
        &self,
        opened: &Opened,
        shared: &SharedInode,
        register: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> Result<Option<Arc<BackingId>>, Errno> {
        let Some(descriptor) = opened.file.descriptor().filter(|_| self.passthrough()) else {
            return Ok(None);
        };
        match shared.backing(descriptor, register) {
            Ok(backing) => Ok(Some(backing)),
            Err(error) => {
                // All opens of an inode must be alike, so passthrough is used for all or for none.
                if self.disable_passthrough() {
                    tracing::info!(%error, "FUSE passthrough is not available");
                    Ok(None)
                } else {
                    Err(error.into())
                }
            }
        }
    }

    /// Reads for the kernel. `open_flags` are those of `open` and of `fcntl`.
    pub fn do_read(
        &self,
        handle: FileHandle,
        (offset, size): (u64, u32),
        (flags, open_flags): (ReadFlags, i32),
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let end = offset.saturating_add(u64::from(size));
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let read = |open: Arc<OpenFile>| {
                if !flags.contains(ReadFlags::LOCK_OWNER) {
                    open.shared.mapped.read_pages(&open.file, offset..end);
                }
                let count = match open_flags & libc::O_DIRECT {
                    0 => open.file.read_at(&mut buffer[..size], offset)?,
                    _ => open.file.read_through(&mut buffer[..size], offset)?,
                };
                if count > 0 {
                    self.note_read(&open, offset);
                }
                Ok(count)
            };
            match self.open_file(handle).and_then(read) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(error.0),
            }
        });
    }

    /// Writes for the kernel. `open_flags` are those of `open` and of the write itself.
    pub fn do_write(
        &self,
        request: &Request,
        handle: FileHandle,
        (offset, open_flags): (u64, i32),
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u32, Errno> {
        let open = self.open_file(handle)?;
        if flags.contains(WriteFlags::KILL_SUIDGID) {
            self.clear_set_id(request, &open)?;
        }
        if open.shared.capabilities.swap(false, Ordering::AcqRel)
            && let Err(error) = self.remove_capabilities(open.file.ino())
        {
            open.shared.capabilities.store(true, Ordering::Release);
            return Err(error);
        }
        let (file, mapped) = (&open.file, &open.shared.mapped);
        let from_cache = flags.contains(WriteFlags::CACHE);
        let at_once = open_flags & (libc::O_DSYNC | libc::O_DIRECT) != 0;
        let written = if from_cache {
            // Nobody can be told of an error after this.
            mapped.write_pages(offset, data, |data| file.write_through(data, offset))?
        } else if open_flags & libc::O_APPEND != 0 {
            file.append(data)? // the kernel writes back nothing beyond the end
        } else {
            let read = |map: &File, into: &mut [u8]| map.read_at(into, offset);
            let write = || match at_once {
                true => file.write_through(data, offset),
                false => file.write_at(data, offset),
            };
            mapped.write(offset, data, read, write)?
        };
        assert!(written <= data.len());
        // The kernel does not sync after a write that bypasses its cache, as all writes to mounts do.
        if open_flags & libc::O_DSYNC != 0 {
            self.do_fsync(handle, open_flags & libc::O_SYNC != libc::O_SYNC)?;
        }
        if open.shared.was_read.load(Ordering::Relaxed) {
            open.shared.was_read.store(false, Ordering::Relaxed);
        }
        // These are pages of mapped memory, for which the kernel keeps the times that it caches.
        if from_cache {
            self.kernel_cache.entries.invalidate_attributes(open.file.ino());
        }
        Ok(written as u32)
    }

    /// A process without privileges changes the contents of a file, which clears its set-id bits.
    fn clear_set_id(&self, request: &Request, open: &OpenFile) -> Result<(), Errno> {
        if !open.shared.set_id.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let (ino, handle) = (open.file.ino(), Some(open.file.handle()));
        let set = SetAttr { clear_set_id: true, ..SetAttr::default() };
        let set_attr = InodeRequest::SetAttr { ino, handle, set };
        let cleared = self.fs_for(request).requester.call::<Attr>(ino.metadata_node(), set_attr);
        if cleared.is_err() {
            open.shared.set_id.store(true, Ordering::Release);
        }
        cleared?;
        // The kernel caches the mode as it was.
        self.kernel_cache.entries.invalidate_attributes(ino);
        Ok(())
    }

    pub fn do_fsync(&self, handle: FileHandle, data_only: bool) -> Result<(), Errno> {
        let file = self.open_file(handle)?.file.clone();
        // Its creation may be outstanding.
        self.fs.sessions().delegation.finish();
        file.fsync(data_only)?;
        self.fs.sessions().delegation.report_failure(file.ino())
    }

    pub fn do_fallocate(
        &self,
        request: &Request,
        handle: FileHandle,
        (offset, length): (u64, u64),
        mode: i32,
    ) -> Result<(), Errno> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let what = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::Zero { keep_size },
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let open = self.open_file(handle)?;
        // Only of writes does the kernel say whether they clear set-id bits.
        if request.uid() != 0 {
            self.clear_set_id(request, &open)?;
        }
        open.file.allocate(offset, length, what)
    }

    pub fn do_lseek(&self, handle: FileHandle, offset: i64, whence: i32) -> Result<i64, Errno> {
        let hole = match whence {
            libc::SEEK_HOLE => true,
            libc::SEEK_DATA => false,
            _ => return Err(Errno::EINVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        Ok(self.open_file(handle)?.file.seek(offset, hole)? as i64)
    }

    pub fn do_copy_file_range(&self, request: &Request, range: &CopyRange) -> Result<u32, Errno> {
        let ((from, from_offset), (to, to_offset)) = (range.from, range.to);
        let (from, to) = (self.open_file(from)?, self.open_file(to)?);
        if request.uid() != 0 {
            self.clear_set_id(request, &to)?;
        }
        let length = range.length.min(u64::from(u32::MAX));
        let copied = from.file.copy_file_range(from_offset, &to.file, to_offset, length)?;
        Ok(copied as u32)
    }

    /// The mode after a `chown` that names neither owner nor group, of which the kernel tells only by a
    /// request without anything to set. `None`: as it is. The kernel sends such a request before a stranger
    /// reserves space, too; then the reservation itself clears the bits.
    fn mode_without_set_id(&self, request: &Request, ino: Ino) -> Result<Option<u16>, Errno> {
        let Attr { kind, mode, uid, .. } = self.fs_as_root().get_attr(ino)?;
        // Without the execute bit of the group its set-id bit means mandatory locking.
        let set_id = if mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
        let changes = kind != FileKind::Dir && mode & set_id != 0;
        let may_change = request.uid() == 0 || request.uid() == uid;
        Ok((changes && may_change).then_some(mode & 0o7777 & !set_id))
    }

    pub fn do_set_attr(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: Option<FileHandle>,
        mut set: SetAttr,
    ) -> Result<(Attr, Duration), Errno> {
        // With a new length or owner the kernel also sends the mode without set-id bits. No process
        // requested that, and the daemon clears the bits itself.
        if set.size.is_some() || set.uid.is_some() || set.gid.is_some() {
            set.mode = None;
        }
        if set == SetAttr::default() {
            set.mode = self.mode_without_set_id(request, convert::ino(ino))?;
        }
        let mode = set.mode;
        let open = handle.and_then(|handle| self.opens.get(handle));
        let ino = convert::ino(ino);
        let _change = self.kernel_cache.attributes.change([ino]);
        let is_search_restricted =
            !self.kernel_permissions && mode.is_some_and(|mode| mode & 0o111 != 0o111);
        if is_search_restricted {
            self.negative_lookups.forget_directory(ino);
        }
        let fs = self.fs_for(request);
        let file = open.as_ref().map(|open| &*open.file);
        let (attr, ttl) = fs.set_attr_with_ttl(ino, file, set)?;
        if mode.is_some_and(|mode| mode & 0o6000 != 0) {
            self.opens.mark_set_id(ino);
        }
        // The kernel also unmounts what is mounted on directories whose names it drops.
        if is_search_restricted && attr.kind == FileKind::Dir {
            self.drop_cached_entries(ino);
        }
        Ok((attr, ttl))
    }
}
