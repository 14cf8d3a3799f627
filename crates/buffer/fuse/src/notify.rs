//! Notifications: the kernel is to drop what it has cached.

use crate::abi::{self, notify};
use crate::device::Device;
use crate::types::INodeNo;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Sends notifications of a session, from any thread.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Device>);

impl Notifier {
    pub(crate) fn new(device: Arc<Device>) -> Notifier {
        Notifier(device)
    }

    /// Invalidates all cached names, including those in replies on their way: the kernel compares the
    /// epoch at which it sent a lookup with the present one, and repeats the lookup. Takes no lock of
    /// the kernel's, so that a request may call it while a directory is locked for it. `false`: the
    /// kernel is older than Linux 6.16.
    pub fn invalidate_names(&self) -> bool {
        self.0.notify(notify::INC_EPOCH, [&[], &[]]).is_ok()
    }

    /// Invalidates the cached attributes of an inode, including those in replies on their way to
    /// requests for the attributes of an inode that the kernel has. `false`: the kernel does not have
    /// the inode.
    pub fn invalidate_attributes(&self, ino: INodeNo) -> bool {
        // A negative offset: no contents.
        let inode = abi::NotifyInvalInodeOut { ino: ino.0, off: -1, len: 0 };
        self.0.notify(notify::INVAL_INODE, [inode.as_bytes(), &[]]).is_ok()
    }

    /// Invalidates a cached name. Waits for requests that lock the directory. `false`: the kernel does
    /// not have the name.
    pub fn invalidate_name(&self, parent: INodeNo, name: &OsStr) -> bool {
        let namelen = name.len() as u32;
        let entry = abi::NotifyInvalEntryOut { parent: parent.0, namelen, flags: 0 };
        // The name ends with a zero.
        let name = [name.as_bytes(), &[0]].concat();
        let sent: Result<(), Errno> = self.0.notify(notify::INVAL_ENTRY, [entry.as_bytes(), &name]);
        sent.is_ok()
    }
}
