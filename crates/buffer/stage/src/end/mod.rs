//! The two ends of a copy: a directory of the parallel file system, or an instance. Both are
//! [`Folder`]s with [`Body`]s in them; a [`FileSystem`] can take the place of the parallel one.
//!
//! An instance is reached through the client library, not through a mount: a process that copies
//! into its own mount cannot be ended while it waits for itself. Where the storage daemon passes a
//! file's descriptor, its bytes move between two descriptors, by the kernel alone where that is
//! wanted.

mod beneath;
mod identity;
mod instance;
mod local;
mod within;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::io::Errno;

pub use beneath::Beneath;
pub use identity::Identity;
pub use instance::Space;
pub(crate) use local::{open_folder, open_path};
pub(crate) use within::{Found, make_within, open_within};

/// Longest file that is copied in one piece, in bytes.
pub const SMALL: u64 = forebay_protocol::message::MAX_WHOLE as u64;

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a pipe or a socket.
    Other,
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// And so much more.
    pub nanoseconds: u32,
}

impl Time {
    /// All of it in nanoseconds.
    pub fn nanoseconds_since_1970(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

/// What `stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// What it is.
    pub kind: Kind,
    /// Permission bits: `0o7777`.
    pub mode: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes of storage taken.
    pub space: u64,
    /// Names it has.
    pub names: u64,
    /// File system and inode.
    pub inode: (u64, u64),
    /// When it was read.
    pub accessed: Time,
    /// When its contents changed.
    pub modified: Time,
    /// When anything about it changed.
    pub changed: Time,
}

impl State {
    /// Whether a file is as it was: same size, and neither contents nor attributes touched since.
    pub fn is_unchanged(&self, now: &State) -> bool {
        self.has_same_contents(now) && self.changed == now.changed
    }

    /// The same, but for a further name: making a hard link touches the time of status change.
    pub fn has_same_contents(&self, now: &State) -> bool {
        (self.size, self.inode, self.modified) == (now.size, now.inode, now.modified)
    }

    /// Whether a file may be copied in one piece: it is short, and without holes.
    pub fn is_small(&self) -> bool {
        self.kind == Kind::File && self.size <= SMALL && !self.is_sparse()
    }

    /// Whether it takes less space than it is long.
    pub fn is_sparse(&self) -> bool {
        self.space < self.size
    }
}

/// What came of making a file at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Done,
    /// It is there, and nobody may rely on it before the next [`Folder::flush`].
    Unsure,
    /// It has to be made step by step.
    Not,
}

/// Is this the name of an extended attribute that copies keep?
pub(crate) fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

/// Something open that has attributes.
pub trait Attributes {
    /// Its state now.
    fn state(&self) -> Result<State, Errno>;
    /// Gives it owner and group as far as that is permitted, permissions and times of `state`;
    /// `attributes` are set in between, because a change of owner may take them away. `Ok` is what
    /// `attributes` returned.
    fn take_on(
        &self,
        state: &State,
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
pub trait Folder: Attributes + Send + Sync {
    /// The same directory, opened once more.
    fn again(&self) -> Result<Box<dyn Folder>, Errno>;
    /// Its entries, `.` and `..` left out, until `take` returns `false`.
    fn entries(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<State, Errno>) -> bool,
    ) -> Result<(), Errno>;
    /// The state of an entry.
    fn look(&self, name: &OsStr) -> Result<State, Errno>;
    /// A directory in it.
    fn folder(&self, name: &OsStr) -> Result<Box<dyn Folder>, Errno>;
    /// Makes a directory, for its owner alone; says whether there was none.
    fn make(&self, name: &OsStr) -> Result<bool, Errno>;
    /// Opens a file for reading; `seen` is what the entry was when it was found.
    fn open(&self, name: &OsStr, seen: Option<&State>) -> Result<Box<dyn Body>, Errno>;
    /// Opens a file for writing and reading back, making it if need be for its owner alone; what
    /// is in it goes unless `keep`.
    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn Body>, Errno>;
    /// All of a [small](State::is_small) file at once, in `into`, and its state; `seen` is what the
    /// entry was when it was found. `None`: it has to be opened to be copied, because it is
    /// something else by now, has extended attributes, or is being written.
    fn fetch(
        &self,
        name: &OsStr,
        seen: &State,
        into: &mut Vec<u8>,
    ) -> Result<Option<State>, Errno> {
        let body = self.open(name, Some(seen))?;
        let state = body.opened_state()?;
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
        let whole = body.read(into, 0)? == length && state.is_unchanged(&body.state()?);
        Ok(whole.then_some(state))
    }
    /// Makes a file with these contents and what else belongs to it, as `state` says, in place of
    /// what has the name.
    fn put(&self, name: &OsStr, data: &[u8], state: &State) -> Result<Put, Errno> {
        let _ = (name, data, state);
        Ok(Put::Not)
    }
    /// What a symbolic link points to; `seen` is what the entry was when it was found.
    fn goal(&self, name: &OsStr, seen: &State) -> Result<OsString, Errno>;
    /// Makes a symbolic link with the owner and times of `state`; `EXIST` if the name is taken.
    fn point(&self, name: &OsStr, goal: &OsStr, state: &State) -> Result<(), Errno>;
    /// Gives the file `of` in `folder`, which is on the same end, a further name.
    fn link(&self, name: &OsStr, folder: &dyn Folder, of: &OsStr) -> Result<(), Errno>;
    /// Removes a name of something that is not a directory.
    fn remove(&self, name: &OsStr) -> Result<(), Errno>;
    /// Gives something another name here, in place of what has that name.
    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno>;
    /// Puts names, attributes and contents of the whole file system on stable storage; contents
    /// that `must_flush` says need it have been flushed one by one.
    fn flush(&self) -> Result<(), Errno>;
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
    fn open_folder(&self, path: &Path) -> Result<Box<dyn Folder>, Errno>;
    /// Opens a file by its path, following symbolic links.
    fn open_file(&self, path: &Path) -> Result<Box<dyn Body>, Errno>;
}

/// An open regular file.
pub trait Body: Attributes + Send + Sync {
    /// Its state when it was opened.
    fn opened_state(&self) -> Result<State, Errno> {
        self.state()
    }
    /// Reads at `offset`; less than asked for only at the end.
    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno>;
    /// Writes all of `data`.
    fn write(&self, data: &[u8], offset: u64) -> Result<(), Errno>;
    /// The next byte at or behind `offset` that is not in a hole, or that is, if `hole`.
    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno>;
    /// Gives it another length.
    fn resize(&self, size: u64) -> Result<(), Errno>;
    /// The file itself, for copies by the kernel.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Makes sure of the space for bytes that are about to be written through the descriptor.
    fn promise(&self, offset: u64, length: u64) -> Result<(), Errno>;
    /// Puts its contents on stable storage.
    fn flush(&self) -> Result<(), Errno>;
    /// Whether [`Folder::flush`] leaves its contents out.
    fn must_flush(&self) -> bool;
}
