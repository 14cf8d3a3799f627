//! The directories of paths, remembered for a second.
//!
//! As with the kernel's cache of a network file system, another host's rename of a directory may be
//! noticed that much later. Names of files are never remembered.

use crate::path;
use forebay_client::Fs;
use forebay_protocol::{Errno, FileKind, Ino};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which a directory is remembered.
const LIFETIME: Duration = Duration::from_secs(1);
/// Maximum number of remembered directories.
const MAX_DIRECTORIES: usize = 4096;

/// The directory of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// A directory of the instance.
    Own(Ino),
    /// The path leads over a symbolic link: the kernel resolves it.
    Linked,
}

/// Directories by path, relative to the root of the instance.
#[derive(Debug, Default)]
pub struct Directories(Mutex<HashMap<Vec<u8>, (Directory, Instant)>>);

impl Directories {
    /// The directory at `path`, and whether it was looked up just now.
    pub fn find(&self, fs: &Fs, directory: &[u8]) -> Result<(Directory, bool), Errno> {
        if directory.is_empty() {
            return Ok((Directory::Own(Ino::ROOT), true));
        }
        let now = Instant::now();
        if let Some((found, at)) = self.0.lock().get(directory)
            && now - *at < LIFETIME
        {
            return Ok((*found, false));
        }
        let (parent, name) = path::split(directory);
        let found = match self.find(fs, parent)? {
            (Directory::Linked, _) => Directory::Linked,
            (Directory::Own(parent), _) => {
                let attr = fs.lookup(parent, name)?;
                match attr.kind {
                    FileKind::Dir => Directory::Own(attr.ino),
                    FileKind::Symlink => Directory::Linked,
                    FileKind::File
                    | FileKind::Fifo
                    | FileKind::Socket
                    | FileKind::CharDevice
                    | FileKind::BlockDevice => return Err(Errno::ENOTDIR),
                }
            }
        };
        let mut known = self.0.lock();
        if known.len() >= MAX_DIRECTORIES {
            known.clear();
        }
        known.insert(directory.to_vec(), (found, now));
        assert!(known.len() <= MAX_DIRECTORIES);
        Ok((found, true))
    }

    /// Forgets all: a directory was renamed or removed.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}
