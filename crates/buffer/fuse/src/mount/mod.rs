//! Mounting and unmounting.

mod helper;
mod kernel;
mod table;

use helper::HelperMount;
use kernel::KernelMount;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;

pub use table::{MountEntry, mount_table};

/// Options of a mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// The source that `mount` shows.
    pub source: String,
    /// The type of the file system, after `fuse.`.
    pub subtype: String,
    /// Users other than the one that mounts have access.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Changes fail with `EROFS`.
    pub read_only: bool,
}

/// A mount of this process. Dropping it unmounts.
#[derive(Debug)]
pub struct Mounted(Kind);

#[derive(Debug)]
enum Kind {
    Kernel(KernelMount),
    Helper(HelperMount),
}

impl Mounted {
    /// Unmounts, unless another process has done so. `EBUSY` while root's mount is in use. That of
    /// another user then vanishes from its path, and its session ends when it is no longer in use.
    pub fn unmount(&self) -> io::Result<()> {
        match &self.0 {
            Kind::Kernel(mounted) => mounted.unmount(),
            Kind::Helper(mounted) => mounted.unmount(),
        }
    }
}

/// Mounts at the existing directory `path`, as root by itself, otherwise with `fusermount3`. Returns
/// the device of the mount, too.
pub fn mount(path: &Path, options: &MountOptions) -> io::Result<(OwnedFd, Mounted)> {
    if rustix::process::geteuid().is_root() {
        match KernelMount::new(path, options) {
            Ok((device, mounted)) => return Ok((device, Mounted(Kind::Kernel(mounted)))),
            // Root of a container may not mount by itself.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    let (device, mounted) = HelperMount::new(path, options)?;
    Ok((device, Mounted(Kind::Helper(mounted))))
}
