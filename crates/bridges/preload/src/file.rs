//! Open files.

use crate::errno::last;
use crate::runtime::Attached;
use crate::{stat, table};
use forebay_client::{File, Fs};
use forebay_protocol::message::SetAttr;
use forebay_protocol::{Attr, Errno};
use parking_lot::Mutex;
use std::ffi::{CString, c_int};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Instant;

/// An open file of an instance, shared by all its descriptors.
#[derive(Debug)]
pub struct OpenFile {
    file: Arc<File>,
    fs: Fs,
    /// Instance that it is in.
    pub attached: &'static Attached,
    /// The path it was opened with.
    path: Vec<u8>,
    /// Status flags, as in `fcntl(F_GETFL)`.
    flags: AtomicI32,
    position: Mutex<u64>,
    /// Its descriptors are of the kernel now, and so is its position.
    is_moved: AtomicBool,
}

/// Whether any file of this process was moved to the kernel.
static IS_ANY_MOVED: AtomicBool = AtomicBool::new(false);

/// Status flags that a program can change.
const CHANGEABLE_FLAGS: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_ASYNC;
/// `O_LARGEFILE` as the kernel reports it; in the 64-bit C library the name is 0.
const LARGE_FILE: c_int = 0o100_000;
/// Flags of an open that are not status flags.
const CREATION_FLAGS: c_int = libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_CLOEXEC
    | libc::O_NOCTTY
    | libc::O_NOFOLLOW;

/// Transfers buffers in turn, each with the number of bytes before it, up to the first that is
/// transferred partly. An error counts if nothing was transferred before it.
fn in_turn<B: AsRef<[u8]>>(
    buffers: impl Iterator<Item = B>,
    mut transfer: impl FnMut(B, usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    for buffer in buffers {
        let length = buffer.as_ref().len();
        if length == 0 {
            continue;
        }
        match transfer(buffer, done) {
            Ok(count) => {
                assert!(count <= length, "{count} of {length} bytes");
                done += count;
                if count < length {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

impl OpenFile {
    /// A file that was opened with these flags.
    pub fn new(
        file: Arc<File>,
        fs: Fs,
        attached: &'static Attached,
        path: Vec<u8>,
        flags: c_int,
    ) -> Arc<OpenFile> {
        Arc::new(OpenFile {
            file,
            fs,
            attached,
            path,
            flags: AtomicI32::new(flags & !CREATION_FLAGS),
            position: Mutex::new(0),
            is_moved: AtomicBool::new(false),
        })
    }

    /// Whether its descriptors are of the kernel.
    pub fn is_moved(&self) -> bool {
        self.is_moved.load(Ordering::Acquire)
    }

    /// The path it was opened with.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Status flags.
    pub fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed) | LARGE_FILE
    }

    /// Sets the flags that can be changed.
    pub fn set_flags(&self, flags: c_int) {
        let kept = self.flags.load(Ordering::Relaxed) & !CHANGEABLE_FLAGS;
        self.flags.store(kept | flags & CHANGEABLE_FLAGS, Ordering::Relaxed);
    }

    fn has_flag(&self, flag: c_int) -> bool {
        self.flags.load(Ordering::Relaxed) & flag == flag
    }

    /// Attributes.
    pub fn attr(&self) -> Result<Attr, Errno> {
        self.fs.get_attr(self.file.ino())
    }

    /// Changes attributes.
    pub fn set_attr(&self, set: SetAttr) -> Result<(), Errno> {
        self.fs.set_attr(self.file.ino(), Some(&self.file), set).map(drop)
    }

    /// Sets the length.
    pub fn truncate(&self, size: u64) -> Result<(), Errno> {
        if !self.file.mode().write {
            return Err(Errno::EINVAL);
        }
        self.set_attr(SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// Writes the data to stable storage; what this process has written before the file became one
    /// of the kernel, too.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        self.file.fsync(data_only)
    }

    /// Waits until the storage node has all writes, before a descriptor is closed. Fails, once, if one
    /// that was reported as carried out has failed.
    pub fn flush(&self) -> Result<(), Errno> {
        self.file.flush()
    }

    /// As [`flush`](OpenFile::flush), but leaves errors to later calls.
    pub fn finish_writes(&self) {
        self.file.finish_writes();
    }

    /// Waits until the storage node has all writes through this file, or until the deadline.
    pub fn finish_writes_before(&self, deadline: Instant) {
        self.file.finish_writes_before(deadline);
    }

    /// Reads at an offset into the buffers, in turn.
    pub fn read_at(&self, buffers: &mut [&mut [u8]], offset: u64) -> Result<usize, Errno> {
        let done = in_turn(buffers.iter_mut(), |buffer, done| {
            self.file.read_at(buffer, offset + done as u64)
        })?;
        if done == 0 && !self.file.mode().read { Err(Errno::EBADF) } else { Ok(done) }
    }

    /// Writes the buffers, in turn, at an offset, or at the end with `O_APPEND`.
    pub fn write_at(&self, buffers: &[&[u8]], offset: u64) -> Result<usize, Errno> {
        let append = self.has_flag(libc::O_APPEND);
        let at_once = self.has_flag(libc::O_DSYNC) || self.has_flag(libc::O_DIRECT);
        let done = in_turn(buffers.iter(), |buffer, done| match append {
            true => self.file.append(buffer),
            false if at_once => self.file.write_through(buffer, offset + done as u64),
            false => self.file.write_at(buffer, offset + done as u64),
        })?;
        if done == 0 && !self.file.mode().write {
            return Err(Errno::EBADF);
        }
        if done > 0 && self.has_flag(libc::O_DSYNC) {
            self.file.fsync(!self.has_flag(libc::O_SYNC))?;
        }
        Ok(done)
    }

    /// Reads at the position. `None`: the kernel has it.
    pub fn read(&self, buffers: &mut [&mut [u8]]) -> Option<Result<usize, Errno>> {
        self.at_position(|file, position| {
            let count = file.read_at(buffers, position)?;
            Ok((count, position + count as u64))
        })
    }

    /// Writes at the position, or at the end with `O_APPEND`. `None`: the kernel has it.
    pub fn write(&self, buffers: &[&[u8]]) -> Option<Result<usize, Errno>> {
        self.at_position(|file, position| {
            if file.has_flag(libc::O_APPEND) {
                let count = file.write_at(buffers, 0)?;
                return Ok((count, if count > 0 { file.length()? } else { position }));
            }
            let count = file.write_at(buffers, position)?;
            Ok((count, position + count as u64))
        })
    }

    /// Moves the position. `None`: the kernel has it.
    pub fn seek(&self, offset: i64, whence: c_int) -> Option<Result<u64, Errno>> {
        self.at_position(|file, position| {
            let start = match whence {
                libc::SEEK_SET => 0,
                libc::SEEK_CUR => position,
                libc::SEEK_END => file.attr()?.size,
                libc::SEEK_DATA | libc::SEEK_HOLE => {
                    let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                    let found = file.file.seek(from, whence == libc::SEEK_HOLE)?;
                    return Ok((found, found));
                }
                _ => return Err(Errno::EINVAL),
            };
            let sum = start.checked_add_signed(offset).filter(|sum| i64::try_from(*sum).is_ok());
            let sum = sum.ok_or(Errno::EINVAL)?;
            Ok((sum, sum))
        })
    }

    /// The present length, after an append the offset of its end if nobody else appends.
    fn length(&self) -> Result<u64, Errno> {
        match self.file.descriptor() {
            Some(object) => stat::length_of(object.as_raw_fd()),
            None => Ok(self.attr()?.size),
        }
    }

    /// Runs an operation that moves the position, one at a time.
    fn at_position<T>(
        &self,
        operation: impl FnOnce(&OpenFile, u64) -> Result<(T, u64), Errno>,
    ) -> Option<Result<T, Errno>> {
        let mut position = self.position.lock();
        if self.is_moved() {
            return None;
        }
        Some(operation(self, *position).map(|(result, moved)| {
            *position = moved;
            result
        }))
    }

    /// Opens the file through the mount, under the same descriptors. From now on the kernel has
    /// its position. So it does for all open files of this process with the same inode: what the
    /// kernel knows of an inode, such as its length for an append, can be older than this process's
    /// last request. An error if it has no name any more, or must not be opened again; it stays as it
    /// is then.
    pub fn move_to_kernel(&self) -> Result<(), Errno> {
        for (_, file) in table::all() {
            if file.is_same_inode(self) {
                file.move_alone()?;
            }
        }
        Ok(())
    }

    /// Whether the kernel has another open file of this process with the same inode.
    pub fn is_inode_moved(&self) -> bool {
        IS_ANY_MOVED.load(Ordering::Acquire)
            && table::all().iter().any(|(_, file)| file.is_moved() && file.is_same_inode(self))
    }

    fn is_same_inode(&self, other: &OpenFile) -> bool {
        self.file.ino() == other.file.ino() && std::ptr::eq(self.attached, other.attached)
    }

    fn move_alone(&self) -> Result<(), Errno> {
        let position = self.position.lock();
        self.file.finish_writes();
        if self.is_moved() {
            return Ok(());
        }
        let path = CString::new(self.path.clone()).map_err(|_| Errno::EINVAL)?;
        let flags = self.flags() | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: `path` is a C string.
        let opened = unsafe { libc::open(path.as_ptr(), flags) };
        if opened < 0 {
            return Err(last());
        }
        // SAFETY: it was just opened, and nobody else has it.
        let opened = unsafe { OwnedFd::from_raw_fd(opened) };
        let found = stat::of_descriptor(opened.as_raw_fd())?;
        if (found.st_ino, found.st_dev) != (self.file.ino().0, self.attached.device) {
            return Err(Errno::ESTALE);
        }
        let offset = *position as i64;
        // SAFETY: an open descriptor.
        if unsafe { libc::lseek(opened.as_raw_fd(), offset, libc::SEEK_SET) } < 0 {
            return Err(last());
        }
        for (fd, file) in table::all() {
            if !std::ptr::eq(Arc::as_ptr(&file), self) {
                continue;
            }
            // SAFETY: both are open descriptors; the old one is only a number.
            let replaced = unsafe {
                let flags = libc::fcntl(fd, libc::F_GETFD);
                let keep = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
                libc::dup3(opened.as_raw_fd(), fd, keep)
            };
            assert_eq!(replaced, fd, "an open descriptor can be replaced");
        }
        self.is_moved.store(true, Ordering::Release);
        IS_ANY_MOVED.store(true, Ordering::Release);
        Ok(())
    }
}
