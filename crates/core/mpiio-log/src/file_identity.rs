//! The identity of the file to which a log belongs, whatever its name.

use std::fs::{File, Metadata};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Inode number and time of creation, which all nodes see alike. The number of the device is not a part:
/// each node has its own for a network file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Inode number.
    pub inode: u64,
    /// Time of creation in nanoseconds since 1970; 0 if the file system keeps none.
    pub born: u64,
}

impl FileIdentity {
    /// The identity of the file that a path names. `None` if it does not exist, or if its number may
    /// change with every mount, as in file systems in user space.
    pub fn of(path: &Path) -> Option<FileIdentity> {
        const FUSE: u64 = 0x6573_5546;
        let found = std::fs::metadata(path).ok()?;
        let kind = rustix::fs::statfs(path).ok()?.f_type;
        (kind as u64 & 0xffff_ffff != FUSE).then(|| FileIdentity::from_metadata(&found))
    }

    /// The identity of an open file.
    pub fn of_file(file: &File) -> Option<FileIdentity> {
        file.metadata().ok().map(|found| FileIdentity::from_metadata(&found))
    }

    fn from_metadata(found: &Metadata) -> FileIdentity {
        let created = found.created().ok();
        let since = created.and_then(|created| created.duration_since(UNIX_EPOCH).ok());
        FileIdentity { inode: found.ino(), born: since.map_or(0, |since| since.as_nanos() as u64) }
    }

    /// Whether both are of one file, as far as is known. A number is used again when a file is removed;
    /// the time of creation tells such files apart.
    pub fn is_same(self, other: FileIdentity) -> bool {
        let is_born_then = self.born == other.born || self.born == 0 || other.born == 0;
        self.inode == other.inode && is_born_then
    }

    /// The name of the file in a directory.
    pub(crate) fn find_in(self, directory: &Path) -> Option<PathBuf> {
        let entries = std::fs::read_dir(directory).ok()?.flatten();
        let mut paths = entries
            .filter(|entry| entry.ino() == self.inode)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .map(|entry| entry.path());
        paths.find(|path| FileIdentity::of(path).is_some_and(|found| self.is_same(found)))
    }
}
