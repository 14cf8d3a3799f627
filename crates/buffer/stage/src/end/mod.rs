//! The two ends of a copy: the parallel file system, or an instance. Both have [`DirHandle`]s and
//! [`FileHandle`]s. The parallel file system is a [`FileSystem`]: that of this host, or a simulated one.
//!
//! An instance is accessed by the client library, not by a mount: a process that copies into its own
//! mount could not be killed while it waits for itself. Where the storage daemon passes the
//! descriptor of a data object, bytes are transferred between two descriptors, by the kernel alone
//! where that is requested.

mod file_system;
mod identity;
mod instance;
mod instance_path;
mod local;
mod unnamed;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;

use forebay_protocol::Timestamp;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use file_system::LocalFileSystem;
pub use identity::{CannotActForUser, Identity};
pub use instance::Namespace;
pub(crate) use instance_path::{Found, mkdir_within, open_within};

/// Maximum length of a file that is copied in one piece, in bytes.
pub const MAX_SMALL_FILE: u64 = forebay_protocol::message::MAX_INLINE_FILE_BYTES as u64;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a pipe or a socket.
    Other,
}

/// The result of `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// The type.
    pub kind: FileKind,
    /// Permission bits: `0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of storage in use.
    pub allocated: u64,
    /// Number of hard links.
    pub nlink: u64,
    /// Device and inode number.
    pub inode: (u64, u64),
    /// Access time.
    pub accessed: Timestamp,
    /// Modification time.
    pub modified: Timestamp,
    /// Status change time.
    pub changed: Timestamp,
}

impl FileStat {
    /// Whether a file is unchanged: same size, and the same modification and status change times.
    pub fn is_unchanged(&self, now: &FileStat) -> bool {
        self.has_same_contents(now) && self.changed == now.changed
    }

    /// Whether the contents are unchanged. Creating a hard link changes the status change time only.
    pub fn has_same_contents(&self, now: &FileStat) -> bool {
        (self.size, self.inode, self.modified) == (now.size, now.inode, now.modified)
    }

    /// Whether the file may be copied in one piece: it is short and has no holes.
    pub fn is_small(&self) -> bool {
        self.kind == FileKind::File && self.size <= MAX_SMALL_FILE && !self.is_sparse()
    }

    /// Whether the file has fewer blocks than bytes.
    pub fn is_sparse(&self) -> bool {
        self.allocated < self.size
    }
}

/// A [small](FileStat::is_small) file to be written.
#[derive(Clone, Copy, Debug)]
pub struct SmallFile<'a> {
    /// Its name.
    pub name: &'a OsStr,
    /// Its attributes.
    pub stat: &'a FileStat,
    /// Its contents.
    pub contents: &'a [u8],
}

/// A small file that was read: its attributes and contents at one moment; `None` if it has to be opened
/// to be copied.
pub type ReadFile = Option<(FileStat, Vec<u8>)>;

/// Reads a small file that is open.
fn read_opened(file: &dyn FileHandle) -> Result<ReadFile, Errno> {
    let stat = file.opened_stat()?;
    let xattrs = match file.list_xattr() {
        Ok(names) => names,
        Err(Errno::NOTSUP | Errno::NOSYS) => Vec::new(),
        // The error is reported when the file is opened to be copied.
        Err(_) => return Ok(None),
    };
    let length = usize::try_from(stat.size).unwrap_or(usize::MAX);
    if !stat.is_small() || xattrs.iter().any(|name| is_xattr_kept(name)) {
        return Ok(None);
    }
    let mut contents = vec![0; length];
    let complete = file.read_at(&mut contents, 0)? == length && stat.is_unchanged(&file.stat()?);
    Ok(complete.then_some((stat, contents)))
}

/// The outcome of writing a small file in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The file exists.
    Stored,
    /// The file exists, and is durable only after the next [`DirHandle::syncfs`].
    Unsynced,
    /// The file has to be written step by step.
    Unsupported,
}

/// A device, pipe or socket in an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialFile {
    /// The type.
    pub kind: forebay_protocol::FileKind,
    /// Number of the device, if it is one.
    pub device: u32,
}

/// Whether copies keep the extended attribute `name`: those of users, and access control lists.
pub(crate) fn is_xattr_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

/// Sets extended attributes. Returns the permission bits that the file or directory may have then; those
/// that it should have are the argument.
pub type SetXattrs<'a> = &'a mut dyn FnMut(u32) -> u32;

/// An open file or directory.
pub trait Metadata {
    /// Its attributes now.
    fn stat(&self) -> Result<FileStat, Errno>;
    /// Sets the owner and group of `stat` as far as that is permitted, its permissions and times.
    /// `set_xattrs` runs in between, because a change of owner may remove extended attributes.
    fn set_metadata(&self, stat: &FileStat, set_xattrs: SetXattrs<'_>) -> Result<(), Errno>;
    /// Names of its extended attributes; `NOTSUP` if the file system has none.
    fn list_xattr(&self) -> Result<Vec<Vec<u8>>, Errno>;
    /// The value of an extended attribute.
    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno>;
    /// Sets an extended attribute.
    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno>;
}

/// An open directory. Names are single components, and symbolic links are not followed.
pub trait DirHandle: Metadata + Send + Sync {
    /// Another handle of the same directory.
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno>;
    /// Passes its entries, except `.` and `..`, to `take` until that returns `false`.
    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno>;
    /// The attributes of an entry.
    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno>;
    /// Opens a directory in it.
    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno>;
    /// Creates a directory with mode 0o700. Returns `false` if it exists.
    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno>;
    /// Opens a file for reading; `seen` is its entry as it was found.
    fn open(&self, name: &OsStr, seen: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno>;
    /// Opens a file for reading and writing, and creates it if necessary with mode 0o600. It is
    /// truncated unless `keep` is set.
    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn FileHandle>, Errno>;
    /// Opens a file that several movers write to, each a part, and creates it if necessary; it keeps
    /// its contents.
    fn create_shared(&self, name: &OsStr) -> Result<Box<dyn FileHandle>, Errno> {
        self.create(name, true)
    }
    /// Reads [small](FileStat::is_small) files, given by their names and their entries as they were found.
    /// Returns the result of each: its attributes and contents at one moment, or `None` if it has to be
    /// opened to be copied: it is another file by now, has extended attributes, or is open for writing.
    fn read_small_files(&self, files: &[(&OsStr, &FileStat)]) -> Vec<Result<ReadFile, Errno>> {
        files.iter().map(|(name, seen)| read_opened(&*self.open(name, Some(seen))?)).collect()
    }
    /// Creates files, each with its contents and attributes, replacing what has its name. Returns the
    /// result of each.
    fn put_small_files(&self, files: &[SmallFile<'_>]) -> Vec<Result<PutOutcome, Errno>> {
        vec![Ok(PutOutcome::Unsupported); files.len()]
    }
    /// The target of a symbolic link; `seen` is its entry as it was found.
    fn readlink(&self, name: &OsStr, seen: &FileStat) -> Result<OsString, Errno>;
    /// Creates a symbolic link with the owner and times of `stat`; `EXIST` if the name exists.
    fn symlink(&self, name: &OsStr, link_target: &OsStr, stat: &FileStat) -> Result<(), Errno>;
    /// The kind of a device, pipe or socket, and the number of a device, if it can be copied; `seen` is
    /// its entry as it was found.
    fn special_file(&self, name: &OsStr, seen: &FileStat) -> Result<Option<SpecialFile>, Errno> {
        let _ = (name, seen);
        Ok(None)
    }
    /// Creates a device, pipe or socket with the owner, permissions and times of `stat`; `NOTSUP` if
    /// this end has none, `EXIST` if the name exists.
    fn make_special_file(
        &self,
        name: &OsStr,
        special: SpecialFile,
        stat: &FileStat,
    ) -> Result<(), Errno> {
        let _ = (name, special, stat);
        Err(Errno::NOTSUP)
    }
    /// Creates a hard link of `existing` in `dir`, which is on the same end.
    fn link(&self, name: &OsStr, dir: &dyn DirHandle, existing: &OsStr) -> Result<(), Errno>;
    /// Removes an entry that is not a directory.
    fn unlink(&self, name: &OsStr) -> Result<(), Errno>;
    /// Removes an empty directory.
    fn rmdir(&self, name: &OsStr) -> Result<(), Errno>;
    /// Renames an entry, replacing what has the new name.
    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno>;
    /// Writes names, attributes and contents of the whole file system to stable storage, except
    /// contents of files that [need `fdatasync`](FileHandle::needs_fdatasync).
    fn syncfs(&self) -> Result<(), Errno>;
    /// The device number of its file system.
    fn device(&self) -> Result<u64, Errno>;
    /// Its descriptor, on the parallel file system.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The parallel file system.
pub trait FileSystem: fmt::Debug + Send + Sync {
    /// Opens a directory by its path, following symbolic links.
    fn open_dir(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno>;
    /// Opens a file by its path, following symbolic links.
    fn open_file(&self, path: &Path) -> Result<Box<dyn FileHandle>, Errno>;
}

/// An open regular file.
pub trait FileHandle: Metadata + Send + Sync {
    /// Its attributes when it was opened.
    fn opened_stat(&self) -> Result<FileStat, Errno> {
        self.stat()
    }
    /// Reads at `offset`; less than requested only at the end of the file.
    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno>;
    /// Writes all of `data`.
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno>;
    /// The next byte at or after `offset` that is data, or in a hole if `hole` is set.
    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno>;
    /// Sets its length.
    fn truncate(&self, size: u64) -> Result<(), Errno>;
    /// Its descriptor, for copies by the kernel.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Copies up to `length` bytes from a file at `from` to here at `to`, in the kernel. Returns the
    /// bytes copied. `ENOSYS`: this file has no descriptor.
    fn copy_from(
        &self,
        source: BorrowedFd<'_>,
        from: u64,
        to: u64,
        length: usize,
    ) -> Result<usize, Errno> {
        let target = self.descriptor().ok_or(Errno::NOSYS)?;
        let (mut from, mut to) = (from, to);
        rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), length)
    }
    /// Reserves the space for bytes to be written through the descriptor.
    fn reserve_space(&self, offset: u64, length: u64) -> Result<(), Errno>;
    /// Writes its contents to stable storage.
    fn fdatasync(&self) -> Result<(), Errno>;
    /// Whether [`DirHandle::syncfs`] does not cover its contents.
    fn needs_fdatasync(&self) -> bool;
}
