//! Operations are checked against permissions and the tables, and planned as changes.

use super::{Change, Directory, Inode, Namespace, PlannedInode, SetInode};
use forebay_protocol::acl::{Acl, InheritedAcls, NO_ENTRIES};
use forebay_protocol::message::{
    ACCESS_ACL, CreateMode, DEFAULT_ACL, MAX_NAME, MAX_SYMLINK_TARGET, MAX_XATTR, NewInode,
    SetAttr, SetTime, XattrMode, is_acl, is_xattr_supported,
};
use forebay_protocol::{Credentials, Errno, FileKind, Ino, Timestamp};

/// Read permission.
pub const READ: u16 = 4;
/// Write permission.
pub const WRITE: u16 = 2;
/// Permission to execute, or to look up names in a directory.
pub const EXEC: u16 = 1;
/// Bytes of extended attributes that an inode may have, names and values together.
const XATTR_SPACE: usize = 128 * 1024;

/// Checks of a user's rights.
pub trait Access {
    /// `EACCES` unless the user may access `inode` in all the ways that the bits of `want` name.
    fn check_access(&self, inode: &Inode, want: u16) -> Result<(), Errno>;
    /// `EPERM` unless the user owns `inode` or is privileged.
    fn check_owner(&self, inode: &Inode) -> Result<(), Errno>;
}

impl Access for Credentials {
    fn check_access(&self, inode: &Inode, want: u16) -> Result<(), Errno> {
        if self.checked {
            return Ok(());
        }
        if self.uid == 0 {
            // Root may do anything except execute a file that no user may execute.
            let executable = inode.mode & 0o111 != 0 || inode.dir().is_some();
            return if want & EXEC != 0 && !executable { Err(Errno::EACCES) } else { Ok(()) };
        }
        // As in Linux a list has no effect if the mask, or the group of a list without one, has no
        // permission at all.
        if self.uid != inode.uid
            && inode.mode & 0o070 != 0
            && let Some(list) = access_list(inode)
        {
            let permits = list.permits(self, inode.gid, want)?;
            return if permits { Ok(()) } else { Err(Errno::EACCES) };
        }
        let suffice = |bits: u16| bits & want == want;
        let (group, others) = (suffice(inode.mode >> 3), suffice(inode.mode));
        let granted = if self.uid == inode.uid {
            suffice(inode.mode >> 6)
        } else if group != others && self.in_group(inode.gid)? {
            group
        } else {
            others // membership does not matter if the group has the same permission
        };
        if granted { Ok(()) } else { Err(Errno::EACCES) }
    }

    fn check_owner(&self, inode: &Inode) -> Result<(), Errno> {
        if self.is_privileged() || self.uid == inode.uid { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// Check that an entry may have this name.
pub(super) fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EINVAL),
        _ if name.len() > MAX_NAME => Err(Errno::ENAMETOOLONG),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

impl Namespace {
    /// An inode, or `ESTALE`.
    pub fn find(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.get(ino).ok_or(Errno::ESTALE)
    }

    pub(super) fn find_dir(&self, ino: Ino) -> Result<(&Inode, &Directory), Errno> {
        let inode = self.find(ino)?;
        Ok((inode, inode.dir().ok_or(Errno::ENOTDIR)?))
    }

    /// The inode of `name` in `parent`.
    pub fn lookup(&self, user: &Credentials, parent: Ino, name: &[u8]) -> Result<Ino, Errno> {
        let (inode, dir) = self.find_dir(parent)?;
        user.check_access(inode, EXEC)?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(dir.parent),
            _ if name.len() > MAX_NAME => Err(Errno::ENAMETOOLONG),
            _ => dir.get(name).ok_or(Errno::ENOENT),
        }
    }

    /// A directory, after a check that `user` may add and remove names in it.
    pub(super) fn writable_dir(
        &self,
        user: &Credentials,
        ino: Ino,
    ) -> Result<(&Inode, &Directory), Errno> {
        let (inode, dir) = self.find_dir(ino)?;
        if inode.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        user.check_access(inode, WRITE | EXEC)?;
        Ok((inode, dir))
    }

    /// Check that `user` may remove a name in a directory with the sticky bit: only owners may.
    pub(super) fn check_sticky(
        &self,
        user: &Credentials,
        parent: &Inode,
        child: &Inode,
    ) -> Result<(), Errno> {
        let sticky = parent.mode & 0o1000 != 0;
        if sticky && !user.is_privileged() && user.uid != child.uid && user.uid != parent.uid {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// Check that a name may be added to a directory, which is returned.
    pub fn check_new_entry(
        &self,
        user: &Credentials,
        parent: Ino,
        name: &[u8],
    ) -> Result<&Inode, Errno> {
        match (check_name(name), name) {
            (Err(Errno::EINVAL), b"." | b"..") => return Err(Errno::EEXIST),
            (result, _) => result?,
        }
        let (inode, dir) = self.find_dir(parent)?;
        user.check_access(inode, EXEC)?;
        if dir.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.writable_dir(user, parent)?;
        Ok(inode)
    }

    /// Plan an inode to be created with a name, and the access control lists that it inherits.
    pub fn plan_make(
        &self,
        user: &Credentials,
        parent: Ino,
        name: &[u8],
        new: NewInode,
        mode: CreateMode,
    ) -> Result<(PlannedInode, InheritedAcls), Errno> {
        let dir = self.check_new_entry(user, parent, name)?;
        self.plan_inode(user, dir, new, mode)
    }

    /// Plan a regular file to be created without a name, as in the directory `parent`, and the access
    /// control lists that it inherits.
    pub fn plan_unnamed(
        &self,
        user: &Credentials,
        parent: Ino,
        mode: CreateMode,
    ) -> Result<(PlannedInode, InheritedAcls), Errno> {
        let (dir, _) = self.writable_dir(user, parent)?;
        self.plan_inode(user, dir, NewInode::Node(FileKind::File, 0), mode)
    }

    /// Plan an inode to be created in a directory, which `user` may change.
    fn plan_inode(
        &self,
        user: &Credentials,
        dir: &Inode,
        new: NewInode,
        mode: CreateMode,
    ) -> Result<(PlannedInode, InheritedAcls), Errno> {
        match &new {
            NewInode::Symlink(target) if target.is_empty() => return Err(Errno::ENOENT),
            NewInode::Symlink(target) if target.len() > MAX_SYMLINK_TARGET => {
                return Err(Errno::ENAMETOOLONG);
            }
            NewInode::Symlink(target) if target.contains(&0) => return Err(Errno::EINVAL),
            NewInode::Node(FileKind::Dir | FileKind::Symlink, _) => return Err(Errno::EINVAL),
            NewInode::Node(FileKind::CharDevice | FileKind::BlockDevice, _)
                if !user.is_privileged() =>
            {
                return Err(Errno::EPERM);
            }
            NewInode::Dir | NewInode::Symlink(_) | NewInode::Node(..) => {}
        }
        let CreateMode { bits, umask } = mode;
        let mut mode = bits & 0o7777;
        let mut gid = user.gid;
        if dir.mode & 0o2000 != 0 {
            gid = dir.gid;
            if matches!(new, NewInode::Dir) {
                mode |= 0o2000;
            } else if mode & 0o2010 == 0o2010 && !user.is_privileged() && !user.in_group(gid)? {
                mode &= !0o2000;
            }
        }
        let mut acls = InheritedAcls::default();
        match (&new, dir.xattrs.get(DEFAULT_ACL)) {
            (NewInode::Symlink(_), _) => mode = 0o777,
            (_, None) => mode &= !(umask & 0o777),
            (_, Some(default)) => {
                let is_dir = matches!(new, NewInode::Dir);
                (acls, mode) = InheritedAcls::of_default(default, mode, is_dir)?;
            }
        }
        let ino = self.next_ino();
        Ok((PlannedInode { ino, new, mode, uid: user.uid, gid, opened: false }, acls))
    }

    /// Plan to remove a name: of a directory if `dir`, of another inode otherwise.
    pub fn plan_remove(
        &self,
        user: &Credentials,
        parent: Ino,
        name: &[u8],
        dir: bool,
        now: Timestamp,
    ) -> Result<Change, Errno> {
        match (check_name(name), name) {
            (Err(_), b"..") if dir => return Err(Errno::ENOTEMPTY),
            (result, _) => result?,
        }
        let ino = self.lookup(user, parent, name)?;
        let (parent_inode, _) = self.writable_dir(user, parent)?;
        let inode = self.find(ino)?;
        self.check_sticky(user, parent_inode, inode)?;
        let name = name.to_vec();
        match (inode.dir(), dir) {
            (Some(_), false) => Err(Errno::EISDIR),
            (None, true) => Err(Errno::ENOTDIR),
            (Some(entries), true) if !entries.is_empty() => Err(Errno::ENOTEMPTY),
            (Some(_), true) => Ok(Change::RmDir { parent, name, now }),
            (None, false) => Ok(Change::Unlink { parent, name, now }),
        }
    }

    pub fn plan_link(
        &self,
        user: &Credentials,
        ino: Ino,
        parent: Ino,
        name: &[u8],
        now: Timestamp,
    ) -> Result<Change, Errno> {
        let inode = self.find(ino)?;
        self.check_new_entry(user, parent, name)?;
        check_new_link(inode)?;
        Ok(Change::Link { ino, parent, name: name.to_vec(), now })
    }

    /// Plan to set attributes. A length only clears set-id bits and sets the times. `writable`: the
    /// caller has the file open for writing.
    pub fn plan_set(
        &self,
        user: &Credentials,
        ino: Ino,
        wanted: &SetAttr,
        writable: bool,
        now: Timestamp,
    ) -> Result<Change, Errno> {
        let set = plan_attributes(user, self.find(ino)?, wanted, writable, now)?;
        Ok(Change::SetAttributes { ino, set })
    }

    /// Plan to set an extended attribute, or to remove it without a value.
    pub fn plan_xattr(
        &self,
        user: &Credentials,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
        now: Timestamp,
    ) -> Result<Change, Errno> {
        let inode = self.find(ino)?;
        check_xattr_name(name)?;
        if is_acl(name) {
            return plan_acl(user, (ino, inode), name, value.unwrap_or(NO_ENTRIES), now);
        }
        if name.starts_with(b"user.") {
            user.check_access(inode, WRITE)?;
            if !matches!(inode.kind(), FileKind::File | FileKind::Dir) {
                return Err(Errno::EPERM);
            }
        } else if !user.is_privileged() {
            return Err(Errno::EPERM);
        }
        let exists = inode.xattrs.contains_key(name);
        match (value, mode) {
            (Some(_), XattrMode::Create) if exists => return Err(Errno::EEXIST),
            (Some(_), XattrMode::Replace) | (None, _) if !exists => return Err(Errno::ENODATA),
            (Some(_) | None, XattrMode::Create | XattrMode::Replace | XattrMode::Any) => {}
        }
        if let Some(value) = value {
            if value.len() > MAX_XATTR {
                return Err(Errno::ERANGE);
            }
            check_xattr_space(inode, name, value)?;
        }
        let (name, value) = (name.to_vec(), value.map(<[u8]>::to_vec));
        Ok(Change::SetXattr { ino, name, value, now })
    }
}

/// Plan to set an access control list, or to remove it if it has no entries.
fn plan_acl(
    user: &Credentials,
    (ino, inode): (Ino, &Inode),
    name: &[u8],
    value: &[u8],
    now: Timestamp,
) -> Result<Change, Errno> {
    if inode.kind() == FileKind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut list = Acl::parse(value)?;
    if name == DEFAULT_ACL && list.is_some() && inode.dir().is_none() {
        return Err(Errno::EACCES);
    }
    user.check_owner(inode)?;
    let mut mode = inode.mode;
    if let Some(list) = list.as_ref().filter(|_| name == ACCESS_ACL) {
        mode = mode & !0o777 | list.permissions();
        if mode & 0o2000 != 0 && !user.is_privileged() && !user.in_group(inode.gid)? {
            mode &= !0o2000;
        }
    }
    list = list.filter(|list| name == DEFAULT_ACL || !list.is_mode());
    let value = list.as_ref().map(Acl::value);
    if let Some(value) = &value {
        check_xattr_space(inode, name, value)?;
    }
    Ok(if name == ACCESS_ACL {
        Change::SetAccessAcl { ino, value, mode, now }
    } else {
        Change::SetXattr { ino, name: name.to_vec(), value, now }
    })
}

/// `ENOSPC` if an inode would have too many bytes of extended attributes with this one.
fn check_xattr_space(inode: &Inode, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    let others = inode.xattrs.iter().filter(|(other, _)| other.as_slice() != name);
    let taken: usize = others.map(|(name, value)| name.len() + value.len()).sum();
    if taken + name.len() + value.len() > XATTR_SPACE { Err(Errno::ENOSPC) } else { Ok(()) }
}

/// Check that an inode may get another name.
pub(super) fn check_new_link(inode: &Inode) -> Result<(), Errno> {
    match inode.nlink {
        _ if inode.dir().is_some() => Err(Errno::EPERM),
        0 if !inode.is_linkable() => Err(Errno::ENOENT),
        u32::MAX => Err(Errno::EMLINK),
        _ => Ok(()),
    }
}

/// The attributes to set, if `user` may set them: see [`Namespace::plan_set`].
pub(super) fn plan_attributes(
    user: &Credentials,
    inode: &Inode,
    wanted: &SetAttr,
    writable: bool,
    now: Timestamp,
) -> Result<SetInode, Errno> {
    let mut set = SetInode { ctime: now, ..SetInode::default() };
    if let Some(mode) = wanted.mode {
        user.check_owner(inode)?;
        let mut mode = mode & 0o7777;
        if mode & 0o2000 != 0 && !user.is_privileged() && !user.in_group(inode.gid)? {
            mode &= !0o2000;
        }
        set.mode = Some(mode);
    }
    if wanted.uid.is_some() || wanted.gid.is_some() {
        let same_uid = wanted.uid.is_none_or(|uid| uid == inode.uid);
        let own_group = || match wanted.gid {
            Some(gid) if gid != inode.gid => user.in_group(gid),
            Some(_) | None => Ok(true),
        };
        let own = user.uid == inode.uid && same_uid;
        if !(user.is_privileged() || (own && own_group()?)) {
            return Err(Errno::EPERM);
        }
        (set.uid, set.gid) = (wanted.uid, wanted.gid);
        if inode.dir().is_none() && wanted.mode.is_none() {
            set.mode = Some(without_set_id(user, inode)?);
        }
    }
    if let Some(size) = wanted.size {
        match inode.kind() {
            FileKind::File => {}
            FileKind::Dir => return Err(Errno::EISDIR),
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => return Err(Errno::EINVAL),
        }
        if !writable {
            user.check_access(inode, WRITE)?;
        }
        if i64::try_from(size).is_err() {
            return Err(Errno::EFBIG);
        }
        set.mtime = Some(now);
        if user.uid != 0 && set.mode.is_none() && inode.has_set_id() {
            set.mode = Some(without_set_id(user, inode)?);
        }
    }
    if wanted.clear_set_id && set.mode.is_none() {
        if !writable {
            user.check_access(inode, WRITE)?;
        }
        if inode.has_set_id() {
            set.mode = Some(without_set_id(user, inode)?);
        }
    }
    for (time, target) in [(wanted.atime, &mut set.atime), (wanted.mtime, &mut set.mtime)] {
        *target = match time {
            None => *target,
            Some(SetTime::Now) => {
                if user.check_owner(inode).is_err() {
                    user.check_access(inode, WRITE)?;
                }
                Some(now)
            }
            Some(SetTime::At(at)) => {
                user.check_owner(inode)?;
                if at.nanos >= 1_000_000_000 {
                    return Err(Errno::EINVAL);
                }
                Some(at)
            }
        };
    }
    Ok(set)
}

fn check_xattr_name(name: &[u8]) -> Result<(), Errno> {
    if name.is_empty() || name.len() > MAX_NAME || name.contains(&0) {
        return Err(Errno::ERANGE);
    }
    if is_xattr_supported(name) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

/// The mode of a file after `user` changed its contents or owner: without the set-user bit, and without
/// the set-group bit unless it means mandatory locking and `user` is a member of the group.
fn without_set_id(user: &Credentials, inode: &Inode) -> Result<u16, Errno> {
    let mode = inode.mode & !0o4000;
    if mode & 0o2000 == 0 {
        return Ok(mode);
    }
    let keeps_group = mode & 0o010 == 0 && (user.is_privileged() || user.in_group(inode.gid)?);
    Ok(if keeps_group { mode } else { mode & !0o2000 })
}

/// The access control list of an inode.
fn access_list(inode: &Inode) -> Option<Acl> {
    Acl::parse(inode.xattrs.get(ACCESS_ACL)?).ok()?
}
