//! The open handles of a session, and how to open them again after the daemon restarts.

use forebay_protocol::message::{OpenMode, SessionToken};
use forebay_protocol::placement::Capability;
use forebay_protocol::{HandleId, Ino};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// How a handle is opened again.
#[derive(Clone, Debug)]
pub enum Reopen {
    File(Ino, OpenMode),
    Object(Capability, OpenMode),
}

/// The open handles of a session.
#[derive(Debug, Default)]
pub struct OpenHandles(Mutex<BTreeMap<HandleId, Reopen>>);

impl OpenHandles {
    pub fn add(&self, handle: HandleId, reopen: Reopen) {
        self.0.lock().insert(handle, reopen);
    }

    pub fn remove(&self, handle: HandleId) {
        self.0.lock().remove(&handle);
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// All handles with how to open them again.
    pub fn all(&self) -> Vec<(HandleId, Reopen)> {
        let handles = self.0.lock();
        handles.iter().map(|(handle, reopen)| (*handle, reopen.clone())).collect()
    }
}

/// The mode in which a handle that was opened in `mode` is opened again.
pub fn reopen_mode(mode: OpenMode) -> OpenMode {
    OpenMode { truncate: false, descriptor: false, ..mode }
}

/// What identifies the session to the daemon.
#[derive(Debug, Default)]
pub struct SessionIdentity {
    pub token: Option<SessionToken>,
    /// Sequence number of the last call on the recovery connection.
    pub recovery_seq: u64,
}
