//! Names and directories through the mount, and its options in the kernel.

use super::convert;
use super::kernel_cache::Versions;
use super::mounted_fs::MountedFs;
use super::reply::entry;
use crate::fs::{DirPage, Fs, Space};
use forebay_fuse::{
    FileHandle, FileType, INodeNo, InitFlags, KernelConfig, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEntry, ReplyStatfs, Request, Statfs,
};
use forebay_protocol::message::NameRequest;
use forebay_protocol::{Attr, Errno, FileKind, Ino};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum bytes of a read or write request.
const MAX_IO_BYTES: u32 = 1 << 20;
/// Unit in which free space is reported, in bytes.
const BLOCK_BYTES: u32 = 4096;
/// Cookies of the entries `.` and `..`.
const DOT: u64 = 1;
pub(super) const DOT_DOT: u64 = 2;

impl MountedFs {
    pub fn negotiate(&self, config: &mut KernelConfig) {
        // Each capability is used if the kernel supports it.
        for flag in [
            InitFlags::ASYNC_READ,
            InitFlags::PARALLEL_DIROPS,
            InitFlags::ATOMIC_O_TRUNC,
            InitFlags::MAX_PAGES,
            InitFlags::ASYNC_DIO,
            InitFlags::NO_OPENDIR_SUPPORT,
            InitFlags::DO_READDIRPLUS,
            InitFlags::READDIRPLUS_AUTO,
            InitFlags::DIRECT_IO_ALLOW_MMAP,
            InitFlags::HANDLE_KILLPRIV_V2,
            // A default access control list replaces the mask of a process.
            InitFlags::DONT_MASK,
        ] {
            config.choose(flag);
        }
        if !self.local_locks {
            config.choose(InitFlags::POSIX_LOCKS);
            config.choose(InitFlags::FLOCK_LOCKS);
        }
        // With this flag the kernel checks permissions in any case, by modes and lists.
        if self.kernel_permissions {
            config.choose(InitFlags::POSIX_ACL);
        }
        let usable = self.trusted && self.passthrough() && config.choose_passthrough(1);
        self.passthrough.store(usable, Ordering::Release);
        config.set_max_write(MAX_IO_BYTES);
        config.limit_readahead(MAX_IO_BYTES);
        config.set_max_background(64);
    }

    pub fn do_lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (fs, parent) = (self.fs_for(request), convert::ino(parent));
        if self.negative_lookups.is_absent(parent, name.as_bytes()) {
            return reply.error(libc::ENOENT);
        }
        match self.find_lasting_entry(&fs, parent, name.as_bytes()) {
            Ok((Some(mut attr), ttl)) => {
                self.show_read(&mut attr);
                self.last_attributes.remember(&attr);
                self.directory_reads.note_name(parent, &attr);
                entry((&self.kernel_cache, Versions::Compared), reply, Ok((attr, ttl)));
            }
            Ok((None, ttl)) => {
                let permit = self.kernel_cache.permit(ttl, Versions::Compared);
                match permit.ttl() {
                    Duration::ZERO => reply.error(libc::ENOENT),
                    ttl => reply.absent(ttl),
                }
            }
            Err(error) => reply.error(error.0),
        }
    }

    /// Checks the permissions of `mask`, as `access(2)`.
    pub fn do_access(&self, request: &Request, ino: INodeNo, mask: u16) -> Result<(), Errno> {
        // Root has all permissions, except to execute a file without any execute bit.
        if self.trusted && request.uid() == 0 && mask & convert::ACCESS_EXECUTE == 0 {
            return Ok(());
        }
        self.fs_for(request).access(convert::ino(ino), mask)
    }

    pub fn do_link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
    ) -> Result<(Attr, Duration), Errno> {
        let (ino, parent) = (convert::ino(ino), convert::ino(parent));
        let name = name.as_bytes().to_vec();
        self.negative_lookups.add_name(parent, &name);
        let _change = self.kernel_cache.attributes.change([ino, parent]);
        let link = NameRequest::Link { ino, parent, name };
        let fs = self.fs_for(request);
        self.track_name(parent, || fs.requester.attr_for(parent.metadata_node(), link))
    }

    pub fn do_read_dir(
        &self,
        request: &Request,
        (dir, handle): (Ino, FileHandle),
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let fs = self.fs_for(request);
        let ino = INodeNo(dir.0);
        if offset < DOT && !reply.add(ino, DOT, FileType::Directory, ".") {
            return reply.ok();
        }
        if offset < DOT_DOT {
            let parent = INodeNo(self.parent_of(dir).0);
            if !reply.add(parent, DOT_DOT, FileType::Directory, "..") {
                return reply.ok();
            }
        }
        let mut after = offset.max(DOT_DOT);
        if offset > DOT_DOT && self.open_directories.is_at_end(handle, after) {
            return reply.ok();
        }
        match fs.read_dir(dir, after, 16 * 1024, false) {
            Ok(page) => {
                let is_first = offset <= DOT_DOT;
                let limit = self.open_directories.limit(handle, is_first, page.next_cookie);
                let mut is_end = page.is_last_before(limit);
                for entry in page.entries.iter().filter(|entry| entry.cookie < limit) {
                    let kind = convert::file_type(entry.kind);
                    let name = OsStr::from_bytes(&entry.name);
                    if !reply.add(INodeNo(entry.ino.0), entry.cookie, kind, name) {
                        is_end = false;
                        break;
                    }
                    after = entry.cookie;
                }
                if is_end {
                    self.open_directories.note_end(handle, after);
                }
                reply.ok();
            }
            Err(error) => reply.error(error.0),
        }
    }

    /// The parent of a directory, or the directory if it is removed. A process that may read a
    /// directory may know the inode number of its parent.
    fn parent_of(&self, dir: Ino) -> Ino {
        let parents = &self.kernel_cache.parents;
        if let Some(known) = parents.get(dir, Instant::now()) {
            return known;
        }
        let changes = parents.changes();
        let Ok((Some(attr), ttl)) = self.fs_as_root().lookup_with_ttl(dir, b"..") else {
            return dir;
        };
        // No recall begins before the parent is known, which it would end.
        let permit = self.kernel_cache.permit(ttl, Versions::Compared);
        parents.remember((dir, attr.ino), changes, Instant::now(), permit.ttl());
        attr.ino
    }

    pub fn do_read_dir_plus(
        &self,
        request: &Request,
        (dir, handle): (Ino, FileHandle),
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let fs = self.fs_for(request);
        for (cookie, name) in [(DOT, "."), (DOT_DOT, "..")] {
            if offset < cookie {
                // The kernel uses only the number and type of these two.
                let ino = if cookie == DOT { dir } else { self.parent_of(dir) };
                let attr = Attr { ino, kind: FileKind::Dir, ..Attr::default() };
                if !reply.add(cookie, name, (Duration::ZERO, &convert::attr(&attr))) {
                    return reply.ok();
                }
            }
        }
        let mut after = offset.max(DOT_DOT);
        if offset > DOT_DOT && self.open_directories.is_at_end(handle, after) {
            return reply.ok();
        }
        loop {
            let (page, ttl) = match self.page_with_attributes(&fs, dir, after) {
                Ok(read) => read,
                Err(error) => return reply.error(error.0),
            };
            let is_first = after <= DOT_DOT;
            let limit = self.open_directories.limit(handle, is_first, page.next_cookie);
            let permit = self.kernel_cache.permit(ttl, Versions::Ignored);
            let mut is_end = page.is_last_before(limit);
            let mut empty = true;
            let start = after;
            let rest = page.entries.iter().filter(|entry| entry.cookie > start);
            for entry in rest.filter(|entry| entry.cookie < limit) {
                empty = false;
                // Without attributes, only number and kind are known, and the kernel asks again.
                let known = Attr { ino: entry.ino, kind: entry.kind, ..Attr::default() };
                let (attr, ttl) = match &entry.attr {
                    Some(attr) => (attr, permit.ttl_of(attr.ino)),
                    None => (&known, Duration::ZERO),
                };
                if entry.attr.is_some() {
                    self.last_attributes.remember(attr);
                }
                let mut attr = *attr;
                self.show_known_read(&mut attr);
                let (attr, name) = (convert::attr(&attr), OsStr::from_bytes(&entry.name));
                if !reply.add(entry.cookie, name, (ttl, &attr)) {
                    is_end = false;
                    break;
                }
                after = entry.cookie;
            }
            if is_end {
                self.open_directories.note_end(handle, after);
            }
            // For the kernel an empty reply is the end; all of these entries may just have been removed.
            if !empty || is_end {
                return reply.ok();
            }
        }
    }

    /// Entries of a directory after the cookie `after`, and perhaps those before it, with attributes
    /// and their time to live.
    fn page_with_attributes(
        &self,
        fs: &Fs,
        dir: Ino,
        after: u64,
    ) -> Result<(Arc<DirPage>, Duration), Errno> {
        let cache = &self.kernel_cache.attributes;
        if let Some(known) = cache.listing(dir, Instant::now()) {
            return Ok(known);
        }
        let (read_at, sent_at) = (cache.moment(), Instant::now());
        let (page, ttl) = self.track_name(dir, || {
            let page = fs.read_dir(dir, after, 64 * 1024, true)?;
            let ttl = page.ttl;
            Ok((Arc::new(page), ttl))
        })?;
        // With names that the kernel shows to all users it must be known which it has.
        if after == DOT_DOT && (!self.trusted || self.kernel_permissions) {
            // No recall begins before they are known, which it would end.
            let permit = self.kernel_cache.permit(ttl, Versions::Compared);
            if !permit.ttl().is_zero() {
                cache.remember_listing(dir, &page, read_at, sent_at + permit.ttl());
            }
        }
        Ok((page, ttl))
    }

    pub fn do_stat_fs(&self, request: &Request, reply: ReplyStatfs) {
        match self.fs_for(request).space() {
            Ok(Space { total: stat, available }) => {
                let block = u64::from(BLOCK_BYTES);
                let free = stat.capacity.saturating_sub(stat.used) / block;
                reply.statfs(&Statfs {
                    block_size: BLOCK_BYTES,
                    blocks: stat.capacity / block,
                    free,
                    available: (available / block).min(free),
                    inodes: stat.inodes,
                    inodes_free: stat.inodes.saturating_sub(stat.inodes_used),
                    name_length: 255,
                });
            }
            Err(error) => reply.error(error.0),
        }
    }
}
