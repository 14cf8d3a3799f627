//! Notifications that have the kernel drop names and attributes that it caches for a mount.

use forebay_protocol::Ino;
use rustix::io::{Errno, write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// `FUSE_NOTIFY_INC_EPOCH` of `linux/fuse.h`, since Linux 6.16.
const NOTIFY_INC_EPOCH: i32 = 8;
/// `FUSE_NOTIFY_INVAL_INODE`.
const NOTIFY_INVAL_INODE: i32 = 2;
/// Length of `struct fuse_out_header`.
const HEADER_BYTES: usize = 16;

/// The cached names and attributes of a mount.
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
        self.notify(NOTIFY_INC_EPOCH, &[])
    }

    /// Invalidates the cached attributes of an inode, including those in replies on their way to requests
    /// for the attributes of an inode that the kernel has. `false`: the kernel does not have the inode.
    pub fn invalidate_attributes(&self, ino: Ino) -> bool {
        // The inode; a negative offset and a length: no contents.
        let fields = [ino.0 as i64, -1, 0];
        let body: Vec<u8> = fields.iter().flat_map(|field| field.to_ne_bytes()).collect();
        self.notify(NOTIFY_INVAL_INODE, &body)
    }

    /// Sends a notification. `false`: the kernel refuses it.
    fn notify(&self, code: i32, body: &[u8]) -> bool {
        let Some(device) = self.device.get() else {
            return false;
        };
        // Length, code, and 0 instead of the number of a request.
        let mut message = vec![0; HEADER_BYTES];
        message[..4].copy_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
        message[4..8].copy_from_slice(&code.to_ne_bytes());
        message.extend_from_slice(body);
        loop {
            match write(device.as_fd(), &message) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}
