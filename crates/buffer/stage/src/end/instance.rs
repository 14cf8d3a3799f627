//! An instance, accessed by the client library.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_client::{File, Fs, NewFile, Opened};
use forebay_protocol::message::{NewInode, OnExisting, OpenMode, SetAttr, SetTime, XattrMode};
use forebay_protocol::{Attr, Ino};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::{
    DirHandle, FileHandle, FileKind, FileStat, Metadata, PutOutcome, ReadFile, SetXattrs,
    SmallFile, SpecialFile,
};

/// Bytes of directory entries per request.
const DIR_PAGE_BYTES: u32 = 64 << 10;

/// A directory of an instance that is the root of a name space.
pub struct Namespace {
    fs: Fs,
    root: Ino,
    /// The path of the root in messages.
    display_path: PathBuf,
    /// For each device whose files are written by their descriptors, one of these files.
    written_devices: Mutex<BTreeMap<u64, OwnedFd>>,
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({})", self.display_path.display())
    }
}

impl Namespace {
    /// The name space at `root` in the instance of `fs`, with the permissions of its caller.
    /// `display_path` is the root in messages.
    pub fn new(
        fs: Fs,
        root: &Path,
        display_path: impl Into<PathBuf>,
    ) -> std::io::Result<Arc<Namespace>> {
        let found = fs.resolve(root, false).map_err(Errno::from)?;
        if found.kind != forebay_protocol::FileKind::Dir {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Arc::new(Namespace {
            fs,
            root: found.ino,
            display_path: display_path.into(),
            written_devices: Mutex::default(),
        }))
    }

    pub(crate) fn display_path(&self) -> &Path {
        &self.display_path
    }

    pub(super) fn root(&self) -> Ino {
        self.root
    }

    pub(super) fn fs(&self) -> &Fs {
        &self.fs
    }

    pub(super) fn dir_handle(self: &Arc<Namespace>, ino: Ino) -> Box<dyn DirHandle> {
        Box::new(InstanceDir { namespace: self.clone(), ino })
    }

    pub(super) fn open_file(self: &Arc<Namespace>, ino: Ino) -> Result<Box<dyn FileHandle>, Errno> {
        let mode = OpenMode { read: true, descriptor: true, ..OpenMode::default() };
        let opened = self.fs.open(ino, mode)?;
        Ok(Box::new(InstanceFile::new(self.clone(), opened)))
    }

    /// Records the device of a file that is about to be written by its descriptor.
    fn record_written_device(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let device = rustix::fs::fstat(descriptor)?.st_dev;
        let mut written = self.written_devices.lock();
        if let std::collections::btree_map::Entry::Vacant(vacant) = written.entry(device) {
            vacant.insert(rustix::io::fcntl_dupfd_cloexec(descriptor, 0)?);
        }
        Ok(())
    }
}

pub(super) fn file_stat(attr: &Attr) -> FileStat {
    FileStat {
        kind: match attr.kind {
            forebay_protocol::FileKind::File => FileKind::File,
            forebay_protocol::FileKind::Dir => FileKind::Directory,
            forebay_protocol::FileKind::Symlink => FileKind::Symlink,
            forebay_protocol::FileKind::Fifo
            | forebay_protocol::FileKind::Socket
            | forebay_protocol::FileKind::CharDevice
            | forebay_protocol::FileKind::BlockDevice => FileKind::Other,
        },
        mode: attr.mode.into(),
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        allocated: attr.blocks.saturating_mul(512),
        nlink: attr.nlink.into(),
        inode: (0, attr.ino.0),
        accessed: attr.atime,
        modified: attr.mtime,
        changed: attr.ctime,
    }
}

/// Owner, permissions and times of `wanted`.
fn set_attr_of(wanted: &FileStat) -> SetAttr {
    SetAttr {
        mode: u16::try_from(wanted.mode & 0o7777).ok(),
        uid: Some(wanted.uid),
        gid: Some(wanted.gid),
        size: None,
        atime: Some(SetTime::At(wanted.accessed)),
        mtime: Some(SetTime::At(wanted.modified)),
        clear_set_id: false,
    }
}

/// Sets attributes as far as that is permitted: only root may change the owner; the group may be one
/// of the caller's.
fn set_permitted<T>(
    mut set: SetAttr,
    mut act: impl FnMut(SetAttr) -> Result<T, forebay_protocol::Errno>,
) -> Result<T, Errno> {
    loop {
        match act(set.clone()).map_err(Errno::from) {
            Err(Errno::PERM) if set.uid.is_some() => set.uid = None,
            Err(Errno::PERM) if set.gid.is_some() => set.gid = None,
            outcome => return outcome,
        }
    }
}

/// Sets owner, permissions and times of an inode that belongs to `owner`.
fn set_inode_metadata(
    fs: &Fs,
    ino: Ino,
    owner: (u32, u32),
    wanted: &FileStat,
) -> Result<(), Errno> {
    let mut set = set_attr_of(wanted);
    set.uid = set.uid.filter(|uid| *uid != owner.0);
    set.gid = set.gid.filter(|gid| *gid != owner.1);
    set_permitted(set, |set| fs.set_attr(ino, None, set)).map(|_| ())
}

/// Methods for the extended attributes of an inode.
macro_rules! xattr_methods {
    () => {
        fn list_xattr(&self) -> Result<Vec<Vec<u8>>, Errno> {
            Ok(self.namespace.fs.list_xattr(self.ino())?)
        }

        fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
            Ok(self.namespace.fs.get_xattr(self.ino(), name)?)
        }

        fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
            Ok(self.namespace.fs.set_xattr(self.ino(), name, value, XattrMode::Any)?)
        }
    };
}

/// An open directory.
struct InstanceDir {
    namespace: Arc<Namespace>,
    ino: Ino,
}

impl InstanceDir {
    fn ino(&self) -> Ino {
        self.ino
    }

    fn find(&self, name: &OsStr) -> Result<Attr, Errno> {
        Ok(self.namespace.fs.lookup(self.ino, name.as_bytes())?)
    }

    /// The reason why a file that was found as `seen` cannot be read: `NOENT` if it was removed.
    fn reason(&self, name: &OsStr, seen: &FileStat, errno: Errno) -> Errno {
        let is_there = || Ok(self.find(name)?.ino.0 == seen.inode.1);
        match errno {
            Errno::STALE if matches!(is_there(), Ok(false) | Err(Errno::NOENT)) => Errno::NOENT,
            errno => errno,
        }
    }
}

impl Metadata for InstanceDir {
    fn stat(&self) -> Result<FileStat, Errno> {
        Ok(file_stat(&self.namespace.fs.get_attr(self.ino)?))
    }

    fn set_metadata(&self, wanted: &FileStat, set_xattrs: SetXattrs<'_>) -> Result<(), Errno> {
        let now = self.stat()?;
        let wanted = FileStat { mode: set_xattrs(wanted.mode), ..*wanted };
        set_inode_metadata(&self.namespace.fs, self.ino, (now.uid, now.gid), &wanted)
    }

    xattr_methods!();
}

impl DirHandle for InstanceDir {
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(self.namespace.dir_handle(self.ino))
    }

    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno> {
        let mut cookie = 0;
        loop {
            let page = self.namespace.fs.read_dir(self.ino, cookie, DIR_PAGE_BYTES, true)?;
            for entry in &page.entries {
                cookie = entry.cookie;
                let name = OsStr::from_bytes(&entry.name);
                if name == "." || name == ".." {
                    continue;
                }
                let found = match &entry.attr {
                    Some(attr) => Ok(file_stat(attr)),
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
        Ok(file_stat(&self.find(name)?))
    }

    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno> {
        let found = self.find(name)?;
        if found.kind == forebay_protocol::FileKind::Symlink {
            Err(Errno::LOOP)
        } else if found.kind == forebay_protocol::FileKind::Dir {
            Ok(self.namespace.dir_handle(found.ino))
        } else {
            Err(Errno::NOTDIR)
        }
    }

    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno> {
        match self.namespace.fs.mkdir(self.ino, name.as_bytes(), 0o700) {
            Ok(_) => Ok(true),
            Err(forebay_protocol::Errno::EEXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn open(&self, name: &OsStr, seen: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno> {
        let found = match seen {
            Some(stat) => *stat,
            None => self.lstat(name)?,
        };
        if found.kind == FileKind::Symlink {
            return Err(Errno::LOOP);
        }
        let opened = self.namespace.open_file(Ino(found.inode.1));
        opened.map_err(|errno| self.reason(name, &found, errno))
    }

    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn FileHandle>, Errno> {
        let mode = OpenMode {
            read: true,
            write: true,
            truncate: !keep,
            descriptor: true,
            ..OpenMode::NONE
        };
        let made = self.namespace.fs.create(self.ino, name.as_bytes(), 0o600, false, mode)?;
        if let Some(descriptor) = made.file.descriptor() {
            self.namespace.record_written_device(descriptor)?;
        }
        Ok(Box::new(InstanceFile::new(self.namespace.clone(), made)))
    }

    fn read_small_files(&self, files: &[(&OsStr, &FileStat)]) -> Vec<Result<ReadFile, Errno>> {
        let file = |(_, seen): &(&OsStr, &FileStat)| (Ino(seen.inode.1), seen.size);
        let fetched = self.namespace.fs.fetch_files(&files.iter().map(file).collect::<Vec<_>>());
        let read = |((name, seen), fetched): (&(&OsStr, &FileStat), _)| match fetched {
            Ok((attr, contents)) => {
                let stat = file_stat(&attr);
                Ok((stat.is_small() && !attr.extended).then_some((stat, contents)))
            }
            Err(forebay_protocol::Errno::EOPNOTSUPP) => Ok(None),
            Err(errno) => Err(self.reason(name, seen, errno.into())),
        };
        files.iter().zip(fetched).map(read).collect()
    }

    fn put_small_files(&self, files: &[SmallFile<'_>]) -> Vec<Result<PutOutcome, Errno>> {
        let fs = &self.namespace.fs;
        let new = |file: &SmallFile<'_>| NewFile {
            name: file.name.as_bytes().to_vec(),
            set: set_attr_of(file.stat),
            data: file.contents.to_vec(),
        };
        let put = fs.put_files(self.ino, files.iter().map(new).collect());
        let outcome = |(file, put): (&SmallFile<'_>, Result<Attr, forebay_protocol::Errno>)| {
            let put = match put.map_err(Errno::from) {
                // The same was refused with the owner.
                Err(Errno::PERM) => {
                    let set = SetAttr { uid: None, ..set_attr_of(file.stat) };
                    set_permitted(set, |set| {
                        fs.put_file((self.ino, file.name.as_bytes()), set, file.contents.to_vec())
                    })
                }
                put => put,
            };
            match put {
                // A power failure that loses the file also loses its journal entry.
                Ok(_) if fs.is_local(self.ino)? => Ok(PutOutcome::Stored),
                Ok(_) => Ok(PutOutcome::Unsynced),
                // There may be space on other nodes.
                Err(Errno::OPNOTSUPP | Errno::NOSPC) => Ok(PutOutcome::Unsupported),
                Err(error) => Err(error),
            }
        };
        files.iter().zip(put).map(outcome).collect()
    }

    fn readlink(&self, _: &OsStr, seen: &FileStat) -> Result<OsString, Errno> {
        Ok(OsString::from_vec(self.namespace.fs.read_link(Ino(seen.inode.1))?))
    }

    fn symlink(&self, name: &OsStr, link_target: &OsStr, like: &FileStat) -> Result<(), Errno> {
        let new = NewInode::Symlink(link_target.as_bytes().to_vec());
        let made = self.namespace.fs.make_inode(self.ino, name.as_bytes(), new, 0o777)?;
        let wanted = FileStat { mode: made.mode.into(), ..*like };
        set_inode_metadata(&self.namespace.fs, made.ino, (made.uid, made.gid), &wanted)
    }

    fn special_file(&self, name: &OsStr, _: &FileStat) -> Result<Option<SpecialFile>, Errno> {
        let found = self.find(name)?;
        Ok(Some(SpecialFile { kind: found.kind, device: found.rdev }))
    }

    fn make_special_file(
        &self,
        name: &OsStr,
        special: SpecialFile,
        like: &FileStat,
    ) -> Result<(), Errno> {
        let new = NewInode::Node(special.kind, special.device);
        let made = self.namespace.fs.make_inode(self.ino, name.as_bytes(), new, 0o600)?;
        set_inode_metadata(&self.namespace.fs, made.ino, (made.uid, made.gid), like)
    }

    fn link(&self, name: &OsStr, dir: &dyn DirHandle, existing: &OsStr) -> Result<(), Errno> {
        let file = Ino(dir.lstat(existing)?.inode.1);
        self.namespace.fs.link(file, self.ino, name.as_bytes())?;
        Ok(())
    }

    fn unlink(&self, name: &OsStr) -> Result<(), Errno> {
        Ok(self.namespace.fs.unlink(self.ino, name.as_bytes())?)
    }

    fn rmdir(&self, name: &OsStr) -> Result<(), Errno> {
        Ok(self.namespace.fs.rmdir(self.ino, name.as_bytes())?)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let (from, to) = ((self.ino, from.as_bytes()), (self.ino, to.as_bytes()));
        Ok(self.namespace.fs.rename(from, to, OnExisting::Replace)?)
    }

    fn syncfs(&self) -> Result<(), Errno> {
        // Contents first: a name must not survive a power failure that loses its contents.
        let written_devices = self.namespace.written_devices.lock();
        for file in written_devices.values() {
            rustix::fs::syncfs(file)?;
        }
        Ok(self.namespace.fs.sync()?)
    }

    fn device(&self) -> Result<u64, Errno> {
        Ok(0)
    }
}

/// An open file.
struct InstanceFile {
    namespace: Arc<Namespace>,
    file: Arc<File>,
    opened: Attr,
}

impl InstanceFile {
    fn new(namespace: Arc<Namespace>, opened: Opened) -> InstanceFile {
        InstanceFile { namespace, file: opened.file, opened: opened.attr }
    }

    fn ino(&self) -> Ino {
        self.file.ino()
    }
}

impl Metadata for InstanceFile {
    fn stat(&self) -> Result<FileStat, Errno> {
        Ok(file_stat(&self.namespace.fs.get_attr(self.ino())?))
    }

    fn set_metadata(&self, wanted: &FileStat, set_xattrs: SetXattrs<'_>) -> Result<(), Errno> {
        let wanted = FileStat { mode: set_xattrs(wanted.mode), ..*wanted };
        let owner = (self.opened.uid, self.opened.gid);
        set_inode_metadata(&self.namespace.fs, self.ino(), owner, &wanted)
    }

    xattr_methods!();
}

impl FileHandle for InstanceFile {
    fn opened_stat(&self) -> Result<FileStat, Errno> {
        Ok(file_stat(&self.opened))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        Ok(self.file.read_at(into, offset)?)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        Ok(self.file.write_all_at(data, offset)?)
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        Ok(self.file.seek(offset, hole)?)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.namespace.fs.set_attr(self.ino(), Some(&self.file), set)?;
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    fn reserve_space(&self, offset: u64, length: u64) -> Result<(), Errno> {
        Ok(self.file.reserve_space(offset, length)?)
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        Ok(self.file.fsync(true)?)
    }

    fn needs_fdatasync(&self) -> bool {
        self.file.descriptor().is_none()
    }
}
