//! Changes of a session that are not synced, and which of them a sync makes durable.

use super::request_kinds::{changes_metadata, stores_contents};
use crate::unsynced::{PendingSync, Unsynced};
use forebay_protocol::Request;
use forebay_protocol::message::FileRequest;

/// Changes that are not synced.
#[derive(Debug, Default)]
pub(super) struct UnsyncedChanges {
    /// Of names and attributes.
    metadata: Unsynced,
    /// Contents of files that were stored whole. The sync of a file makes only its own durable, and says
    /// nothing of those of others.
    contents: Unsynced,
}

/// The changes that a sync covers.
#[derive(Clone, Copy, Debug)]
#[must_use = "they are put back if the sync fails"]
pub(super) struct PendingSyncs {
    metadata: PendingSync,
    contents: PendingSync,
}

impl UnsyncedChanges {
    /// A request is sent while the host has this boot id. Returns the changes that it makes durable.
    pub(super) fn begin(&self, request: &Request, boot_id: u64) -> PendingSyncs {
        let (of_metadata, of_contents) = match request {
            Request::File(FileRequest::Sync { handle, .. }) => (true, handle.is_none()),
            Request::File(FileRequest::SyncMetadata { .. }) => (true, false),
            _ => (false, false),
        };
        let take = |covered: bool, unsynced: &Unsynced| match covered {
            true => unsynced.take(),
            false => PendingSync::NOTHING,
        };
        let pending = PendingSyncs {
            metadata: take(of_metadata, &self.metadata),
            contents: take(of_contents, &self.contents),
        };
        if changes_metadata(request) {
            self.metadata.record_change(boot_id);
        }
        if stores_contents(request) {
            self.contents.record_change(boot_id);
        }
        pending
    }

    /// The sync failed.
    pub(super) fn put_back(&self, pending: PendingSyncs) {
        self.metadata.put_back(pending.metadata);
        self.contents.put_back(pending.contents);
    }
}

impl PendingSyncs {
    /// Whether any of the changes are lost, as the host has this boot id now.
    pub(super) fn is_lost(self, boot_id: u64) -> bool {
        self.metadata.is_lost(boot_id) || self.contents.is_lost(boot_id)
    }
}
