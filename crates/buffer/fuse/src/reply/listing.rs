//! Replies with entries of a directory.

use super::Reply;
use crate::abi::{Dirent, EntryOut};
use crate::types::{FileAttr, FileType, INodeNo, entry_out};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Entries begin at multiples of this.
const ALIGNMENT: usize = 8;

/// Entries for a buffer of a certain size.
#[derive(Debug)]
struct Entries {
    bytes: Vec<u8>,
    limit: usize,
}

impl Entries {
    fn new(size: u32) -> Entries {
        Entries { bytes: Vec::new(), limit: size as usize }
    }

    /// Adds an entry after `prefix`. `false`: there is no room.
    fn push(&mut self, prefix: &[u8], entry: Dirent, name: &OsStr) -> bool {
        let length = prefix.len() + size_of::<Dirent>() + name.len();
        let padded = length.next_multiple_of(ALIGNMENT);
        if self.bytes.len() + padded > self.limit {
            return false;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(self.limit.min(1 << 16));
        }
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(entry.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.resize(self.bytes.len() + padded - length, 0);
        assert!(self.bytes.len().is_multiple_of(ALIGNMENT) && self.bytes.len() <= self.limit);
        true
    }
}

fn dirent(ino: INodeNo, cookie: u64, kind: FileType, name: &OsStr) -> Dirent {
    Dirent { ino: ino.0, off: cookie, namelen: name.len() as u32, kind: kind.dirent() }
}

/// Reply with entries. One without any is the end of the directory.
#[derive(Debug)]
pub struct ReplyDirectory {
    reply: Reply,
    entries: Entries,
}

impl ReplyDirectory {
    pub(super) fn new(reply: Reply, size: u32) -> ReplyDirectory {
        ReplyDirectory { reply, entries: Entries::new(size) }
    }

    /// Adds an entry, after which a listing continues with the cookie. `false`: there is no room.
    #[must_use]
    pub fn add(
        &mut self,
        ino: INodeNo,
        cookie: u64,
        kind: FileType,
        name: impl AsRef<OsStr>,
    ) -> bool {
        let name = name.as_ref();
        self.entries.push(&[], dirent(ino, cookie, kind, name), name)
    }

    /// Sends the entries.
    pub fn ok(self) {
        self.reply.data(&self.entries.bytes);
    }

    /// The request fails with an error number of the system.
    pub fn error(self, errno: i32) {
        self.reply.error(errno);
    }
}

/// Reply with entries and attributes. One without any is the end of the directory.
#[derive(Debug)]
pub struct ReplyDirectoryPlus {
    reply: Reply,
    entries: Entries,
}

impl ReplyDirectoryPlus {
    pub(super) fn new(reply: Reply, size: u32) -> ReplyDirectoryPlus {
        ReplyDirectoryPlus { reply, entries: Entries::new(size) }
    }

    /// Adds an entry, whose inode the kernel then uses as if it had looked up the name, except for `.`
    /// and `..`. It may use the name and the attributes for `ttl`. `false`: there is no room.
    #[must_use]
    pub fn add(
        &mut self,
        cookie: u64,
        name: impl AsRef<OsStr>,
        (ttl, attr): (Duration, &FileAttr),
    ) -> bool {
        let name = name.as_ref();
        let inode: EntryOut = entry_out(attr, ttl);
        self.entries.push(inode.as_bytes(), dirent(attr.ino, cookie, attr.kind, name), name)
    }

    /// Sends the entries.
    pub fn ok(self) {
        self.reply.data(&self.entries.bytes);
    }

    /// The request fails with an error number of the system.
    pub fn error(self, errno: i32) {
        self.reply.error(errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_and_never_exceed_the_buffer() {
        let mut entries = Entries::new(2 * 32 + 24);
        let add = |entries: &mut Entries, name: &str| {
            let name = OsStr::new(name);
            entries.push(&[], dirent(INodeNo(7), 9, FileType::Directory, name), name)
        };
        assert!(add(&mut entries, "a"));
        assert_eq!(entries.bytes[..24], *Dirent { ino: 7, off: 9, namelen: 1, kind: 4 }.as_bytes());
        assert_eq!(entries.bytes[24..], *b"a\0\0\0\0\0\0\0");
        assert!(add(&mut entries, "12345678"));
        assert_eq!(entries.bytes.len(), 64);
        assert!(!add(&mut entries, "b"));
        assert_eq!(entries.bytes.len(), 64);
    }
}
