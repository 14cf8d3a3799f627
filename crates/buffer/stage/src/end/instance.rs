//! An instance, through the client library.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_client::{File, Fs, Opened};
use forebay_protocol::message::{NewInode, OnExisting, OpenMode, SetAttr, SetTime, XattrMode};
use forebay_protocol::{Attr, Ino, Timestamp};
use rustix::io::Errno;

use super::{DirHandle, FileHandle, FileKind, FileStat, FileTime, Metadata, PutOutcome};

/// Bytes of a directory that are asked for at a time.
const PAGE: u32 = 64 << 10;

/// A name space of an instance.
pub struct Namespace {
    fs: Fs,
    root: Ino,
    shown: PathBuf,
    /// A file on each file system whose files were written through their descriptors.
    written: Mutex<BTreeMap<u64, OwnedFd>>,
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({})", self.shown.display())
    }
}

impl Namespace {
    /// The name space at `root` in the instance of `fs`, on whose behalf everything is done;
    /// messages name it `shown`.
    pub fn new(fs: Fs, root: &Path, shown: impl Into<PathBuf>) -> std::io::Result<Arc<Namespace>> {
        let found = fs.resolve(root, false).map_err(errno)?;
        if found.kind != forebay_protocol::FileKind::Dir {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Arc::new(Namespace {
            fs,
            root: found.ino,
            shown: shown.into(),
            written: Mutex::default(),
        }))
    }

    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    pub(super) fn root(&self) -> Ino {
        self.root
    }

    pub(super) fn fs(&self) -> &Fs {
        &self.fs
    }

    pub(super) fn folder(self: &Arc<Namespace>, ino: Ino) -> Box<dyn DirHandle> {
        Box::new(Directory {
            space: self.clone(),
            ino,
        })
    }

    pub(super) fn body(self: &Arc<Namespace>, ino: Ino) -> Result<Box<dyn FileHandle>, Errno> {
        let mode = OpenMode {
            read: true,
            descriptor: true,
            ..OpenMode::default()
        };
        let opened = self.fs.open(ino, mode).map_err(errno)?;
        Ok(Box::new(Contents::new(self.clone(), opened)))
    }

    /// Remembers the file system of a descriptor that is about to be written through.
    fn note(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let device = rustix::fs::fstat(descriptor)?.st_dev;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let std::collections::btree_map::Entry::Vacant(place) = written.entry(device) {
            place.insert(rustix::io::fcntl_dupfd_cloexec(descriptor, 0)?);
        }
        Ok(())
    }
}

/// The system's number for the library's error.
pub(super) fn errno(error: forebay_protocol::Errno) -> Errno {
    Errno::from_raw_os_error(error.0)
}

pub(super) fn state(attr: &Attr) -> FileStat {
    let time = |time: Timestamp| FileTime {
        seconds: time.secs,
        nanoseconds: time.nanos,
    };
    FileStat {
        kind: match attr.kind {
            forebay_protocol::FileKind::File => FileKind::File,
            forebay_protocol::FileKind::Dir => FileKind::Directory,
            forebay_protocol::FileKind::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        },
        mode: attr.mode.into(),
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        allocated: attr.blocks.saturating_mul(512),
        nlink: attr.nlink.into(),
        inode: (0, attr.ino.0),
        accessed: time(attr.atime),
        modified: time(attr.mtime),
        changed: time(attr.ctime),
    }
}

/// Owner, permissions and times of `wanted`.
fn attributes(wanted: &FileStat) -> SetAttr {
    let time = |time: FileTime| {
        Some(SetTime::At(Timestamp {
            secs: time.seconds,
            nanos: time.nanoseconds,
        }))
    };
    SetAttr {
        mode: u16::try_from(wanted.mode & 0o7777).ok(),
        uid: Some(wanted.uid),
        gid: Some(wanted.gid),
        size: None,
        atime: time(wanted.accessed),
        mtime: time(wanted.modified),
    }
}

/// Sets attributes as far as that is permitted: only root may give files away; the group may still
/// be one of ours.
fn as_permitted<T>(
    mut set: SetAttr,
    mut act: impl FnMut(SetAttr) -> Result<T, forebay_protocol::Errno>,
) -> Result<T, Errno> {
    loop {
        match act(set.clone()).map_err(errno) {
            Err(Errno::PERM) if set.uid.is_some() => set.uid = None,
            Err(Errno::PERM) if set.gid.is_some() => set.gid = None,
            outcome => return outcome,
        }
    }
}

/// Gives an inode that belongs to `owner` what `wanted` has.
fn take_on(fs: &Fs, ino: Ino, owner: (u32, u32), wanted: &FileStat) -> Result<(), Errno> {
    let mut set = attributes(wanted);
    set.uid = set.uid.filter(|uid| *uid != owner.0);
    set.gid = set.gid.filter(|gid| *gid != owner.1);
    as_permitted(set, |set| fs.set_attr(ino, None, set)).map(|_| ())
}

/// An inode's extended attributes.
macro_rules! extended_attributes {
    () => {
        fn attribute_names(&self) -> Result<Vec<Vec<u8>>, Errno> {
            self.space.fs.list_xattr(self.ino()).map_err(errno)
        }

        fn attribute(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
            self.space.fs.get_xattr(self.ino(), name).map_err(errno)
        }

        fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
            let set = self
                .space
                .fs
                .set_xattr(self.ino(), name, value, XattrMode::Any);
            set.map_err(errno)
        }
    };
}

struct Directory {
    space: Arc<Namespace>,
    ino: Ino,
}

impl Directory {
    fn ino(&self) -> Ino {
        self.ino
    }

    fn find(&self, name: &OsStr) -> Result<Attr, Errno> {
        let found = self.space.fs.lookup(self.ino, name.as_bytes());
        found.map_err(errno)
    }
}

impl Metadata for Directory {
    fn stat(&self) -> Result<FileStat, Errno> {
        Ok(state(&self.space.fs.get_attr(self.ino).map_err(errno)?))
    }

    fn set_metadata(
        &self,
        wanted: &FileStat,
        attributes: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Result<(), String>, Errno> {
        let now = self.stat()?;
        let set = attributes();
        take_on(&self.space.fs, self.ino, (now.uid, now.gid), wanted)?;
        Ok(set)
    }

    extended_attributes!();
}

impl DirHandle for Directory {
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(self.space.folder(self.ino))
    }

    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno> {
        let mut cookie = 0;
        loop {
            let page = self.space.fs.read_dir(self.ino, cookie, PAGE, true);
            let page = page.map_err(errno)?;
            for entry in &page.entries {
                cookie = entry.cookie;
                let name = OsStr::from_bytes(&entry.name);
                if name == "." || name == ".." {
                    continue;
                }
                let found = match &entry.attr {
                    Some(attr) => Ok(state(attr)),
                    None => self.lstat(name),
                };
                if !take(name, found) {
                    return Ok(());
                }
            }
            if page.end || page.entries.is_empty() {
                return Ok(());
            }
        }
    }

    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        Ok(state(&self.find(name)?))
    }

    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno> {
        let found = self.find(name)?;
        match found.kind {
            forebay_protocol::FileKind::Dir => Ok(self.space.folder(found.ino)),
            forebay_protocol::FileKind::Symlink => Err(Errno::LOOP),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno> {
        match self.space.fs.mkdir(self.ino, name.as_bytes(), 0o700) {
            Ok(_) => Ok(true),
            Err(forebay_protocol::Errno::EEXIST) => Ok(false),
            Err(error) => Err(errno(error)),
        }
    }

    fn open(&self, name: &OsStr, seen: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno> {
        let found = match seen {
            Some(state) => *state,
            None => self.lstat(name)?,
        };
        if found.kind == FileKind::Symlink {
            return Err(Errno::LOOP);
        }
        self.space.body(Ino(found.inode.1))
    }

    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn FileHandle>, Errno> {
        let mode = OpenMode {
            read: true,
            write: true,
            truncate: !keep,
            descriptor: true,
        };
        let made = self
            .space
            .fs
            .create(self.ino, name.as_bytes(), 0o600, false, mode)
            .map_err(errno)?;
        if let Some(descriptor) = made.file.descriptor() {
            self.space.note(descriptor)?;
        }
        Ok(Box::new(Contents::new(self.space.clone(), made)))
    }

    fn read_small_file(
        &self,
        _: &OsStr,
        seen: &FileStat,
        into: &mut Vec<u8>,
    ) -> Result<Option<FileStat>, Errno> {
        match self.space.fs.fetch_file(Ino(seen.inode.1)) {
            Ok((attr, data)) => {
                let state = state(&attr);
                *into = data;
                Ok((state.is_small() && !attr.extended).then_some(state))
            }
            Err(forebay_protocol::Errno::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(errno(error)),
        }
    }

    fn put_small_file(
        &self,
        name: &OsStr,
        data: &[u8],
        like: &FileStat,
    ) -> Result<PutOutcome, Errno> {
        let fs = &self.space.fs;
        let put = as_permitted(attributes(like), |set| {
            fs.put_file((self.ino, name.as_bytes()), set, data.to_vec())
        });
        match put {
            // This host's journal is as old as its storage daemon's objects.
            Ok(_) if fs.is_local(self.ino).map_err(errno)? => Ok(PutOutcome::Stored),
            Ok(_) => Ok(PutOutcome::Unsynced),
            // There may be room on other nodes.
            Err(Errno::OPNOTSUPP | Errno::NOSPC) => Ok(PutOutcome::Unsupported),
            Err(error) => Err(error),
        }
    }

    fn readlink(&self, _: &OsStr, seen: &FileStat) -> Result<OsString, Errno> {
        let goal = self.space.fs.read_link(Ino(seen.inode.1));
        let goal = goal.map_err(errno)?;
        Ok(OsString::from_vec(goal))
    }

    fn symlink(&self, name: &OsStr, goal: &OsStr, like: &FileStat) -> Result<(), Errno> {
        let new = NewInode::Symlink(goal.as_bytes().to_vec());
        let made = self
            .space
            .fs
            .make_inode(self.ino, name.as_bytes(), new, 0o777);
        let made = made.map_err(errno)?;
        let wanted = FileStat {
            mode: made.mode.into(),
            ..*like
        };
        take_on(&self.space.fs, made.ino, (made.uid, made.gid), &wanted)
    }

    fn link(&self, name: &OsStr, folder: &dyn DirHandle, of: &OsStr) -> Result<(), Errno> {
        let file = Ino(folder.lstat(of)?.inode.1);
        let made = self.space.fs.link(file, self.ino, name.as_bytes());
        made.map(|_| ()).map_err(errno)
    }

    fn unlink(&self, name: &OsStr) -> Result<(), Errno> {
        let gone = self.space.fs.unlink(self.ino, name.as_bytes());
        gone.map_err(errno)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let (from, to) = ((self.ino, from.as_bytes()), (self.ino, to.as_bytes()));
        let renamed = self.space.fs.rename(from, to, OnExisting::Replace);
        renamed.map_err(errno)
    }

    fn syncfs(&self) -> Result<(), Errno> {
        // Contents first: a name must not outlive a power cut that its contents do not.
        let written = self
            .space
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for file in written.values() {
            rustix::fs::syncfs(file)?;
        }
        self.space.fs.sync().map_err(errno)
    }

    fn device(&self) -> Result<u64, Errno> {
        Ok(0)
    }
}

/// An open file.
struct Contents {
    space: Arc<Namespace>,
    file: Arc<File>,
    opened: Attr,
}

impl Contents {
    fn new(space: Arc<Namespace>, opened: Opened) -> Contents {
        Contents {
            space,
            file: opened.file,
            opened: opened.attr,
        }
    }

    fn ino(&self) -> Ino {
        self.file.ino()
    }
}

impl Metadata for Contents {
    fn stat(&self) -> Result<FileStat, Errno> {
        Ok(state(&self.space.fs.get_attr(self.ino()).map_err(errno)?))
    }

    fn set_metadata(
        &self,
        wanted: &FileStat,
        attributes: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Result<(), String>, Errno> {
        let set = attributes();
        let owner = (self.opened.uid, self.opened.gid);
        take_on(&self.space.fs, self.ino(), owner, wanted)?;
        Ok(set)
    }

    extended_attributes!();
}

impl FileHandle for Contents {
    fn opened_stat(&self) -> Result<FileStat, Errno> {
        Ok(state(&self.opened))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.file.read_at(into, offset).map_err(errno)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        self.file.write_all_at(data, offset).map_err(errno)
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        self.file.seek(offset, hole).map_err(errno)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        let set = self.space.fs.set_attr(self.ino(), Some(&self.file), set);
        set.map(|_| ()).map_err(errno)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    fn reserve_space(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.file.reserve_space(offset, length).map_err(errno)
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        self.file.fsync(true).map_err(errno)
    }

    fn needs_fdatasync(&self) -> bool {
        self.file.descriptor().is_none()
    }
}
