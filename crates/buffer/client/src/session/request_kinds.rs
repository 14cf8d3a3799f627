//! Properties of requests that decide how a session sends them.

use forebay_protocol::Request;
use forebay_protocol::message::{AdminRequest, FileRequest, NameRequest, PathOperation};

/// Whether the reply to a request may take any time although the daemon works: it waits for a device
/// or for other clients.
pub(super) fn may_take_long(request: &Request) -> bool {
    matches!(
        request,
        Request::File(
            FileRequest::Sync { .. }
                | FileRequest::SyncMetadata { .. }
                | FileRequest::AppendLock { .. }
                | FileRequest::Allocate { .. }
        ) | Request::Name(NameRequest::Rename { .. }) // may sync the file first
            | Request::Admin(AdminRequest::ScrubInstance { .. }) // reads all data first
    )
}

/// Whether a request changes names or attributes.
pub(super) fn changes_metadata(request: &Request) -> bool {
    match request {
        Request::Name(request) => request.is_change(),
        Request::Inode(request) => request.is_change(),
        Request::File(FileRequest::Open { open, .. }) => open.truncate,
        Request::File(request) => matches!(request, FileRequest::Allocate { .. }),
        Request::Path(path) => match &path.operation {
            PathOperation::Name(request) => request.is_change(),
            PathOperation::Inode(request) => request.is_change(),
            PathOperation::File(request) => {
                matches!(request, FileRequest::Open { open, .. } if open.truncate)
            }
        },
        Request::Session(_)
        | Request::Admin(_)
        | Request::Lock(_)
        | Request::Data(_)
        | Request::Peer(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::InstanceId;
    use forebay_protocol::message::InodeRequest;

    #[test]
    fn requests_that_read_or_sync_data_may_take_long() {
        let id = InstanceId(1);
        assert!(may_take_long(&AdminRequest::ScrubInstance { id }.into()));
        assert!(!may_take_long(&InodeRequest::StatFs.into()));
        assert!(!may_take_long(&AdminRequest::RemoveInstance { id, force: false }.into()));
    }
}
