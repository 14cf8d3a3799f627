//! Properties of requests that decide how a session sends them.

use forebay_protocol::Request;
use forebay_protocol::message::{BatchRequest, FileRequest, NameRequest, PathOperation};

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

/// Whether a request stores the contents of files.
pub(super) fn stores_contents(request: &Request) -> bool {
    let puts = |request: &NameRequest| matches!(request, NameRequest::PutFile { .. });
    let puts_at = |operation: &PathOperation| match operation {
        PathOperation::Name(request) => puts(request),
        PathOperation::Inode(_) | PathOperation::File(_) => false,
    };
    match request {
        Request::Name(request) => puts(request),
        Request::Path(path) => puts_at(&path.operation),
        Request::Batch(requests) => requests.iter().any(|request| match request {
            BatchRequest::Name(request) => puts(request),
            BatchRequest::Path(path) => puts_at(&path.operation),
            BatchRequest::Inode(_) => false,
        }),
        Request::Inode(_)
        | Request::File(_)
        | Request::Delegated(_)
        | Request::Session(_)
        | Request::Admin(_)
        | Request::Lock(_)
        | Request::Data(_)
        | Request::Peer(_) => false,
    }
}
