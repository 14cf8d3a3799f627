//! Directories that were removed while a process uses them.
//!
//! Storage nodes forget a removed directory at once. But a process that has it open, or that works
//! in it, may still ask for its attributes.

use super::kernel_cache::Versions;
use super::mounted_fs::MountedFs;
use forebay_fuse::{INodeNo, Request};
use forebay_protocol::{Attr, Errno, FileKind, Ino};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Number of directories in a generation.
const MAX_DIRECTORIES: usize = 1 << 15;

/// Directories in two generations: when the newer one is full, the older one is dropped.
#[derive(Debug, Default)]
struct Known {
    newer: HashMap<Ino, Attr>,
    older: HashMap<Ino, Attr>,
}

/// The last attributes of directories that the kernel has asked for.
#[derive(Debug, Default)]
pub struct LastAttributes(Mutex<Known>);

impl LastAttributes {
    pub fn remember(&self, attr: &Attr) {
        if attr.kind != FileKind::Dir {
            return;
        }
        let mut known = self.0.lock();
        known.newer.insert(attr.ino, *attr);
        if known.newer.len() >= MAX_DIRECTORIES {
            known.older = std::mem::take(&mut known.newer);
        }
        assert!(known.newer.len() < MAX_DIRECTORIES);
    }

    /// The attributes of a directory that has been removed.
    fn of_removed(&self, ino: Ino) -> Option<Attr> {
        let known = self.0.lock();
        let attr = known.newer.get(&ino).or_else(|| known.older.get(&ino))?;
        Some(Attr { nlink: 0, size: 0, ..*attr })
    }
}

impl MountedFs {
    pub fn do_get_attr(&self, request: &Request, ino: INodeNo) -> Result<(Attr, Duration), Errno> {
        let (ino, cache) = (Ino(ino.0), &self.kernel_cache.attributes);
        if let Some(known) = cache.attributes(ino, Instant::now()) {
            self.last_attributes.remember(&known.0);
            return Ok(known);
        }
        let fs = self.fs_for(request);
        if let Some(known) = self.listed_attributes(&fs, ino) {
            return Ok(known);
        }
        let (read_at, sent_at) = (cache.moment(), Instant::now());
        match fs.requester.attr_of(ino) {
            Ok((attr, ttl)) => {
                // No recall begins before they are known, which it would end.
                let permit = self.kernel_cache.permit(ttl, Versions::Compared);
                if !permit.ttl().is_zero() {
                    cache.remember_attributes(&attr, read_at, sent_at + permit.ttl());
                    self.note_attribute_request(ino);
                }
                drop(permit);
                self.last_attributes.remember(&attr);
                Ok((attr, ttl))
            }
            Err(Errno::ESTALE)
                if !self.fs_as_root().requester.attachment.sessions.lacks_tag(ino) =>
            {
                Ok((self.removed_directory(ino)?, Duration::ZERO))
            }
            Err(error) => Err(error),
        }
    }

    /// The attributes of a directory that no longer exists; `ESTALE` if they are not known, or if
    /// storage nodes refuse this mount.
    fn removed_directory(&self, ino: Ino) -> Result<Attr, Errno> {
        let removed = self.last_attributes.of_removed(ino).ok_or(Errno::ESTALE)?;
        self.fs_as_root().get_attr(Ino::ROOT)?;
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(number: u64) -> Attr {
        Attr { ino: Ino(number), kind: FileKind::Dir, nlink: 2, ..Attr::default() }
    }

    #[test]
    fn removed_directories_have_no_links() {
        let known = LastAttributes::default();
        known.remember(&directory(7));
        known.remember(&Attr { ino: Ino(8), kind: FileKind::File, ..Attr::default() });
        assert_eq!(known.of_removed(Ino(7)), Some(Attr { nlink: 0, ..directory(7) }));
        assert_eq!(known.of_removed(Ino(8)), None);
    }

    #[test]
    fn number_of_directories_is_limited() {
        let known = LastAttributes::default();
        let count = 3 * MAX_DIRECTORIES as u64;
        (0..count).for_each(|number| known.remember(&directory(number)));
        assert_eq!(known.of_removed(Ino(0)), None);
        assert!(known.of_removed(Ino(count - MAX_DIRECTORIES as u64)).is_some());
        let all = known.0.lock();
        assert!(all.newer.len() + all.older.len() <= 2 * MAX_DIRECTORIES);
    }
}
