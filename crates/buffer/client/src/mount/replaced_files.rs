//! Files and symbolic links that another client replaces while programs of this mount look for them.
//!
//! The kernel looks a name up, and then makes requests for the inode. If that has been removed meanwhile,
//! because another one was renamed to its name, these fail with `ESTALE`, and the kernel begins again: once.
//! After that, a program sees an error that no local file system has. A lookup in a directory where that has
//! happened therefore opens the file, too, and keeps it open for a while, so that it exists until the kernel's
//! next request. Of a symbolic link, which cannot change, it keeps attributes and target.

use super::mounted_fs::MountedFs;
use crate::file::File;
use crate::fs::Fs;
use forebay_protocol::message::OpenMode;
use forebay_protocol::{Attr, Errno, FileKind, Ino};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Time after the last failed request for which files of the directory are kept open.
const WATCH_TIME: Duration = Duration::from_secs(2);
/// Time for which an inode is kept after a lookup, at least, unless there are too many; at most twice as long.
const HOLD_TIME: Duration = Duration::from_millis(500);
/// Maximum number of inodes that are kept.
const MAX_INODES: usize = 64;
/// Maximum number of directories.
const MAX_DIRECTORIES: usize = 1 << 10;
/// Maximum number of inodes that a lookup finds and that are removed before they are kept.
const MAX_LOOKUPS: usize = 100;

/// Kept part of an inode.
#[derive(Debug)]
enum Kept {
    File { _open: Arc<File> },
    Link { attr: Attr, target: Vec<u8> },
}

#[derive(Debug, Default)]
struct Held {
    /// In the order of the lookups.
    inodes: VecDeque<(Kept, Instant)>,
    /// A thread drops them.
    has_thread: bool,
}

impl Held {
    /// The inodes that were kept for long enough.
    fn take_old(&mut self, now: Instant) -> Vec<Kept> {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= HOLD_TIME;
        let count = self.inodes.iter().take_while(|(_, at)| is_old(*at)).count();
        self.inodes.drain(..count).map(|(kept, _)| kept).collect()
    }

    /// The attributes and the target of a symbolic link.
    fn link(&self, ino: Ino) -> Option<(Attr, &[u8])> {
        self.inodes.iter().find_map(|(kept, _)| match kept {
            Kept::Link { attr, target } if attr.ino == ino => Some((*attr, target.as_slice())),
            Kept::Link { .. } | Kept::File { .. } => None,
        })
    }
}

/// Directories in which files are replaced, and inodes of them that are kept.
#[derive(Debug, Default)]
pub struct ReplacedFiles {
    /// Each with the time of the last failed request for a file in it.
    directories: Mutex<HashMap<Ino, Instant>>,
    held: Arc<Mutex<Held>>,
}

impl ReplacedFiles {
    /// A request for a file that had a name in `dir` has failed because the file was removed.
    fn note_removed(&self, dir: Ino, now: Instant) {
        let mut directories = self.directories.lock();
        if directories.len() >= MAX_DIRECTORIES {
            directories.clear();
        }
        directories.insert(dir, now);
    }

    /// Whether files in `dir` are being replaced.
    fn are_in(&self, dir: Ino, now: Instant) -> bool {
        let mut directories = self.directories.lock();
        let Some(at) = directories.get(&dir) else {
            return false;
        };
        let are_in = now.saturating_duration_since(*at) < WATCH_TIME;
        if !are_in {
            directories.remove(&dir);
        }
        are_in
    }

    /// Keeps an inode for a while, if a thread can drop it then.
    fn keep(&self, kept: Kept, now: Instant) {
        let mut held = self.held.lock();
        if !held.has_thread {
            let inodes = Arc::downgrade(&self.held);
            let thread = std::thread::Builder::new().name("forebay-replaced".into());
            if thread.spawn(move || drop_old(&inodes)).is_err() {
                return;
            }
            held.has_thread = true;
        }
        let first = if held.inodes.len() < MAX_INODES { None } else { held.inodes.pop_front() };
        held.inodes.push_back((kept, now));
        drop(held);
        drop(first); // a close is a request
    }
}

/// Drops what was kept for long enough, until there is nothing, or the mount has ended.
fn drop_old(inodes: &Weak<Mutex<Held>>) {
    loop {
        std::thread::sleep(HOLD_TIME);
        let Some(held) = inodes.upgrade() else {
            return;
        };
        let old = held.lock().take_old(Instant::now());
        drop(old);
        let mut held = held.lock();
        if held.inodes.is_empty() {
            held.has_thread = false;
            return;
        }
    }
}

impl MountedFs {
    /// Passes on the result of a request for an inode, and notes if it was removed.
    pub(super) fn note_if_removed<T>(
        &self,
        ino: Ino,
        result: Result<T, Errno>,
    ) -> Result<T, Errno> {
        if matches!(result, Err(Errno::ESTALE))
            && let Some(dir) = self.directory_reads.directory_of(ino)
        {
            self.replaced_files.note_removed(dir, Instant::now());
        }
        result
    }

    /// An entry of a directory, as [`find_entry`](MountedFs::find_entry). Where files are being replaced, the
    /// file still exists when the kernel makes its next request.
    pub(super) fn find_lasting_entry(
        &self,
        fs: &Fs,
        parent: Ino,
        name: &[u8],
    ) -> Result<(Option<Attr>, Duration), Errno> {
        let mut found = self.find_entry(fs, parent, name)?;
        if !self.replaced_files.are_in(parent, Instant::now()) {
            return Ok(found);
        }
        for _ in 0..MAX_LOOKUPS {
            let Some(kept) = found.0.and_then(|attr| self.keepable(&attr)) else {
                break;
            };
            match kept {
                Ok(kept) => {
                    self.replaced_files.keep(kept, Instant::now());
                    break;
                }
                Err(Errno::ESTALE) => found = self.find_entry(fs, parent, name)?,
                Err(_) => break, // the kernel's next request has the error, if it needs the inode
            }
        }
        Ok(found)
    }

    /// The part of a file or a symbolic link to keep. `None`: it is neither.
    fn keepable(&self, attr: &Attr) -> Option<Result<Kept, Errno>> {
        let fs = self.fs_as_root();
        let read = OpenMode { read: true, ..OpenMode::NONE };
        match attr.kind {
            FileKind::File => Some(
                fs.open_provisional(attr.ino, read).map(|opened| Kept::File { _open: opened.file }),
            ),
            FileKind::Symlink => {
                let link = |target| Kept::Link { attr: Attr { nlink: 0, ..*attr }, target };
                Some(fs.read_link(attr.ino).map(link))
            }
            FileKind::Dir
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => None,
        }
    }

    /// The attributes that a request has found, or those of a symbolic link that was replaced.
    pub(super) fn attributes_or_kept(
        &self,
        ino: Ino,
        found: Result<(Attr, Duration), Errno>,
    ) -> Result<(Attr, Duration), Errno> {
        let kept = || self.replaced_files.held.lock().link(ino).map(|(attr, _)| attr);
        match found {
            Err(Errno::ESTALE) => kept().map(|attr| (attr, Duration::ZERO)).ok_or(Errno::ESTALE),
            found => found,
        }
    }

    /// The target of a symbolic link, also if it was replaced.
    pub(super) fn link_target(&self, fs: &Fs, ino: Ino) -> Result<Vec<u8>, Errno> {
        let kept = || self.replaced_files.held.lock().link(ino).map(|(_, target)| target.to_vec());
        match fs.read_link(ino) {
            Err(Errno::ESTALE) => kept().ok_or(Errno::ESTALE),
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_watched_for_a_while_and_limited() {
        let (files, start) = (ReplacedFiles::default(), Instant::now());
        assert!(!files.are_in(Ino(1), start));
        files.note_removed(Ino(1), start);
        assert!(files.are_in(Ino(1), start + WATCH_TIME / 2) && !files.are_in(Ino(2), start));
        assert!(!files.are_in(Ino(1), start + WATCH_TIME));
        assert!(files.directories.lock().is_empty());
        (0..3 * MAX_DIRECTORIES as u64).for_each(|number| files.note_removed(Ino(number), start));
        assert!(files.directories.lock().len() <= MAX_DIRECTORIES);
    }
}
