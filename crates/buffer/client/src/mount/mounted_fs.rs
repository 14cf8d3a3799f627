//! The state of a mount, and on whose behalf it sends requests.

use super::MountOptions;
use super::busy_threads::BusyThreads;
use super::cached_entries::CachedEntries;
use super::convert;
use super::counters::Counters;
use super::directory_reads::DirectoryReads;
use super::kernel_cache::{KernelCache, Versions};
use super::lock_waits::LockWaits;
use super::negative_lookups::NegativeLookups;
use super::open_directories::OpenDirectories;
use super::open_files::{OpenFile, OpenFiles};
use super::prepared_files::PreparedFiles;
use super::recent_reads::RecentReads;
use super::removed_directories::LastAttributes;
use super::replaced_files::ReplacedFiles;
use crate::fs::Fs;
use crate::mounted_instance::MountedInstance;
use crate::requester::{CallerProcess, GroupHints};
use forebay_fuse::{FileHandle, INodeNo, Request};
use forebay_protocol::message::{CreateMode, NameRequest, NewInode};
use forebay_protocol::{Attr, Credentials, Errno, FileKind, Ino};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct MountedFs {
    pub(super) fs: Fs,
    pub(super) counters: Arc<Counters>,
    /// This process is root: it names the caller of each request, and the daemon checks the
    /// caller's permissions.
    pub(super) trusted: bool,
    /// The kernel checks permissions, too, with modes that replies to it have brought up to date.
    pub(super) kernel_permissions: bool,
    /// Changes are reported when they are made.
    pub(super) synchronous: bool,
    /// The kernel decides on file locks.
    pub(super) local_locks: bool,
    group_hints: Arc<GroupHints>,
    pub(super) cached_entries: CachedEntries,
    pub(super) kernel_cache: Arc<KernelCache>,
    pub(super) negative_lookups: Arc<NegativeLookups>,
    pub(super) passthrough: AtomicBool,
    /// A data object has been registered, so passthrough cannot be disabled any more.
    registered: AtomicBool,
    pub(super) opens: OpenFiles,
    pub(super) open_directories: OpenDirectories,
    pub(super) last_attributes: LastAttributes,
    pub(super) directory_reads: DirectoryReads,
    pub(super) replaced_files: ReplacedFiles,
    pub(super) lock_waits: LockWaits,
    pub(super) prepared_files: Arc<PreparedFiles>,
    pub(super) recent_reads: RecentReads,
    /// The threads that receive requests.
    pub(super) threads: Arc<BusyThreads>,
}

impl MountedFs {
    pub fn new(
        fs: Fs,
        options: &MountOptions,
        counters: Arc<Counters>,
        kernel_cache: Arc<KernelCache>,
        negative_lookups: Arc<NegativeLookups>,
    ) -> MountedFs {
        let trusted = rustix::process::geteuid().is_root();
        let kernel_permissions = fs.sessions().cache_checks_permissions();
        let reports_early = trusted && kernel_permissions && !options.synchronous;
        MountedFs {
            kernel_permissions,
            synchronous: options.synchronous,
            prepared_files: Arc::new(PreparedFiles::new(&fs, reports_early)),
            local_locks: options.local_locks,
            fs,
            counters,
            trusted,
            group_hints: Arc::default(),
            cached_entries: CachedEntries::default(),
            kernel_cache,
            negative_lookups,
            passthrough: AtomicBool::new(options.passthrough),
            registered: AtomicBool::new(false),
            opens: OpenFiles::default(),
            open_directories: OpenDirectories::default(),
            last_attributes: LastAttributes::default(),
            directory_reads: DirectoryReads::default(),
            replaced_files: ReplacedFiles::default(),
            lock_waits: LockWaits::default(),
            recent_reads: RecentReads::default(),
            threads: Arc::new(BusyThreads::new(options.threads)),
        }
    }

    pub(super) fn passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Acquire)
    }

    /// Registering a data object failed. Returns `false` if others succeeded before.
    pub(super) fn disable_passthrough(&self) -> bool {
        self.passthrough.store(false, Ordering::Release);
        !self.registered.load(Ordering::Acquire)
    }

    pub(super) fn mark_registered(&self) {
        self.registered.store(true, Ordering::Release);
    }

    pub(super) fn open_file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Errno> {
        self.opens.get(handle).ok_or(Errno::EBADF)
    }

    /// The instance on behalf of the process that made the request.
    pub(super) fn fs_for(&self, request: &Request) -> Fs {
        if !self.trusted {
            return self.fs.clone();
        }
        let process = CallerProcess { pid: request.pid(), group_hints: self.group_hints.clone() };
        self.fs.on_behalf_of_process(request.uid(), request.gid(), process)
    }

    /// The instance on behalf of root, if this process is root.
    pub(super) fn fs_as_root(&self) -> Fs {
        if !self.trusted {
            return self.fs.clone();
        }
        self.fs.on_behalf_of(Credentials {
            uid: 0,
            gid: 0,
            groups: Some(Vec::new()),
            checked: true,
        })
    }

    /// The description of the instance, for a process that may search its root.
    pub(super) fn described_instance(&self, request: &Request) -> Result<Vec<u8>, Errno> {
        self.do_access(request, INodeNo(Ino::ROOT.0), convert::ACCESS_EXECUTE)?;
        let instance = MountedInstance::of_sessions(self.fs.sessions());
        serde_json::to_vec(&instance).map_err(|_| Errno::EIO)
    }

    pub(super) fn make_inode(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new: NewInode,
        mode: CreateMode,
    ) -> Result<(Attr, Duration), Errno> {
        let (parent, name) = (convert::ino(parent), name.as_bytes().to_vec());
        self.negative_lookups.add_name(parent, &name);
        let _change = self.kernel_cache.attributes.change([parent]);
        let make = NameRequest::Mknod { parent, name, new, mode };
        let requester = self.fs_for(request).requester;
        let created = self.track_name(parent, || requester.attr_for(parent.metadata_node(), make));
        if let Ok((attr, _)) = &created {
            self.last_attributes.remember(attr);
        }
        // Until the kernel has the reply, no process reaches the new directory.
        if let Ok((attr, ttl)) = &created
            && attr.kind == FileKind::Dir
            && (self.kernel_permissions || convert::is_searchable_by_all(attr))
        {
            // No recall begins before its names count as known, which it would end.
            let permit = self.kernel_cache.permit(*ttl, Versions::Compared);
            if !permit.ttl().is_zero() {
                self.negative_lookups.add_directory(attr.ino);
            }
        }
        created
    }

    /// Returns when the kernel uses no entry of `dir` that it cached so far.
    pub(super) fn drop_cached_entries(&self, dir: Ino) {
        let time_left = self.cached_entries.time_left(dir);
        if !time_left.is_zero() && !self.kernel_cache.entries.invalidate() {
            std::thread::sleep(time_left);
        }
    }

    /// Runs `lookup`, which returns an entry of `dir` and its time to live.
    pub(super) fn track_name<T>(
        &self,
        dir: Ino,
        lookup: impl FnOnce() -> Result<(T, Duration), Errno>,
    ) -> Result<(T, Duration), Errno> {
        let sent_at = Instant::now();
        let lookup = || {
            let result = lookup();
            if matches!(&result, Ok((_, ttl)) if !ttl.is_zero()) {
                self.negative_lookups.confirm_alone(sent_at);
            }
            result
        };
        if !self.trusted || self.kernel_permissions {
            return lookup(); // nobody sees names of others
        }
        let ttl = |result: &Result<(T, Duration), Errno>| {
            result.as_ref().map_or(Duration::ZERO, |(_, ttl)| *ttl)
        };
        self.cached_entries.track_lookup(dir, lookup, ttl)
    }
}
