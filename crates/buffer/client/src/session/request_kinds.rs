//! Properties of requests that decide how a session sends them.

use forebay_protocol::Request;
use forebay_protocol::message::{BatchRequest, FileRequest, PathOperation};

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
        Request::Delegated(delegated) => delegated.request.is_change(),
        Request::Batch(requests) => requests.iter().any(BatchRequest::is_change),
        Request::Session(_)
        | Request::Admin(_)
        | Request::Lock(_)
        | Request::Data(_)
        | Request::Peer(_) => false,
    }
}
