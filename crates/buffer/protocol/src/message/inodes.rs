//! The inodes that requests and replies name.

use super::{BatchRequest, FileRequest, InodeRequest, NameRequest, Reply, Request};
use crate::ids::Ino;

impl Request {
    /// The inodes that it names by their numbers, in order: those for which a client that is not
    /// trusted needs [tags](crate::InodeTag). Open files are named by handles, and data objects by
    /// capabilities.
    pub fn inodes(&self) -> Vec<Ino> {
        match self {
            Request::Name(request) => request.inodes(),
            Request::Delegated(delegated) => delegated.request.inodes(),
            Request::Inode(request) => request.inodes(),
            Request::File(FileRequest::Open { ino, .. }) => vec![*ino],
            // The operation is one on the inode to which the path leads.
            Request::Path(request) => vec![request.path.from],
            Request::Batch(requests) => requests.iter().flat_map(BatchRequest::inodes).collect(),
            Request::Session(_)
            | Request::Admin(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_) => Vec::new(),
        }
    }
}

impl NameRequest {
    pub(super) fn inodes(&self) -> Vec<Ino> {
        match self {
            NameRequest::Lookup { parent, .. }
            | NameRequest::Mknod { parent, .. }
            | NameRequest::Create { parent, .. }
            | NameRequest::CreateUnnamed { parent, .. }
            | NameRequest::PutFile { parent, .. }
            | NameRequest::Unlink { parent, .. }
            | NameRequest::RmDir { parent, .. } => vec![*parent],
            NameRequest::ReadLink { ino } | NameRequest::ReadDir { ino, .. } => vec![*ino],
            NameRequest::Rename { parent, to, .. } => vec![*parent, *to],
            NameRequest::Link { ino, parent, .. } => vec![*ino, *parent],
        }
    }
}

impl InodeRequest {
    pub(super) fn inodes(&self) -> Vec<Ino> {
        match self {
            InodeRequest::GetAttr { ino }
            | InodeRequest::SetAttr { ino, .. }
            | InodeRequest::Access { ino, .. }
            | InodeRequest::SetXattr { ino, .. }
            | InodeRequest::GetXattr { ino, .. }
            | InodeRequest::ListXattr { ino }
            | InodeRequest::RemoveXattr { ino, .. }
            | InodeRequest::GetFile { ino } => vec![*ino],
            InodeRequest::GetAttrs { inos } | InodeRequest::StatObjects { inos } => inos.clone(),
            InodeRequest::StatFs | InodeRequest::LendSpace { .. } => Vec::new(),
        }
    }
}

impl Reply {
    /// The inodes that the caller has reached by the request: those of entries in directories that
    /// the caller may search, and those that the request named.
    pub fn reached_inodes(&self) -> Vec<Ino> {
        match self {
            Reply::Attr(attr) | Reply::Opened { attr, .. } | Reply::FileContents { attr, .. } => {
                vec![attr.ino]
            }
            Reply::Referral { ino, .. } => vec![*ino],
            // The request has named the directory.
            Reply::WithDirectory { reply, .. } | Reply::Delegating { reply, .. } => {
                reply.reached_inodes()
            }
            Reply::PathContinues { path, link } => [path.from].into_iter().chain(*link).collect(),
            Reply::Entries { entries, searchable: true, .. } => {
                entries.iter().map(|entry| entry.ino).collect()
            }
            Reply::Entries { searchable: false, .. }
            | Reply::Tagged { .. }
            | Reply::Failed(_)
            | Reply::Done
            | Reply::Attached { .. }
            | Reply::Instances(_)
            | Reply::ScrubReport(_)
            | Reply::Attrs(_)
            | Reply::Object(_)
            | Reply::Objects(_)
            | Reply::Capability(_)
            | Reply::Bytes(_)
            | Reply::Names(_)
            | Reply::Extent(_)
            | Reply::SpaceGranted(_)
            | Reply::StatFs(_)
            | Reply::LockPending
            | Reply::LockConflict(_)
            | Reply::LocksGranted(_)
            | Reply::Events { .. }
            | Reply::Leases(_)
            | Reply::Data
            | Reply::Written { .. }
            // Those of its parts have been tagged.
            | Reply::Batch(_)
            | Reply::Sessions(_) => Vec::new(),
        }
    }
}
