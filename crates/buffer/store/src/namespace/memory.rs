//! The memory that names, inodes and extended attributes take, in bytes.
//!
//! The figures are those of the tables in a 64-bit process, with the allocator's overhead and the
//! usual fill of a B-tree's nodes (`BTreeMap`: up to 11 elements a node, two thirds of them in use).

use super::{Body, Change, Directory, Inode, LINKABLE, Namespace};
use forebay_protocol::Ino;
use forebay_protocol::message::{ACCESS_ACL, NewInode};
use std::collections::BTreeMap;

/// An inode without name and extended attributes.
const INODE_BYTES: u64 = 320;
/// The tables of a directory.
const DIRECTORY_BYTES: u64 = 896;
/// A directory entry without its name.
const ENTRY_BYTES: u64 = 160;
/// The table of an inode's extended attributes.
const XATTRS_BYTES: u64 = 560;
/// An extended attribute without its name and value.
const XATTR_BYTES: u64 = 96;

pub(super) fn entry_bytes(name: &[u8]) -> u64 {
    ENTRY_BYTES + name.len() as u64
}

pub(super) fn xattr_bytes(name: &[u8], value: &[u8]) -> u64 {
    XATTR_BYTES + (name.len() + value.len()) as u64
}

impl Inode {
    /// The memory it takes, with its entries if it is a directory.
    pub fn memory_bytes(&self) -> u64 {
        let body = match &self.body {
            Body::Dir(dir) => dir.memory_bytes(),
            Body::Symlink(target) => target.len() as u64,
            Body::File | Body::Striped(_) | Body::Special(..) => 0,
        };
        let xattrs = self.xattrs.iter().map(|(name, value)| xattr_bytes(name, value)).sum::<u64>();
        INODE_BYTES + body + xattrs_table_bytes(self.xattrs.len()) + xattrs
    }
}

impl Directory {
    fn memory_bytes(&self) -> u64 {
        let entries = self.order.values().map(|entry| entry_bytes(&entry.name));
        DIRECTORY_BYTES + entries.sum::<u64>()
    }
}

impl Namespace {
    /// The memory that all inodes and names take.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The same, counted anew.
    pub(super) fn recount_memory(&self) -> u64 {
        self.inodes.values().map(Inode::memory_bytes).sum()
    }

    /// The memory that a change takes at most, in addition to what it frees.
    pub fn growth(&self, change: &Change) -> u64 {
        match change {
            Change::Make { name, inode, .. } | Change::Put { name, inode, .. } => {
                let body = match &inode.new {
                    NewInode::Dir => DIRECTORY_BYTES,
                    NewInode::Symlink(target) => target.len() as u64,
                    NewInode::Node(..) => 0,
                };
                INODE_BYTES + body + entry_bytes(name)
            }
            Change::MakeUnnamed { linkable, .. } => {
                let mark = XATTRS_BYTES + xattr_bytes(LINKABLE, &[]);
                INODE_BYTES + if *linkable { mark } else { 0 }
            }
            Change::MakeDir { .. } => INODE_BYTES + DIRECTORY_BYTES,
            Change::Link { name, .. } => entry_bytes(name),
            Change::Rename { name, to, to_name, .. } => {
                if self.has_entry(*to, to_name) {
                    return 0;
                }
                entry_bytes(to_name).saturating_sub(entry_bytes(name))
            }
            Change::SetEntry { dir, name, put: Some(_), .. } if !self.has_entry(*dir, name) => {
                entry_bytes(name)
            }
            Change::SetXattr { ino, name, value: Some(value), .. } => {
                self.xattr_growth(*ino, name, value)
            }
            Change::SetAccessAcl { ino, value: Some(value), .. } => {
                self.xattr_growth(*ino, ACCESS_ACL, value)
            }
            Change::CreateWithAcls { create, acls } => {
                let lists = acls.iter().map(|(name, value)| xattr_bytes(name, value)).sum::<u64>();
                self.growth(create) + xattrs_table_bytes(acls.len()) + lists
            }
            Change::SetEntry { .. }
            | Change::SetXattr { .. }
            | Change::SetAccessAcl { .. }
            | Change::Unlink { .. }
            | Change::RmDir { .. }
            | Change::SetAttributes { .. }
            | Change::DropInode { .. }
            | Change::RemoveName { .. }
            | Change::AddName { .. }
            | Change::MoveInode { .. }
            | Change::SetLength { .. } => 0,
        }
    }

    /// The memory that an extended attribute takes in addition to its present value.
    fn xattr_growth(&self, ino: Ino, name: &[u8], value: &[u8]) -> u64 {
        let xattrs = self.get(ino).map(|inode| &inode.xattrs);
        let is_first = xattrs.is_none_or(BTreeMap::is_empty);
        let table = if is_first { XATTRS_BYTES } else { 0 };
        let old = xattrs.and_then(|xattrs| xattrs.get(name));
        let old = old.map_or(0, |old| xattr_bytes(name, old));
        table + xattr_bytes(name, value).saturating_sub(old)
    }

    fn has_entry(&self, dir: Ino, name: &[u8]) -> bool {
        let dir = self.get(dir).and_then(Inode::dir);
        dir.is_some_and(|dir| dir.get(name).is_some())
    }
}

/// The memory that a table of extended attributes takes.
pub(super) fn xattrs_table_bytes(count: usize) -> u64 {
    if count == 0 { 0 } else { XATTRS_BYTES }
}
