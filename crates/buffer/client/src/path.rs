//! The operations of an instance's file system, by path. Storage nodes resolve paths, so an operation
//! is one request, and one more for each change of node on the way.

use crate::fs::{Fs, Opened};
use forebay_protocol::message::{InodeRequest, NameRequest, OnExisting, OpenMode, PathOperation};
use forebay_protocol::{Attr, Errno, Ino};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Fs {
    /// The attributes of the inode at `path`, relative to the root. Symbolic links are followed,
    /// absolute ones from the root of the instance; a link at the end only if `follow`.
    pub fn resolve(&self, path: &Path, follow: bool) -> Result<Attr, Errno> {
        let path = path.as_os_str().as_bytes();
        let get_attr = InodeRequest::GetAttr { ino: Ino::ROOT };
        let operation = |_| Ok(PathOperation::Inode(get_attr.clone()));
        let (_, reply) = self.requester.exchange_at((Ino::ROOT, path), follow, operation)?;
        self.requester.complete(reply.reply.try_into()?)
    }

    /// The parent directory of `path`, and the last component.
    pub fn resolve_parent<'p>(&self, path: &'p Path) -> Result<(Ino, &'p [u8]), Errno> {
        let (parent, name) = split(path)?;
        Ok((self.resolve(parent, true)?.ino, name))
    }

    /// Opens an existing file.
    pub fn open_path(&self, path: &Path, open: OpenMode) -> Result<Opened, Errno> {
        self.open_at(path.as_os_str().as_bytes(), open)
    }

    /// Creates and opens a file, or opens it if it exists.
    pub fn create_path(&self, path: &Path, mode: u16, open: OpenMode) -> Result<Opened, Errno> {
        let (parent, name) = split(path)?;
        self.create_at((parent.as_os_str().as_bytes(), name), mode.into(), open)
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
        let (parent, name) = split(path)?;
        let dir = (Ino::ROOT, parent.as_os_str().as_bytes());
        let unlink = NameRequest::Unlink { parent: Ino::ROOT, name: name.to_vec() };
        let operation = |_| Ok(PathOperation::Name(unlink.clone()));
        let (_, reply) = self.requester.exchange_at(dir, true, operation)?;
        reply.into_result::<()>()?;
        self.requester.attachment.reservations.record_removal();
        Ok(())
    }
}

/// The parent directory of a path, and the last component.
pub(crate) fn split(path: &Path) -> Result<(&Path, &[u8]), Errno> {
    let name = path.file_name().ok_or(Errno::EINVAL)?.as_bytes();
    Ok((path.parent().unwrap_or(Path::new("")), name))
}
