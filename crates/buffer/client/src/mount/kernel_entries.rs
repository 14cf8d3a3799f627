//! The names that the kernel caches for a mount, and their invalidation.

use rustix::io::{Errno, write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// `FUSE_NOTIFY_INC_EPOCH` of `linux/fuse.h`, since Linux 6.16.
const NOTIFY_INC_EPOCH: i32 = 8;
/// Length of `struct fuse_out_header`.
const HEADER_BYTES: usize = 16;

/// The cached names of a mount.
#[derive(Debug, Default)]
pub struct KernelEntries {
    /// The FUSE device of the mount, from its start.
    device: OnceLock<OwnedFd>,
}

impl KernelEntries {
    /// The mount is served through this device.
    pub fn set_device(&self, device: OwnedFd) {
        let previous = self.device.set(device);
        assert!(previous.is_ok(), "a mount has one device");
    }

    /// Invalidates all cached names, including those in replies on their way: the kernel compares
    /// the epoch at which it sent a lookup with the present one, and repeats the lookup. Takes no lock
    /// of the kernel's, so that a request may call it while a directory is locked for it. Returns
    /// `false` if the kernel does not support it.
    pub fn invalidate(&self) -> bool {
        let Some(device) = self.device.get() else {
            return false;
        };
        // Length, code, and 0 instead of the number of a request.
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&(HEADER_BYTES as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&NOTIFY_INC_EPOCH.to_ne_bytes());
        loop {
            match write(device.as_fd(), &header) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}
