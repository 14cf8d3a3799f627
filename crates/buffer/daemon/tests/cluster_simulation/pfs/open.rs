//! Open files and directories of a mover in the parallel file system.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use forebay_stage::end::{DirHandle, FileHandle, FileKind, FileStat, Metadata, SetXattrs};
use rustix::io::Errno;

use super::{Open, What};

impl Metadata for Open {
    fn stat(&self) -> Result<FileStat, Errno> {
        self.pfs.reach()?.state(self.ino)
    }

    fn set_metadata(&self, state: &FileStat, set_xattrs: SetXattrs<'_>) -> Result<(), Errno> {
        let mode = set_xattrs(state.mode);
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let inode = tables.inodes.get_mut(&self.ino).ok_or(Errno::STALE)?;
        let (accessed, modified) = (state.accessed, state.modified);
        let inode_state = &mut inode.state;
        (inode_state.mode, inode_state.accessed) = (mode, accessed);
        (inode_state.uid, inode_state.gid) = (state.uid, state.gid);
        inode_state.modified = modified;
        tables.touch(self.ino, now, false);
        Ok(())
    }

    fn list_xattr(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let tables = self.pfs.reach()?;
        Ok(tables.get(self.ino)?.attributes.keys().cloned().collect())
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let tables = self.pfs.reach()?;
        let attributes = &tables.get(self.ino)?.attributes;
        attributes.get(name).cloned().ok_or(Errno::NODATA)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let mut tables = self.pfs.change()?;
        let inode = tables.inodes.get_mut(&self.ino).ok_or(Errno::STALE)?;
        inode.attributes.insert(name.to_vec(), value.to_vec());
        Ok(())
    }
}

impl DirHandle for Open {
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno> {
        let mut again = self.pfs.open(&*self.pfs.reach()?, self.ino);
        again.crashes = self.crashes;
        Ok(Box::new(again))
    }

    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno> {
        let entries = self.pfs.reach()?.entries(self.ino)?.clone();
        for (name, ino) in entries {
            let state = self.pfs.reach()?.state(ino);
            if !take(&name, state) {
                break;
            }
        }
        Ok(())
    }

    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        let tables = self.pfs.reach()?;
        tables.state(tables.child(self.ino, name)?)
    }

    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno> {
        let tables = self.pfs.reach()?;
        let ino = tables.child(self.ino, name)?;
        match tables.get(ino)?.what {
            What::Directory(_) => Ok(Box::new(self.pfs.open(&tables, ino))),
            What::File(_) => Err(Errno::NOTDIR),
            What::Link(_) => Err(Errno::LOOP),
        }
    }

    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        if tables.child(self.ino, name).is_ok() {
            return Ok(false);
        }
        let made = tables.make(What::Directory(BTreeMap::new()), FileKind::Directory, 0o700, now);
        tables.entries(self.ino)?.insert(name.to_owned(), made);
        tables.touch(self.ino, now, true);
        Ok(true)
    }

    fn open(&self, name: &OsStr, _: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno> {
        let tables = self.pfs.reach()?;
        let ino = tables.child(self.ino, name)?;
        match tables.get(ino)?.what {
            What::Link(_) => Err(Errno::LOOP),
            _ => Ok(Box::new(self.pfs.open(&tables, ino))),
        }
    }

    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn FileHandle>, Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let ino = match tables.child(self.ino, name) {
            Ok(ino) => ino,
            Err(_) => {
                let made = tables.make(What::File(Arc::default()), FileKind::File, 0o600, now);
                tables.entries(self.ino)?.insert(name.to_owned(), made);
                tables.touch(self.ino, now, true);
                made
            }
        };
        if !keep {
            tables.file(ino)?.clear();
            tables.touch(ino, now, true);
        }
        Ok(Box::new(self.pfs.open(&tables, ino)))
    }

    fn readlink(&self, name: &OsStr, _: &FileStat) -> Result<OsString, Errno> {
        let tables = self.pfs.reach()?;
        match &tables.get(tables.child(self.ino, name)?)?.what {
            What::Link(goal) => Ok(goal.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    fn symlink(&self, name: &OsStr, goal: &OsStr, _: &FileStat) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        if tables.child(self.ino, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let made = tables.make(What::Link(goal.to_owned()), FileKind::Symlink, 0o777, now);
        tables.entries(self.ino)?.insert(name.to_owned(), made);
        Ok(())
    }

    fn link(&self, name: &OsStr, folder: &dyn DirHandle, of: &OsStr) -> Result<(), Errno> {
        let ino = folder.lstat(of)?.inode.1;
        let mut tables = self.pfs.change()?;
        if tables.child(self.ino, name).is_ok() {
            return Err(Errno::EXIST);
        }
        tables.entries(self.ino)?.insert(name.to_owned(), ino);
        if let Some(inode) = tables.inodes.get_mut(&ino) {
            inode.state.nlink += 1;
        }
        Ok(())
    }

    fn unlink(&self, name: &OsStr) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let removed = tables.entries(self.ino)?.remove(name);
        tables.touch(self.ino, now, true);
        removed.map(|_| ()).ok_or(Errno::NOENT)
    }

    fn rmdir(&self, name: &OsStr) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let ino = *tables.entries(self.ino)?.get(name).ok_or(Errno::NOENT)?;
        if !tables.entries(ino)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        tables.entries(self.ino)?.remove(name);
        tables.touch(self.ino, now, true);
        Ok(())
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let entries = tables.entries(self.ino)?;
        let moved = entries.remove(from).ok_or(Errno::NOENT)?;
        entries.insert(to.to_owned(), moved);
        tables.touch(self.ino, now, true);
        Ok(())
    }

    fn syncfs(&self) -> Result<(), Errno> {
        let mut tables = self.pfs.change()?;
        if tables.crashes != self.crashes {
            return Err(Errno::IO);
        }
        tables.durable = tables.inodes.clone();
        Ok(())
    }

    fn device(&self) -> Result<u64, Errno> {
        Ok(9)
    }
}

impl FileHandle for Open {
    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut tables = self.pfs.reach()?;
        let bytes = tables.file(self.ino)?;
        let from = bytes.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        tables.has_room(data.len() as u64)?;
        let bytes = tables.file(self.ino)?;
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        tables.touch(self.ino, now, true);
        Ok(())
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let size = self.pfs.reach()?.state(self.ino)?.size;
        match (offset < size, hole) {
            (false, _) => Err(Errno::NXIO),
            (true, true) => Ok(size),
            (true, false) => Ok(offset),
        }
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        tables.file(self.ino)?.resize(size as usize, 0);
        tables.touch(self.ino, now, true);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn reserve_space(&self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        let mut tables = self.pfs.change()?;
        let inode = tables.get(self.ino)?.clone();
        tables.durable.insert(self.ino, inode);
        Ok(())
    }

    fn needs_fdatasync(&self) -> bool {
        false
    }
}
