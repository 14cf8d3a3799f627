//! Operations on paths: the daemon resolves the path and carries out the operation in one request.

#[cfg(doc)]
use super::Reply;
use super::{FileRequest, InodeRequest, NameRequest, Request};
use crate::ids::Ino;
use serde::{Deserialize, Serialize};

/// Longest path that a daemon resolves, in bytes. A path of a client with the targets of
/// [`MAX_PATH_LINKS`] symbolic links is not longer.
pub const MAX_PATH_BYTES: usize = 192 << 10;
/// Maximum number of symbolic links in a path.
pub const MAX_PATH_LINKS: u8 = 40;

/// An operation on the inode to which a path leads. The caller needs permission to search each
/// directory on the way. Answered by the reply to the operation, or by [`Reply::PathContinues`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRequest {
    /// The rest of the path, and where it begins.
    pub path: PathRest,
    /// Follow a symbolic link at the end of the path.
    pub follow: bool,
    /// The operation, with any inode.
    pub operation: PathOperation,
}

/// The part of a path that is not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRest {
    /// The inode at which it begins.
    pub from: Ino,
    /// Names, separated by slashes. Empty: the path leads to `from`.
    pub names: Vec<u8>,
    /// Symbolic links followed so far.
    pub links: u8,
}

/// An operation on the inode to which a path leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathOperation {
    /// On an entry of that directory, or on the directory.
    Name(NameRequest),
    /// On that inode.
    Inode(InodeRequest),
    /// Opens that inode.
    File(FileRequest),
}

impl PathOperation {
    /// The operation on an inode. `None`: it is not an operation on exactly one inode or entry, or
    /// none for which paths are supported.
    pub fn at(mut self, target: Ino) -> Option<Request> {
        let ino = match &mut self {
            PathOperation::Name(request) => match request {
                NameRequest::Lookup { parent, .. }
                | NameRequest::Mknod { parent, .. }
                | NameRequest::Create { parent, .. }
                | NameRequest::CreateUnnamed { parent, .. }
                | NameRequest::PutFile { parent, .. }
                | NameRequest::Unlink { parent, .. }
                | NameRequest::RmDir { parent, .. } => parent,
                NameRequest::ReadLink { ino } | NameRequest::ReadDir { ino, .. } => ino,
                NameRequest::Rename { .. } | NameRequest::Link { .. } => return None,
            },
            PathOperation::Inode(request) => match request {
                InodeRequest::GetAttr { ino }
                | InodeRequest::SetAttr { ino, .. }
                | InodeRequest::Access { ino, .. }
                | InodeRequest::SetXattr { ino, .. }
                | InodeRequest::GetXattr { ino, .. }
                | InodeRequest::ListXattr { ino }
                | InodeRequest::RemoveXattr { ino, .. }
                | InodeRequest::GetFile { ino } => ino,
                InodeRequest::GetAttrs { .. }
                | InodeRequest::StatFs
                | InodeRequest::StatObjects { .. }
                | InodeRequest::LendSpace { .. } => return None,
            },
            PathOperation::File(request) => match request {
                FileRequest::Open { ino, .. } => ino,
                FileRequest::OpenObject { .. }
                | FileRequest::Close { .. }
                | FileRequest::CloseAll { .. }
                | FileRequest::RenewCapability { .. }
                | FileRequest::ReserveSpace { .. }
                | FileRequest::Allocate { .. }
                | FileRequest::Sync { .. }
                | FileRequest::SyncMetadata { .. }
                | FileRequest::AppendLock { .. }
                | FileRequest::AppendUnlock { .. }
                | FileRequest::Seek { .. } => return None,
            },
        };
        *ino = target;
        Some(match self {
            PathOperation::Name(request) => Request::Name(request),
            PathOperation::Inode(request) => Request::Inode(request),
            PathOperation::File(request) => Request::File(request),
        })
    }
}
