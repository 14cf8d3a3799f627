//! Requests whose replies may take long.

use super::{AdminRequest, BatchRequest, FileRequest, NameRequest, PathOperation, Request};

impl Request {
    /// Whether the reply may take any time although the daemon works: it waits for a device, for other
    /// clients, or for space that absent clients may have in use. A client that gets no reply finds out
    /// whether the daemon replies to others, instead of taking it for failed.
    pub fn may_take_long(&self) -> bool {
        match self {
            Request::File(request) => request.may_take_long(),
            Request::Name(request) => request.may_take_long(),
            Request::Path(request) => request.operation.may_take_long(),
            Request::Batch(requests) => requests.iter().any(BatchRequest::may_take_long),
            // It reads all data first.
            Request::Admin(request) => matches!(request, AdminRequest::ScrubInstance { .. }),
            Request::Session(_)
            | Request::Delegated(_)
            | Request::Inode(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_) => false,
        }
    }
}

impl PathOperation {
    fn may_take_long(&self) -> bool {
        match self {
            PathOperation::Name(request) => request.may_take_long(),
            PathOperation::File(request) => request.may_take_long(),
            PathOperation::Inode(_) => false,
        }
    }
}

impl BatchRequest {
    fn may_take_long(&self) -> bool {
        match self {
            BatchRequest::Name(request) => request.may_take_long(),
            BatchRequest::Inode(_) => false,
            BatchRequest::Path(request) => request.operation.may_take_long(),
        }
    }
}

impl FileRequest {
    fn may_take_long(&self) -> bool {
        match self {
            FileRequest::Sync { .. }
            | FileRequest::SyncMetadata { .. }
            | FileRequest::AppendLock { .. }
            | FileRequest::Allocate { .. }
            | FileRequest::ReserveSpace { .. } => true,
            FileRequest::Open { .. }
            | FileRequest::OpenObject { .. }
            | FileRequest::Close { .. }
            | FileRequest::CloseAll { .. }
            | FileRequest::RenewCapability { .. }
            | FileRequest::AppendUnlock { .. }
            | FileRequest::Seek { .. } => false,
        }
    }
}

impl NameRequest {
    fn may_take_long(&self) -> bool {
        // A rename may sync the file first.
        matches!(self, NameRequest::Rename { .. } | NameRequest::PutFile { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{InodeRequest, TrailingField};
    use crate::{HandleId, InstanceId};

    #[test]
    fn requests_that_read_or_sync_data_or_take_space_may_take_long() {
        let id = InstanceId(1);
        let (handle, lent) = (HandleId(1), TrailingField(0));
        let space = FileRequest::ReserveSpace { handle, returned: 0, want: 1, lent };
        let slow: [Request; 2] = [AdminRequest::ScrubInstance { id }.into(), space.into()];
        assert!(slow.iter().all(Request::may_take_long));
        assert!(!Request::from(InodeRequest::StatFs).may_take_long());
        assert!(!Request::from(AdminRequest::RemoveInstance { id, force: false }).may_take_long());
    }
}
