//! Changes are applied to the tables.

use super::memory::{entry_bytes, xattr_bytes, xattrs_table_bytes};
use super::{
    Body, Change, Directory, FileLength, Inode, LINKABLE, Namespace, PlannedInode, SetInode,
};
use forebay_protocol::acl;
use forebay_protocol::message::{ACCESS_ACL, NewInode, OnExisting};
use forebay_protocol::{FileKind, Ino, Timestamp};

/// Reason why a change cannot be applied: it was planned on other tables.
pub type ApplyError = &'static str;

impl Namespace {
    /// Apply a change. Fails, possibly halfway, only if it was planned on other tables.
    pub fn apply(&mut self, change: &Change) -> Result<(), ApplyError> {
        match change {
            Change::Make { parent, name, inode, now } => self.make(*parent, name, inode, *now),
            Change::Unlink { parent, name, now } => {
                let ino = self.take_name(*parent, name, *now)?;
                self.drop_link(ino, *now)
            }
            Change::RmDir { parent, name, now } => {
                let ino = self.take_name(*parent, name, *now)?;
                self.drop_dir(ino, *parent, *now)
            }
            Change::Rename { parent, name, to, to_name, existing, now } => match existing {
                OnExisting::Exchange => self.exchange((*parent, name), (*to, to_name), *now),
                OnExisting::Replace | OnExisting::Fail => {
                    self.rename((*parent, name), (*to, to_name), *now)
                }
            },
            Change::Link { ino, parent, name, now } => {
                let kind = self.kind(*ino)?;
                self.add_name(*parent, name, (*ino, kind), *now)?;
                self.add_link(*ino, *now)
            }
            Change::SetAttributes { ino, set } => self.set(*ino, set),
            Change::SetXattr { ino, name, value, now } => {
                self.set_xattr(*ino, name, value.as_deref(), *now)
            }
            Change::DropInode { ino } => self.drop_orphan(*ino),
            Change::SetEntry { dir, name, put, now } => self.set_entry(*dir, name, *put, *now),
            Change::MakeDir { ino, parent, mode, uid, gid, now } => {
                let new = PlannedInode {
                    ino: *ino,
                    new: NewInode::Dir,
                    mode: *mode,
                    uid: *uid,
                    gid: *gid,
                    opened: false,
                };
                self.make_nameless(&new, *parent, *now)
            }
            Change::RemoveName { ino, now } => match self.kind(*ino)? {
                FileKind::Dir => self.end_dir(*ino, *now),
                FileKind::File
                | FileKind::Symlink
                | FileKind::Fifo
                | FileKind::Socket
                | FileKind::CharDevice
                | FileKind::BlockDevice => self.drop_link(*ino, *now),
            },
            Change::AddName { ino, now } => self.add_link(*ino, *now),
            Change::MoveInode { ino, parent, now } => self.set_parent(*ino, *parent, *now),
            Change::Put { parent, name, inode, times, length, now } => {
                self.put(*parent, name, (inode, *times, *length), *now)
            }
            Change::MakeUnnamed { parent, inode, linkable, now } => {
                self.make_unnamed(inode, *parent, *linkable, *now)
            }
            Change::SetLength { ino, length, times } => self.set_length(*ino, *length, *times),
            Change::SetAccessAcl { ino, value, mode, now } => {
                self.set_xattr(*ino, ACCESS_ACL, value.as_deref(), *now)?;
                self.inode_mut(*ino)?.mode = *mode;
                Ok(())
            }
            Change::CreateWithAcls { create, acls } => {
                let ino = create.created().ok_or("no inode is created")?;
                self.apply(create)?;
                let now = self.inode_mut(ino)?.ctime;
                acls.iter()
                    .try_for_each(|(name, value)| self.set_xattr(ino, name, Some(value), now))
            }
        }
    }

    /// Create an inode with a name.
    fn make(
        &mut self,
        parent: Ino,
        name: &[u8],
        new: &PlannedInode,
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        if self.inodes.contains_key(&new.ino) {
            return Err("the inode exists");
        }
        let built = new.build(parent, self.striped, now);
        self.add_name(parent, name, (new.ino, built.kind()), now)?;
        if built.dir().is_some() {
            self.inode_mut(parent)?.nlink += 1;
        }
        self.insert_inode(new.ino, built);
        Ok(())
    }

    fn insert_inode(&mut self, ino: Ino, inode: Inode) {
        self.memory_bytes += inode.memory_bytes();
        let replaced = self.inodes.insert(ino, inode);
        debug_assert!(replaced.is_none(), "an inode number is used once");
        self.reserve_ino(ino);
    }

    /// Create an inode without a name here.
    fn make_nameless(
        &mut self,
        new: &PlannedInode,
        parent: Ino,
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        if self.inodes.contains_key(&new.ino) {
            return Err("the inode exists");
        }
        self.insert_inode(new.ino, new.build(parent, self.striped, now));
        Ok(())
    }

    /// Create a file without a name.
    fn make_unnamed(
        &mut self,
        new: &PlannedInode,
        parent: Ino,
        linkable: bool,
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        self.make_nameless(new, parent, now)?;
        let inode = self.inode_mut(new.ino)?;
        if inode.dir().is_some() {
            return Err("a directory has a name");
        }
        inode.nlink = 0;
        self.orphans.insert(new.ino);
        if linkable {
            self.set_xattr(new.ino, LINKABLE, Some(&[]), now)?;
        }
        Ok(())
    }

    fn set(&mut self, ino: Ino, set: &SetInode) -> Result<(), ApplyError> {
        let inode = self.inode_mut(ino)?;
        if let Some(mode) = set.mode {
            inode.mode = mode;
            if let Some(value) = inode.xattrs.get_mut(ACCESS_ACL) {
                acl::set_mode(value, mode);
            }
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        inode.atime = set.atime.unwrap_or(inode.atime);
        inode.mtime = set.mtime.unwrap_or(inode.mtime);
        inode.ctime = set.ctime;
        Ok(())
    }

    fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        let inode = self.inode_mut(ino)?;
        let mut freed = xattrs_table_bytes(inode.xattrs.len());
        let replaced = match value {
            Some(value) => inode.xattrs.insert(name.to_vec(), value.to_vec()),
            None => inode.xattrs.remove(name),
        };
        inode.ctime = now;
        freed += replaced.map_or(0, |old| xattr_bytes(name, &old));
        let taken = xattrs_table_bytes(inode.xattrs.len())
            + value.map_or(0, |value| xattr_bytes(name, value));
        self.memory_bytes = self.memory_bytes + taken - freed;
        Ok(())
    }

    /// An inode was renamed; a directory with a `parent` has another parent now.
    fn set_parent(
        &mut self,
        ino: Ino,
        parent: Option<Ino>,
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        self.inode_mut(ino)?.ctime = now;
        if let Some(parent) = parent {
            self.dir_mut(ino)?.parent = parent;
        }
        Ok(())
    }

    fn set_length(
        &mut self,
        ino: Ino,
        length: FileLength,
        times: Option<(Timestamp, Timestamp)>,
    ) -> Result<(), ApplyError> {
        let inode = self.inode_mut(ino)?;
        if let Some((mtime, ctime)) = times {
            (inode.mtime, inode.ctime) = (mtime, ctime);
        }
        match &mut inode.body {
            Body::Striped(known) => *known = length,
            Body::File | Body::Dir(_) | Body::Symlink(_) | Body::Special(..) => {
                return Err("not a striped file");
            }
        }
        Ok(())
    }

    fn drop_orphan(&mut self, ino: Ino) -> Result<(), ApplyError> {
        if !self.orphans.remove(&ino) {
            return Err("the inode still has a name");
        }
        if let Some(inode) = self.inodes.remove(&ino) {
            self.memory_bytes -= inode.memory_bytes();
        }
        Ok(())
    }

    /// Create a file with contents, in place of a file that has the name.
    fn put(
        &mut self,
        parent: Ino,
        name: &[u8],
        (new, times, length): (&PlannedInode, (Timestamp, Timestamp), Option<FileLength>),
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        if self.inodes.contains_key(&new.ino) {
            return Err("the inode exists");
        }
        let mut built = new.build(parent, self.striped, now);
        (built.atime, built.mtime) = times;
        if let (Body::Striped(known), Some(length)) = (&mut built.body, length) {
            *known = length;
        }
        let what = (new.ino, built.kind());
        match self.touch_dir(parent, now)?.replace(name, what) {
            None => self.add_name(parent, name, what, now)?,
            Some((old, _)) => self.drop_link(old, now)?,
        }
        self.insert_inode(new.ino, built);
        Ok(())
    }

    fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, ApplyError> {
        self.inodes.get_mut(&ino).ok_or("no such inode")
    }

    fn kind(&self, ino: Ino) -> Result<FileKind, ApplyError> {
        self.get(ino).map(Inode::kind).ok_or("no such inode")
    }

    /// Set or remove an entry. The directory's own link count follows.
    fn set_entry(
        &mut self,
        dir: Ino,
        name: &[u8],
        put: Option<(Ino, FileKind)>,
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        let entries = self.touch_dir(dir, now)?;
        let old = entries.entry(name).map(|entry| entry.kind);
        match put {
            None => {
                entries.remove(name).ok_or("no such name")?;
                self.memory_bytes -= entry_bytes(name);
            }
            Some(new) if old.is_some() => {
                entries.replace(name, new);
            }
            Some(new) => {
                entries.insert(name, new, entries.next_cookie);
                self.memory_bytes += entry_bytes(name);
            }
        }
        let inode = self.inode_mut(dir)?;
        if old == Some(FileKind::Dir) {
            remove_link(inode);
        }
        if put.is_some_and(|(_, kind)| kind == FileKind::Dir) {
            inode.nlink += 1;
        }
        Ok(())
    }

    fn dir_mut(&mut self, ino: Ino) -> Result<&mut Directory, ApplyError> {
        match &mut self.inode_mut(ino)?.body {
            Body::Dir(dir) => Ok(dir),
            Body::File | Body::Striped(_) | Body::Symlink(_) | Body::Special(..) => {
                Err("not a directory")
            }
        }
    }

    /// The entries of a directory that is changed.
    fn touch_dir(&mut self, ino: Ino, now: Timestamp) -> Result<&mut Directory, ApplyError> {
        let inode = self.inode_mut(ino)?;
        inode.mtime = now;
        inode.ctime = now;
        self.dir_mut(ino)
    }

    fn add_name(
        &mut self,
        dir: Ino,
        name: &[u8],
        what: (Ino, FileKind),
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        let dir = self.touch_dir(dir, now)?;
        if dir.get(name).is_some() {
            return Err("the name exists");
        }
        dir.insert(name, what, dir.next_cookie);
        self.memory_bytes += entry_bytes(name);
        Ok(())
    }

    fn take_name(&mut self, dir: Ino, name: &[u8], now: Timestamp) -> Result<Ino, ApplyError> {
        let entry = self.touch_dir(dir, now)?.remove(name).ok_or("no such name")?;
        self.memory_bytes -= entry_bytes(name);
        Ok(entry.ino)
    }

    fn add_link(&mut self, ino: Ino, now: Timestamp) -> Result<(), ApplyError> {
        let inode = self.inode_mut(ino)?;
        inode.nlink += 1;
        inode.ctime = now;
        if inode.nlink > 1 {
            return Ok(());
        }
        if !self.orphans.remove(&ino) {
            return Err("an inode without a name is no orphan");
        }
        self.set_xattr(ino, LINKABLE, None, now)
    }

    /// An inode loses a name; without any it is an orphan.
    fn drop_link(&mut self, ino: Ino, now: Timestamp) -> Result<(), ApplyError> {
        let inode = self.inode_mut(ino)?;
        remove_link(inode);
        inode.ctime = now;
        if inode.nlink == 0 {
            self.orphans.insert(ino);
        }
        Ok(())
    }

    /// A directory is removed from its parent.
    fn drop_dir(&mut self, ino: Ino, parent: Ino, now: Timestamp) -> Result<(), ApplyError> {
        self.end_dir(ino, now)?;
        remove_link(self.inode_mut(parent)?);
        Ok(())
    }

    /// A directory loses its name.
    fn end_dir(&mut self, ino: Ino, now: Timestamp) -> Result<(), ApplyError> {
        if !self.dir_mut(ino)?.is_empty() {
            return Err("the directory is not empty");
        }
        let inode = self.inode_mut(ino)?;
        inode.nlink = 0;
        inode.ctime = now;
        self.orphans.insert(ino);
        Ok(())
    }

    fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        let ino = self.take_name(from.0, from.1, now)?;
        let kind = self.kind(ino)?;
        let replaced = self.touch_dir(to.0, now)?.replace(to.1, (ino, kind));
        match replaced.map(|(old, _)| old) {
            None => self.add_name(to.0, to.1, (ino, kind), now)?,
            Some(old) if self.get(old).is_some_and(|inode| inode.dir().is_some()) => {
                self.drop_dir(old, to.0, now)?;
            }
            Some(old) => self.drop_link(old, now)?,
        }
        self.moved(ino, from.0, to.0, now)
    }

    fn exchange(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        now: Timestamp,
    ) -> Result<(), ApplyError> {
        let entry = self.dir_mut(to.0)?.entry(to.1).ok_or("no such name")?;
        let second = (entry.ino, entry.kind);
        let first = self.touch_dir(from.0, now)?.replace(from.1, second).ok_or("no such name")?;
        self.touch_dir(to.0, now)?.replace(to.1, first);
        self.moved(first.0, from.0, to.0, now)?;
        self.moved(second.0, to.0, from.0, now)
    }

    /// An inode was moved between directories: `..` of a directory follows.
    fn moved(&mut self, ino: Ino, from: Ino, to: Ino, now: Timestamp) -> Result<(), ApplyError> {
        let inode = self.inode_mut(ino)?;
        inode.ctime = now;
        if let Body::Dir(dir) = &mut inode.body
            && from != to
        {
            dir.parent = to;
            remove_link(self.inode_mut(from)?);
            self.inode_mut(to)?.nlink += 1;
        }
        Ok(())
    }
}

fn remove_link(inode: &mut Inode) {
    inode.nlink = inode.nlink.saturating_sub(1);
}
