//! Opening, reading and writing through the mount.

use super::convert;
use super::mounted_fs::MountedFs;
use super::open_files::{OpenFile, SharedInode};
use crate::fs::{Fs, Opened};
use forebay_protocol::message::InodeRequest;
use forebay_protocol::message::{Allocate, SetAttr};
use forebay_protocol::{Errno, FileKind};
use fuser::{
    BackingId, FileHandle, FopenFlags, Generation, INodeNo, ReplyCreate, ReplyData, ReplyOpen,
    Request, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

thread_local! {
    /// Reads of this thread land here on their way to the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How to answer an open.
struct Answer {
    handle: FileHandle,
    flags: FopenFlags,
    /// The data object for the kernel to use directly.
    backing: Option<Arc<BackingId>>,
}

impl MountedFs {
    pub fn do_open(&self, request: &Request, ino: INodeNo, flags: i32, reply: ReplyOpen) {
        let opened = self.fs_to_open(request, ino, flags);
        let opened =
            opened.and_then(|fs| fs.open_quickly(convert::ino(ino), convert::open_mode(flags)));
        let answer = opened.and_then(|opened| {
            self.take_in(&opened, flags, |descriptor| reply.open_backing(descriptor))
        });
        match answer {
            Ok(answer) => match answer.backing {
                Some(id) => {
                    self.mark_registered();
                    reply.opened_passthrough(answer.handle, answer.flags, &id);
                }
                None => reply.opened(answer.handle, answer.flags),
            },
            Err(error) => reply.error(convert::errno(error)),
        }
    }

    /// What may be executed is opened for that, also by those who may not read it.
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
        mode: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (parent, name) = (convert::ino(parent), name.as_bytes());
        let (exclusive, open) = (flags & libc::O_EXCL != 0, convert::open_mode(flags));
        let fs = self.fs_for(request);
        self.negative_lookups.add_name(parent, name);
        let made = self.track_name(parent, || {
            let made = fs.create(parent, name, (mode & 0o7777) as u16, exclusive, open)?;
            let valid = made.ttl;
            Ok((made, valid))
        });
        let answer = made.and_then(|(opened, _)| {
            let taken =
                self.take_in(&opened, flags, |descriptor| reply.open_backing(descriptor))?;
            Ok((convert::attr(&opened.attr), opened.ttl, taken))
        });
        match answer {
            Ok((attr, valid, answer)) => match answer.backing {
                Some(id) => {
                    self.mark_registered();
                    let (handle, flags) = (answer.handle, answer.flags);
                    reply.created_passthrough(&valid, &attr, Generation(0), handle, flags, &id);
                }
                None => {
                    reply.created(&valid, &attr, Generation(0), answer.handle, answer.flags);
                }
            },
            Err(error) => reply.error(convert::errno(error)),
        }
    }

    /// Take an opened file into the table. `register` makes its data object known to the kernel.
    fn take_in(
        &self,
        opened: &Opened,
        flags: i32,
        register: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> Result<Answer, Errno> {
        let ino = opened.attr.ino;
        let shared = self.opens.acquire_inode(ino);
        if opened.attr.mode & 0o6000 != 0 {
            shared.set_id.store(true, Ordering::Release);
        }
        let result = self.register(opened, &shared, register);
        let backing = match result {
            Ok(backing) => backing,
            Err(error) => {
                self.opens.release_inode(ino);
                return Err(error);
            }
        };
        let write = opened.file.mode().write;
        let mut answer_flags = FopenFlags::empty();
        if backing.is_none() || write {
            answer_flags |= FopenFlags::FOPEN_DIRECT_IO;
            answer_flags |= FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        let append = flags & libc::O_APPEND != 0;
        let handle = self.opens.add(OpenFile {
            file: opened.file.clone(),
            append,
            shared,
        });
        Ok(Answer {
            handle,
            flags: answer_flags,
            backing,
        })
    }

    fn register(
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
                // All opens of an inode must be alike, so this is for all or for none.
                if self.disable_passthrough() {
                    tracing::info!(%error, "the kernel does not take data objects directly");
                    Ok(None)
                } else {
                    Err(error.into())
                }
            }
        }
    }

    pub(super) fn open_file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Errno> {
        self.opens.get(handle).ok_or(Errno::EBADF)
    }

    pub fn do_read(&self, handle: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let open = self.open_file(handle);
            match open.and_then(|open| open.file.read_at(&mut buffer[..size], offset)) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(convert::errno(error)),
            }
        });
    }

    pub fn do_write(
        &self,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u32, Errno> {
        let open = self.open_file(handle)?;
        let clears = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        if clears && open.shared.set_id.swap(false, Ordering::AcqRel) {
            self.clear_set_id(&open)?;
        }
        let written = if open.append {
            open.file.append(data)?
        } else {
            open.file.write_at(data, offset)?
        };
        Ok(written as u32)
    }

    fn clear_set_id(&self, open: &OpenFile) -> Result<(), Errno> {
        let fs = self.fs_as_root();
        let mode = fs.get_attr(open.file.ino())?.mode;
        let mut without = mode & !0o4000;
        if mode & 0o010 != 0 {
            without &= !0o2000;
        }
        if without != mode {
            let set = SetAttr {
                mode: Some(without),
                ..SetAttr::default()
            };
            fs.set_attr(open.file.ino(), None, set)?;
        }
        Ok(())
    }

    pub fn do_fsync(&self, handle: FileHandle, data_only: bool) -> Result<(), Errno> {
        self.open_file(handle)?.file.fsync(data_only)
    }

    pub fn do_allocate(
        &self,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let what = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::Zero { keep_size },
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.open_file(handle)?.file.allocate(offset, length, what)
    }

    pub fn do_seek(&self, handle: FileHandle, offset: i64, whence: i32) -> Result<i64, Errno> {
        let hole = match whence {
            libc::SEEK_HOLE => true,
            libc::SEEK_DATA => false,
            _ => return Err(Errno::EINVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        Ok(self.open_file(handle)?.file.seek(offset, hole)? as i64)
    }

    pub fn do_copy(
        &self,
        (from, from_offset): (FileHandle, u64),
        (to, to_offset): (FileHandle, u64),
        length: u64,
    ) -> Result<u32, Errno> {
        let (from, to) = (self.open_file(from)?, self.open_file(to)?);
        let length = length.min(u64::from(u32::MAX));
        Ok(from
            .file
            .copy_file_range(from_offset, &to.file, to_offset, length)? as u32)
    }

    pub fn do_set_attr(
        &self,
        request: &Request,
        ino: fuser::INodeNo,
        handle: Option<FileHandle>,
        mut set: SetAttr,
    ) -> Result<(forebay_protocol::Attr, Duration), Errno> {
        // With a new length or owner the kernel sends the mode without set-id bits; nobody asked for
        // that, and the daemon sees to it.
        if set.size.is_some() || set.uid.is_some() || set.gid.is_some() {
            set.mode = None;
        }
        let mode = set.mode;
        let open = handle.and_then(|handle| self.opens.get(handle));
        let gains = set.mode.is_some_and(|mode| mode & 0o6000 != 0);
        let ino = convert::ino(ino);
        let handle = open.as_ref().map(|open| open.file.handle());
        let closed = mode.is_some_and(|mode| mode & 0o111 != 0o111);
        if closed {
            self.negative_lookups.forget_directory(ino);
        }
        let request_set =
            forebay_protocol::Request::Inode(InodeRequest::SetAttr { ino, handle, set });
        let attr = self
            .fs_for(request)
            .attr_for(ino.metadata_node(), request_set)?;
        if gains {
            self.opens.mark_set_id(ino);
        }
        if closed && attr.0.kind == FileKind::Dir {
            std::thread::sleep(self.cached_entries.time_left(ino));
        }
        Ok(attr)
    }
}
