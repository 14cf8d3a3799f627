//! An instance as a directory of the host, by FUSE.
//!
//! Nothing is cached that another client could change: names and attributes are asked for each
//! time unless this mount is alone with the instance (no other mount, no other [`Fs`]), and file
//! contents live in the page cache of the data object only. Where the kernel and
//! our rights allow it (`FUSE_PASSTHROUGH`, root), a file open for reading is read straight from
//! its data object, and memory maps of any file map the object; writes always come through here,
//! because here the instance's capacity is watched.
//!
//! What a caller may do the daemon checks with each request: a kernel that did it would ask for the
//! attributes of every directory on a path first. Root's mount says who the caller is, and the
//! groups that the caller is in once they matter; another user's mount is for that user alone, or
//! has the kernel check. The kernel may keep names only of directories that everybody may search.

mod cached_entries;
mod convert;
mod counters;
mod file_io;
mod filesystem;
mod instrumented;
mod lock_owner;
mod lock_waits;
mod mounted_fs;
mod names;
mod negative_lookups;
mod open_files;

pub use counters::MountReport;

use crate::fs::Fs;
use counters::Counters;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use instrumented::Instrumented;
use mounted_fs::MountedFs;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Threads that serve requests: one that waits for a disk does not hold up the others.
    pub threads: usize,
    /// Other users may enter, subject to permissions. Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Let the kernel reach data objects directly where it can.
    pub passthrough: bool,
    /// Nothing can be changed through the mount: `EROFS`.
    pub read_only: bool,
    /// What `mount` shows as the source.
    pub name: String,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        let root = rustix::process::geteuid().is_root();
        MountOptions {
            threads: 8,
            allow_other: root,
            passthrough: true,
            read_only: false,
            name: "forebay".into(),
        }
    }
}

/// Why mounting failed.
#[derive(Debug)]
pub struct MountError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot mount at {}: {}", self.path.display(), self.error)?;
        f.write_str(what_fuse_lacks().unwrap_or_default())
    }
}

impl std::error::Error for MountError {}

/// Why this host may not be able to mount at all.
fn what_fuse_lacks() -> Option<&'static str> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    match device.err()?.kind() {
        ErrorKind::NotFound => {
            Some(" (there is no /dev/fuse: the kernel lacks FUSE, or a container hides it)")
        }
        ErrorKind::PermissionDenied => Some(
            " (/dev/fuse is closed to this user; where udev runs it is open to all: \
             `chmod 666 /dev/fuse` as root does the same)",
        ),
        _ => None,
    }
}

/// A mounted instance. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    session: Option<BackgroundSession>,
    counters: Arc<Counters>,
    path: PathBuf,
}

impl Mount {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it has done so far.
    pub fn report(&self) -> MountReport {
        self.counters.report()
    }

    /// Has someone else unmounted it?
    pub fn is_unmounted(&self) -> bool {
        self.session
            .as_ref()
            .is_none_or(|session| session.guard.is_finished())
    }

    /// Unmount and wait until all requests are done. `EBUSY` while files in it are in use.
    pub fn unmount(mut self) -> io::Result<()> {
        match self.session.take() {
            Some(session) => session.umount_and_join(),
            None => Ok(()),
        }
    }
}

/// Mount the instance of `fs` at the existing directory `path`, through a session of its own. As
/// long as another session with the instance is open, `fs` if the caller keeps a clone of it for
/// one, the kernel may cache no names and attributes, which makes walking through trees slower.
pub fn mount(fs: Fs, path: &Path, options: &MountOptions) -> Result<Mount, MountError> {
    forebay_net::stream::raise_descriptor_limit();
    let failed = |error| MountError {
        path: path.to_owned(),
        error,
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("forebay".into()),
    ];
    // The daemon checks permissions; letting the kernel do that costs a request for every directory
    // of a path. But the daemon must know for whom, and takes only root's word for that.
    let trusted = rustix::process::geteuid().is_root();
    if options.allow_other && !trusted {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    // With a session of its own the kernel's cache is the only one who speaks through it.
    let own = fs.for_cache().map_err(|errno| failed(errno.into()))?;
    drop(fs);
    let served = MountedFs::new(own, options.passthrough);
    let counters = Arc::<Counters>::default();
    let served = Instrumented::new(served, counters.clone());
    let session = fuser::spawn_mount(served, path, &config).map_err(failed)?;
    Ok(Mount {
        session: Some(session),
        counters,
        path: path.to_owned(),
    })
}
