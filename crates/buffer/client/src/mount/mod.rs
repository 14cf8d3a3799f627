//! An instance as a directory of the host, by FUSE.
//!
//! Nothing is cached that another client could change: the kernel caches names and attributes under a lease
//! that the daemon recalls before another client (a mount, or an [`Fs`]) changes anything, or, with
//! kernels before Linux 6.16 and on instances of several nodes, only while this mount is the only client.
//! This process caches attributes of directories and listings under the same lease.
//! Small sequential writes to files whose data object the kernel does not access directly are reported before
//! the storage node has them, under a write lease of the library (`file/delayed_writes`). The kernel's own
//! write-back cache is not used: Linux refuses passthrough with it, it would make this kernel's lengths and
//! times count instead of the storage node's, and it reports a lack of space only after the write.
//! Data are read ahead of small sequential reads from other hosts under a read lease of the library
//! (`file/read_ahead`), in this process; the kernel caches no file contents, except for memory maps: it would use
//! them in a file that is open also after the lease was recalled.
//! Other file contents are cached in the page cache of the data object only. Where kernel and permissions allow
//! it (`FUSE_PASSTHROUGH`, root), a file open for reading is read directly from its data object, and
//! memory maps of any file map the object. Writes always pass through this process, because it
//! enforces the capacity of the instance.
//!
//! The daemon checks permissions with each request. If the kernel does, too, it requests the
//! attributes of every directory of a path first, unless it may cache them; so that is an option. A
//! mount of root names the caller, and the groups of the caller once they are needed. A mount of
//! another user is for that user only, or has the kernel check permissions. A kernel that does not
//! check them may cache entries only of directories that everybody may search.

mod attribute_cache;
mod busy_threads;
mod cached_entries;
mod convert;
mod counters;
mod delegated;
mod directory_reads;
mod file_io;
mod file_locks;
mod filesystem;
mod kernel_cache;
mod kernel_entries;
mod listing;
mod lock_waits;
mod mapped_pages;
mod mounted_fs;
mod names;
mod negative_lookups;
mod open_directories;
mod open_files;
mod parents;
mod prepared_files;
mod recent_reads;
mod removed_directories;
mod replaced_files;
mod reply;
mod xattrs;

pub use counters::MountReport;

use crate::fs::Fs;
use crate::session::ReplyCaches;
use counters::Counters;
use filesystem::OPERATIONS;
use forebay_fuse::mount::Mounted;
use forebay_fuse::{Session, Threads};
use kernel_cache::KernelCache;
use mounted_fs::MountedFs;
use negative_lookups::NegativeLookups;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Threads that receive requests, and serve them while others are free.
    pub threads: usize,
    /// Other users have access, subject to permissions. Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The kernel accesses data objects directly where possible.
    pub passthrough: bool,
    /// The kernel checks permissions, too. Only then do the modes of pipes, sockets and devices
    /// apply, which it opens itself, and `fs.protected_symlinks`, `_hardlinks`, `_fifos` and
    /// `_regular`, and only then are names cached in directories that not everybody may search. While
    /// other clients change the instance, this costs requests for attributes.
    pub kernel_permissions: bool,
    /// Changes through the mount fail with `EROFS`.
    pub read_only: bool,
    /// No change is reported to a program before the storage node has made it, as for a local mount with
    /// `sync` or `dirsync`.
    pub synchronous: bool,
    /// The kernel decides on file locks by itself, which `/proc/locks` then shows. Only right while no
    /// other client of the instance can take locks: they do not exclude those of others.
    pub local_locks: bool,
    /// The source that `mount` shows.
    pub name: String,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        let root = rustix::process::geteuid().is_root();
        MountOptions {
            threads: 16,
            allow_other: root,
            passthrough: true,
            kernel_permissions: false,
            read_only: false,
            synchronous: false,
            local_locks: false,
            name: "forebay".into(),
        }
    }
}

/// Failure of a mount.
#[derive(Debug)]
pub struct MountError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot mount at {}: {}", self.path.display(), self.error)?;
        f.write_str(missing_fuse_support().unwrap_or_default())
    }
}

impl std::error::Error for MountError {}

/// Reason why no mount is possible on this host, if one is found.
fn missing_fuse_support() -> Option<&'static str> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    match device.err()?.kind() {
        ErrorKind::NotFound => {
            Some(" (/dev/fuse does not exist: the kernel lacks FUSE, or a container hides it)")
        }
        ErrorKind::PermissionDenied => Some(
            " (permission denied for /dev/fuse: run `chmod 666 /dev/fuse` as root, which udev does \
             on most systems)",
        ),
        _ => None,
    }
}

/// A mounted instance. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    session: Option<Threads>,
    mounted: Option<Mounted>,
    counters: Arc<Counters>,
    path: PathBuf,
}

impl Mount {
    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The operations so far.
    pub fn report(&self) -> MountReport {
        self.counters.report()
    }

    /// Whether it was unmounted by another process.
    pub fn is_unmounted(&self) -> bool {
        self.session.as_ref().is_none_or(Threads::are_finished)
    }

    /// Unmounts, and waits until all requests are completed. `EBUSY` while files in it are in
    /// use, or another mount covers it: then it ends when the kernel has no use for it any more.
    pub fn unmount(mut self) -> io::Result<()> {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount()?;
        }
        match self.session.take() {
            Some(session) => session.join(),
            None => Ok(()),
        }
    }
}

/// Mounts the instance of `fs` at the existing directory `path`, with sessions of its own. While other
/// clients change the instance, the kernel caches no entries and attributes, which makes walks of trees
/// slower.
pub fn mount(fs: Fs, path: &Path, options: &MountOptions) -> Result<Mount, MountError> {
    forebay_net::stream::raise_descriptor_limit();
    forebay_net::memory::limit_retained_memory();
    let failed = |error| MountError { path: path.to_owned(), error };
    // The sessions are used by the cache of the kernel only.
    let caches = if checks_in_kernel(options) {
        ReplyCaches::SingleWithPermissions
    } else {
        ReplyCaches::Single
    };
    let own =
        fs.open_for_cache(caches, !options.synchronous).map_err(|errno| failed(errno.into()))?;
    drop(fs);
    let counters = Arc::new(Counters::new(OPERATIONS));
    let negative_lookups = Arc::new(NegativeLookups::default());
    let kernel_cache = Arc::new(KernelCache::new(negative_lookups.clone()));
    let sessions = own.requester.attachment.sessions.clone();
    let threads = NonZeroUsize::new(options.threads).unwrap_or(NonZeroUsize::MIN);
    let options = &MountOptions { threads: threads.get(), ..options.clone() };
    let served = Arc::new(MountedFs::new(
        own,
        options,
        counters.clone(),
        kernel_cache.clone(),
        negative_lookups,
    ));
    let prepared_files = Arc::downgrade(&served.prepared_files);
    let (device, mounted) =
        forebay_fuse::mount::mount(path, &kernel_options(options)).map_err(failed)?;
    let session = Session::new(served, device).map_err(failed)?;
    let cache = kernel_cache.clone();
    sessions.cache_changed_directories(move |attr, until| {
        cache.attributes.note_changed_directory(attr, until);
    });
    kernel_cache.entries.set_session(session.notifier());
    if kernel_cache.entries.invalidate() {
        let obeys = sessions.obey_cache_recalls(move || {
            kernel_cache.drop_all();
            // What they take is free when another client attaches.
            if let Some(prepared_files) = prepared_files.upgrade() {
                prepared_files.drop_all();
            }
        });
        obeys.map_err(|errno| failed(errno.into()))?;
    }
    drop(sessions);
    let session = spawn_with_short_slices(session, threads).map_err(failed)?;
    Ok(Mount { session: Some(session), mounted: Some(mounted), counters, path: path.to_owned() })
}

/// Whether the kernel checks permissions. The daemon checks them with each request, on behalf of the
/// caller; but only a mount of root may name the caller.
fn checks_in_kernel(options: &MountOptions) -> bool {
    let trusted = rustix::process::geteuid().is_root();
    options.kernel_permissions || (options.allow_other && !trusted)
}

fn kernel_options(options: &MountOptions) -> forebay_fuse::mount::MountOptions {
    forebay_fuse::mount::MountOptions {
        source: options.name.clone(),
        subtype: "forebay".into(),
        allow_other: options.allow_other,
        default_permissions: checks_in_kernel(options),
        read_only: options.read_only,
    }
}

/// Serves a session by threads that have short time slices, which they inherit.
fn spawn_with_short_slices(
    session: Session<MountedFs>,
    threads: NonZeroUsize,
) -> io::Result<Threads> {
    let spawn = || {
        if let Err(error) = forebay_net::time_slice::shorten_time_slice() {
            tracing::debug!(%error, "the mount has the time slices of other threads");
        }
        session.spawn(threads)
    };
    let spawned = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("forebay-mount".into());
        Ok::<_, io::Error>(thread.spawn_scoped(scope, spawn)?.join())
    })?;
    spawned.unwrap_or_else(|_| Err(io::Error::other("the thread that starts the mount panicked")))
}
