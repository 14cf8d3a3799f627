//! The operations of an instance's file system, by path.

use crate::fs::{Fs, Opened};
use forebay_protocol::message::{OnExisting, OpenMode};
use forebay_protocol::{Attr, Errno, FileKind, Ino};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Symbolic links followed before a path is taken to lead in circles.
const MAX_LINKS: u32 = 40;

impl Fs {
    /// What `path`, taken from the root, leads to. Symbolic links are followed, absolute ones from
    /// the instance's root; a link at the end too if `follow`.
    pub fn resolve(&self, path: &Path, follow: bool) -> Result<Attr, Errno> {
        let mut links = 0;
        self.walk(Ino::ROOT, path.as_os_str().as_bytes(), follow, &mut links)
    }

    fn walk(&self, from: Ino, path: &[u8], follow: bool, links: &mut u32) -> Result<Attr, Errno> {
        let start = if path.first() == Some(&b'/') {
            Ino::ROOT
        } else {
            from
        };
        let mut at = self.get_attr(start)?;
        let mut parts = path
            .split(|b| *b == b'/')
            .filter(|part| !part.is_empty())
            .peekable();
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

    /// The directory that holds the last part of `path`, and that part.
    pub fn resolve_parent<'p>(&self, path: &'p Path) -> Result<(Ino, &'p [u8]), Errno> {
        let name = path.file_name().ok_or(Errno::EINVAL)?.as_bytes();
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.resolve(parent, true)?.ino, name))
    }

    /// Open an existing file.
    pub fn open_path(&self, path: &Path, open: OpenMode) -> Result<Opened, Errno> {
        self.open(self.resolve(path, true)?.ino, open)
    }

    /// Make and open a file, or open it if it exists.
    pub fn create_path(&self, path: &Path, mode: u16, open: OpenMode) -> Result<Opened, Errno> {
        let (parent, name) = self.resolve_parent(path)?;
        self.create(parent, name, mode, false, open)
    }

    /// Make a directory and those above it that are missing.
    pub fn mkdir_all(&self, path: &Path, mode: u16) -> Result<Attr, Errno> {
        match self.resolve(path, true) {
            Err(Errno::ENOENT) => {}
            other => return other,
        }
        // Without even a root the instance is gone.
        let parent = path.parent().ok_or(Errno::ENOENT)?;
        let parent = self.mkdir_all(parent, mode)?;
        let name = path.file_name().ok_or(Errno::EINVAL)?.as_bytes();
        match self.mkdir(parent.ino, name, mode) {
            Err(Errno::EEXIST) => self.lookup(parent.ino, name),
            other => other,
        }
    }

    /// Change a path, replacing what has the new one.
    pub fn rename_path(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.rename(
            self.resolve_parent(from)?,
            self.resolve_parent(to)?,
            OnExisting::Replace,
        )
    }

    /// Remove a file or link.
    pub fn unlink_path(&self, path: &Path) -> Result<(), Errno> {
        let (parent, name) = self.resolve_parent(path)?;
        self.unlink(parent, name)
    }
}
