//! Extended attributes and access control lists through the mount.

use super::convert;
use super::mounted_fs::MountedFs;
use crate::fs::Fs;
use forebay_fuse::{INodeNo, Request};
use forebay_protocol::message::{CAPABILITY_XATTR, is_acl, is_xattr_supported};
use forebay_protocol::{Errno, Ino};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

impl MountedFs {
    pub fn do_get_xattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
    ) -> Result<Vec<u8>, Errno> {
        let (ino, name) = (convert::ino(ino), name.as_bytes());
        // With this error `ls -l` does not request more labels.
        if !is_xattr_supported(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        // A kernel that checks permissions asks for the list of each inode on the way. Every user may
        // read it.
        if is_acl(name) && self.kernel_cache.attributes.is_plain(ino, Instant::now()) {
            return Err(Errno::ENODATA);
        }
        self.note_if_removed(ino, self.fs_for(request).get_xattr(ino, name))
    }

    /// Sets or removes an extended attribute by `change`.
    pub fn change_xattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        change: impl FnOnce(&Fs, Ino) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let ino = convert::ino(ino);
        let _change = self.kernel_cache.attributes.change([ino]);
        // A list may restrict who looks names up in a directory.
        let is_search_restricted = !self.kernel_permissions && is_acl(name.as_bytes());
        if is_search_restricted {
            self.negative_lookups.forget_directory(ino);
        }
        change(&self.fs_for(request), ino)?;
        if name.as_bytes() == CAPABILITY_XATTR {
            self.opens.mark_capabilities(ino);
        }
        if is_search_restricted {
            self.drop_cached_entries(ino);
        }
        Ok(())
    }

    pub fn do_remove_xattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
    ) -> Result<(), Errno> {
        self.change_xattr(request, ino, name, |fs, ino| {
            // The kernel refuses that to processes without privileges, but requests it itself when they
            // truncate the file, or reserve space of it.
            let fs = if name.as_bytes() == CAPABILITY_XATTR { &self.fs_as_root() } else { fs };
            fs.remove_xattr(ino, name.as_bytes())
        })
    }

    /// Removes the capabilities of a file whose contents change, as far as they have an effect: only root
    /// mounts without `nosuid`.
    pub(super) fn remove_capabilities(&self, ino: Ino) -> Result<(), Errno> {
        if !self.trusted {
            return Ok(());
        }
        let fs = self.fs_as_root();
        // Most inodes with extended attributes have none, and a removal recalls leases of other clients.
        match fs
            .get_xattr(ino, CAPABILITY_XATTR)
            .and_then(|_| fs.remove_xattr(ino, CAPABILITY_XATTR))
        {
            Err(Errno::ENODATA) => Ok(()),
            removed => removed,
        }
    }
}
