//! Files that are created with contents, attributes and name.

use super::plan::{EXEC, check_name, plan_attributes};
use super::{Access, Change, Namespace, PlannedInode};
use forebay_policy::layout::Layout;
use forebay_protocol::Credentials;
use forebay_protocol::acl::InheritedAcls;
use forebay_protocol::message::{DEFAULT_ACL, NewInode, SetAttr};
use forebay_protocol::{Errno, FileKind, Ino, Timestamp};

/// Inode numbers that are tried to find one whose first stripe is on this node: few compared with those
/// that a start skips, and enough for an instance on dozens of nodes.
const NEAR: u64 = 256;

/// A file to be created with contents.
#[derive(Debug)]
pub struct PlannedPut {
    /// The change: [`Change::Put`], without a length.
    pub change: Change,
    /// The access control lists that it inherits.
    pub acls: InheritedAcls,
    pub ino: Ino,
    /// Its `atime` and `mtime`.
    pub times: (Timestamp, Timestamp),
    /// The file that it replaces.
    pub replaced: Option<Ino>,
}

impl PlannedPut {
    /// Create the file under the number of an object that was stored before, with these `atime` and `mtime`.
    pub fn use_object(&mut self, ino: Ino, times: (Timestamp, Timestamp)) {
        (self.ino, self.times) = (ino, times);
        if let Change::Put { inode, times: of_inode, .. } = &mut self.change {
            (inode.ino, *of_inode) = (ino, times);
        }
    }
}

impl Namespace {
    /// Plan to create a file with contents, all of it on this node, with the attributes of `wanted`.
    /// `EOPNOTSUPP`: it cannot be on this node, or it would replace an inode of another node, which
    /// takes a transaction.
    pub fn plan_put(
        &self,
        user: &Credentials,
        (parent, name): (Ino, &[u8]),
        wanted: &SetAttr,
        layout: &Layout,
        now: Timestamp,
    ) -> Result<PlannedPut, Errno> {
        if wanted.size.is_some() {
            return Err(Errno::EINVAL);
        }
        check_name(name)?;
        let (dir, entries) = self.find_dir(parent)?;
        user.check_access(dir, EXEC)?;
        let replaced = entries.entry(name).map(|entry| (entry.ino, entry.kind));
        self.writable_dir(user, parent)?;
        match replaced {
            None => {}
            Some((_, FileKind::Dir)) => return Err(Errno::EISDIR),
            Some((ino, _)) if !self.owns(ino) => return Err(Errno::EOPNOTSUPP),
            Some((ino, _)) => self.check_sticky(user, dir, self.find(ino)?)?,
        }
        let inherits = dir.mode & 0o2000 != 0;
        let mut inode = PlannedInode {
            ino: self.next_for(layout)?,
            new: NewInode::Node(FileKind::File, 0),
            mode: 0o600,
            uid: user.uid,
            gid: if inherits { dir.gid } else { user.gid },
            opened: false,
        };
        let mut acls = InheritedAcls::default();
        if let Some(default) = dir.xattrs.get(DEFAULT_ACL) {
            (acls, inode.mode) = InheritedAcls::of_default(default, inode.mode, false)?;
        }
        let made = inode.build(parent, self.striped, now);
        let set = plan_attributes(user, &made, wanted, true, now)?;
        inode.mode = set.mode.unwrap_or(inode.mode);
        acls.set_mode(inode.mode);
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        let times = (set.atime.unwrap_or(now), set.mtime.unwrap_or(now));
        Ok(PlannedPut {
            ino: inode.ino,
            times,
            replaced: replaced.map(|(ino, _)| ino),
            change: Change::Put { parent, name: name.to_vec(), inode, times, length: None, now },
            acls,
        })
    }

    /// The number of a new file whose first stripe is on this node. `EOPNOTSUPP`: none is found.
    fn next_for(&self, layout: &Layout) -> Result<Ino, Errno> {
        let node = self.node();
        let numbers = (self.next..self.next + NEAR).map(|number| Ino::new(node, number));
        let mut here = numbers.filter(|ino| layout.node_of_stripe(*ino, 0) == node);
        here.next().ok_or(Errno::EOPNOTSUPP)
    }
}
