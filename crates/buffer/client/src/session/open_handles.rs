//! The open handles of a session, which are opened again after a restart of the daemon.

use super::Session;
use forebay_protocol::message::OpenMode;
use forebay_protocol::placement::Capability;
use forebay_protocol::{HandleId, Ino, InodeTag};

/// Inode or capability by which a handle was opened, and is opened again.
#[derive(Clone, Copy, Debug)]
pub enum OpenedBy {
    Ino(Ino),
    Capability(Capability),
}

/// An open handle, as it is opened again after a restart of the daemon.
#[derive(Clone, Debug)]
pub struct OpenHandle {
    pub opened: OpenedBy,
    pub mode: OpenMode,
    /// The tag of its inode, if the daemon does not trust the client.
    pub tags: Vec<InodeTag>,
}

impl Session {
    /// The daemon opened a handle in `mode`; it is opened again if the daemon restarts.
    pub fn remember_handle(&self, handle: HandleId, opened: OpenedBy, mode: OpenMode) {
        let mode = OpenMode { truncate: false, descriptor: false, ..mode };
        let tags = match opened {
            OpenedBy::Ino(ino) => self.tags.get(ino).into_iter().collect(),
            OpenedBy::Capability(_) => Vec::new(),
        };
        self.handles.lock().insert(handle, OpenHandle { opened, mode, tags });
    }

    /// A handle is being closed.
    pub fn forget_handle(&self, handle: HandleId) {
        self.handles.lock().remove(&handle);
    }
}
