//! The two ends of a copy: a directory of the parallel file system, or an instance. Both are
//! [`Folder`]s with [`Body`]s in them; a [`FileSystem`] can take the place of the parallel one.
//!
//! An instance is reached through the client library, not through a mount: a process that copies
//! into its own mount cannot be ended while it waits for itself. Where the storage daemon passes a
//! file's descriptor, its bytes move between two descriptors, by the kernel alone where that is
//! wanted.

mod confined;
mod identity;
mod instance;
mod instance_path;
mod local;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::io::Errno;

pub use confined::ConfinedFileSystem;
pub use identity::Identity;
pub use instance::Namespace;
pub(crate) use instance_path::{Found, make_within, open_within};
pub(crate) use local::{open_folder, open_path};

/// Longest file that is copied in one piece, in bytes.
pub const MAX_SMALL_FILE: u64 = forebay_protocol::message::MAX_INLINE_FILE_BYTES as u64;

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTime {
    /// Whole seconds.
    pub seconds: i64,
    /// And so much more.
    pub nanoseconds: u32,
}

impl FileTime {
    /// All of it in nanoseconds.
    pub fn nanoseconds_since_1970(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

/// What `stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits: `0o7777`.
    pub mode: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes of storage taken.
    pub allocated: u64,
    /// Names it has.
    pub nlink: u64,
    /// File system and inode.
    pub inode: (u64, u64),
    /// When it was read.
    pub accessed: FileTime,
    /// When its contents changed.
    pub modified: FileTime,
    /// When anything about it changed.
    pub changed: FileTime,
}

impl FileStat {
    /// Whether a file is as it was: same size, and neither contents nor attributes touched since.
    pub fn is_unchanged(&self, now: &FileStat) -> bool {
        self.has_same_contents(now) && self.changed == now.changed
    }

    /// The same, but for a further name: making a hard link touches the time of status change.
    pub fn has_same_contents(&self, now: &FileStat) -> bool {
        (self.size, self.inode, self.modified) == (now.size, now.inode, now.modified)
    }

    /// Whether a file may be copied in one piece: it is short, and without holes.
    pub fn is_small(&self) -> bool {
        self.kind == FileKind::File && self.size <= MAX_SMALL_FILE && !self.is_sparse()
    }

    /// Whether it takes less space than it is long.
    pub fn is_sparse(&self) -> bool {
        self.allocated < self.size
    }
}

/// What came of making a file at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is there.
    Stored,
    /// It is there, and nobody may rely on it before the next [`Folder::flush`].
    Unsynced,
    /// It has to be made step by step.
    Unsupported,
}

/// Is this the name of an extended attribute that copies keep?
pub(crate) fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

/// Something open that has attributes.
pub trait Metadata {
    /// Its state now.
    fn stat(&self) -> Result<FileStat, Errno>;
    /// Gives it owner and group as far as that is permitted, permissions and times of `state`;
    /// `attributes` are set in between, because a change of owner may take them away. `Ok` is what
    /// `attributes` returned.
    fn set_metadata(
        &self,
        state: &FileStat,
        attributes: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Result<(), String>, Errno>;
    /// Names of its extended attributes; `NOTSUP` where there can be none.
    fn attribute_names(&self) -> Result<Vec<Vec<u8>>, Errno>;
    /// The value of one.
    fn attribute(&self, name: &[u8]) -> Result<Vec<u8>, Errno>;
    /// Sets one.
    fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno>;
}

/// An open directory. Names are single components, and no symbolic link is followed.
pub trait DirHandle: Metadata + Send + Sync {
    /// The same directory, opened once more.
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno>;
    /// Its entries, `.` and `..` left out, until `take` returns `false`.
    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno>;
    /// The state of an entry.
    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno>;
    /// A directory in it.
    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno>;
    /// Makes a directory, for its owner alone; says whether there was none.
    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno>;
    /// Opens a file for reading; `seen` is what the entry was when it was found.
    fn open(&self, name: &OsStr, seen: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno>;
    /// Opens a file for writing and reading back, making it if need be for its owner alone; what
    /// is in it goes unless `keep`.
    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn FileHandle>, Errno>;
    /// All of a [small](State::is_small) file at once, in `into`, and its state; `seen` is what the
    /// entry was when it was found. `None`: it has to be opened to be copied, because it is
    /// something else by now, has extended attributes, or is being written.
    fn read_small_file(
        &self,
        name: &OsStr,
        seen: &FileStat,
        into: &mut Vec<u8>,
    ) -> Result<Option<FileStat>, Errno> {
        let body = self.open(name, Some(seen))?;
        let state = body.opened_stat()?;
        let names = match body.attribute_names() {
            Ok(names) => names,
            Err(Errno::NOTSUP | Errno::NOSYS) => Vec::new(),
            // Opened, it is told.
            Err(_) => return Ok(None),
        };
        let length = usize::try_from(state.size).unwrap_or(usize::MAX);
        if !state.is_small() || names.iter().any(|name| is_kept(name)) {
            return Ok(None);
        }
        into.resize(length, 0);
        let whole = body.read_at(into, 0)? == length && state.is_unchanged(&body.stat()?);
        Ok(whole.then_some(state))
    }
    /// Makes a file with these contents and what else belongs to it, as `state` says, in place of
    /// what has the name.
    fn put_small_file(
        &self,
        name: &OsStr,
        data: &[u8],
        state: &FileStat,
    ) -> Result<PutOutcome, Errno> {
        let _ = (name, data, state);
        Ok(PutOutcome::Unsupported)
    }
    /// What a symbolic link points to; `seen` is what the entry was when it was found.
    fn readlink(&self, name: &OsStr, seen: &FileStat) -> Result<OsString, Errno>;
    /// Makes a symbolic link with the owner and times of `state`; `EXIST` if the name is taken.
    fn symlink(&self, name: &OsStr, goal: &OsStr, state: &FileStat) -> Result<(), Errno>;
    /// Gives the file `of` in `folder`, which is on the same end, a further name.
    fn link(&self, name: &OsStr, folder: &dyn DirHandle, of: &OsStr) -> Result<(), Errno>;
    /// Removes a name of something that is not a directory.
    fn unlink(&self, name: &OsStr) -> Result<(), Errno>;
    /// Gives something another name here, in place of what has that name.
    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno>;
    /// Puts names, attributes and contents of the whole file system on stable storage; contents
    /// that `must_flush` says need it have been flushed one by one.
    fn syncfs(&self) -> Result<(), Errno>;
    /// Number of its file system.
    fn device(&self) -> Result<u64, Errno>;
    /// Its descriptor, on the parallel file system.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Something that takes the place of the system's own view of the parallel file system.
pub trait FileSystem: fmt::Debug + Send + Sync {
    /// Opens a directory by its path, following symbolic links.
    fn open_dir(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno>;
    /// Opens a file by its path, following symbolic links.
    fn open_file(&self, path: &Path) -> Result<Box<dyn FileHandle>, Errno>;
}

/// An open regular file.
pub trait FileHandle: Metadata + Send + Sync {
    /// Its state when it was opened.
    fn opened_stat(&self) -> Result<FileStat, Errno> {
        self.stat()
    }
    /// Reads at `offset`; less than asked for only at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno>;
    /// Writes all of `data`.
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno>;
    /// The next byte at or behind `offset` that is not in a hole, or that is, if `hole`.
    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno>;
    /// Gives it another length.
    fn truncate(&self, size: u64) -> Result<(), Errno>;
    /// The file itself, for copies by the kernel.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Makes sure of the space for bytes that are about to be written through the descriptor.
    fn reserve_space(&self, offset: u64, length: u64) -> Result<(), Errno>;
    /// Puts its contents on stable storage.
    fn fdatasync(&self) -> Result<(), Errno>;
    /// Whether [`Folder::flush`] leaves its contents out.
    fn needs_fdatasync(&self) -> bool;
}
