//! The operations of an instance's file system, by path.

use crate::fs::{Fs, Opened};
use forebay_protocol::message::{OnExisting, OpenMode};
use forebay_protocol::{Attr, Errno, FileKind, Ino};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of symbolic links in a path.
const MAX_LINKS: u32 = 40;

impl Fs {
    /// The attributes of the inode at `path`, relative to the root. Symbolic links are followed,
    /// absolute ones from the root of the instance; a link at the end only if `follow`.
    pub fn resolve(&self, path: &Path, follow: bool) -> Result<Attr, Errno> {
        let mut links = 0;
        let found = self.walk(Ino::ROOT, path.as_os_str().as_bytes(), follow, &mut links);
        assert!(links <= MAX_LINKS + 1);
        found
    }

    fn walk(&self, from: Ino, path: &[u8], follow: bool, links: &mut u32) -> Result<Attr, Errno> {
        let start = if path.first() == Some(&b'/') { Ino::ROOT } else { from };
        let mut at = self.get_attr(start)?;
        let mut parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty()).peekable();
        while let Some(name) = parts.next() {
            if at.kind != FileKind::Dir {
                return Err(Errno::ENOTDIR);
            }
            let parent = at.ino;
            at = self.lookup(parent, name)?;
            if at.kind == FileKind::Symlink && (follow || parts.peek().is_some()) {
                *links += 1;
                if *links > MAX_LINKS {
                    return Err(Errno::ELOOP);
                }
                let target = self.read_link(at.ino)?;
                at = self.walk(parent, &target, true, links)?;
            }
        }
        Ok(at)
    }

    /// The parent directory of `path`, and the last component.
    pub fn resolve_parent<'p>(&self, path: &'p Path) -> Result<(Ino, &'p [u8]), Errno> {
        let name = path.file_name().ok_or(Errno::EINVAL)?.as_bytes();
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.resolve(parent, true)?.ino, name))
    }

    /// Opens an existing file.
    pub fn open_path(&self, path: &Path, open: OpenMode) -> Result<Opened, Errno> {
        self.open(self.resolve(path, true)?.ino, open)
    }

    /// Creates and opens a file, or opens it if it exists.
    pub fn create_path(&self, path: &Path, mode: u16, open: OpenMode) -> Result<Opened, Errno> {
        let (parent, name) = self.resolve_parent(path)?;
        self.create(parent, name, mode, false, open)
    }

    /// Creates a directory and its missing parents.
    pub fn mkdir_all(&self, path: &Path, mode: u16) -> Result<Attr, Errno> {
        match self.resolve(path, true) {
            Err(Errno::ENOENT) => {}
            other => return other,
        }
        // If there is no root, the instance was removed.
        let parent = path.parent().ok_or(Errno::ENOENT)?;
        let parent = self.mkdir_all(parent, mode)?;
        let name = path.file_name().ok_or(Errno::EINVAL)?.as_bytes();
        match self.mkdir(parent.ino, name, mode) {
            Err(Errno::EEXIST) => self.lookup(parent.ino, name),
            other => other,
        }
    }

    /// Renames a path, replacing an existing one.
    pub fn rename_path(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.rename(self.resolve_parent(from)?, self.resolve_parent(to)?, OnExisting::Replace)
    }

    /// Removes a file or link.
    pub fn unlink_path(&self, path: &Path) -> Result<(), Errno> {
        let (parent, name) = self.resolve_parent(path)?;
        self.unlink(parent, name)
    }
}
