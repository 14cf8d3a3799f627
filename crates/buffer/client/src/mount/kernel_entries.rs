//! Notifications that have the kernel drop names and attributes that it caches for a mount.

use forebay_fuse::{INodeNo, Notifier};
use forebay_protocol::Ino;
use std::sync::OnceLock;

/// The cached names and attributes of a mount.
#[derive(Debug, Default)]
pub struct KernelEntries {
    /// The session of the mount, from its start.
    session: OnceLock<Notifier>,
}

impl KernelEntries {
    /// The mount is served by this session.
    pub fn set_session(&self, session: Notifier) {
        let previous = self.session.set(session);
        assert!(previous.is_ok(), "a mount has one session");
    }

    /// Invalidates all cached names ([`Notifier::invalidate_names`]). `false`: the kernel cannot.
    pub fn invalidate(&self) -> bool {
        self.session.get().is_some_and(Notifier::invalidate_names)
    }

    /// Invalidates the cached attributes of an inode ([`Notifier::invalidate_attributes`]). `false`: the
    /// kernel does not have the inode.
    pub fn invalidate_attributes(&self, ino: Ino) -> bool {
        self.session.get().is_some_and(|session| session.invalidate_attributes(INodeNo(ino.0)))
    }
}
