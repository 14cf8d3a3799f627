//! Files whose delayed writes a request must not overtake.
//!
//! A request of a mount concerns one file of many, and does not wait for the writes to others.

use super::PendingWrites;
use crate::file::DelayedWrites;
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest};
use forebay_protocol::{Ino, Reply, Request};
use std::sync::Arc;

/// The files whose data, length or times a request shows or changes.
#[derive(Debug, PartialEq, Eq)]
enum Affected {
    /// None, or that of a handle, whose writes its [`File`](crate::File) finishes before.
    None,
    /// These.
    Inodes(Vec<Ino>),
    /// Those that the reply shows. To repeat the request changes nothing.
    Shown,
    /// The names do not tell.
    Unknown,
}

fn affected_by(request: &Request) -> Affected {
    match request {
        Request::Inode(request) => match request {
            InodeRequest::GetAttr { ino }
            | InodeRequest::SetAttr { ino, .. }
            | InodeRequest::SetXattr { ino, .. }
            | InodeRequest::RemoveXattr { ino, .. }
            | InodeRequest::GetFile { ino } => Affected::Inodes(vec![*ino]),
            InodeRequest::GetAttrs { inos } | InodeRequest::StatObjects { inos } => {
                Affected::Inodes(inos.clone())
            }
            InodeRequest::Access { .. }
            | InodeRequest::GetXattr { .. }
            | InodeRequest::ListXattr { .. }
            | InodeRequest::StatFs
            | InodeRequest::LendSpace { .. } => Affected::None,
        },
        Request::Name(request) => match request {
            NameRequest::Lookup { .. } | NameRequest::ReadDir { attrs: true, .. } => {
                Affected::Shown
            }
            NameRequest::Create { exclusive: true, .. } => Affected::None,
            // A file with delayed writes exists already, and is opened.
            NameRequest::Create { open, .. } if !open.truncate => Affected::Shown,
            NameRequest::Create { .. } => Affected::Unknown,
            NameRequest::Link { ino, .. } => Affected::Inodes(vec![*ino]),
            // It may make the data durable before the file gets another name.
            NameRequest::Rename { .. } => Affected::Unknown,
            NameRequest::CreateUnnamed { .. }
            | NameRequest::Mknod { .. }
            | NameRequest::PutFile { .. }
            | NameRequest::ReadDir { .. }
            | NameRequest::ReadLink { .. }
            | NameRequest::RmDir { .. }
            | NameRequest::Unlink { .. } => Affected::None,
        },
        Request::File(FileRequest::Open { ino, .. }) => Affected::Inodes(vec![*ino]),
        Request::File(FileRequest::Sync { handle: None, .. })
        | Request::Path(_)
        | Request::Batch(_) => Affected::Unknown,
        Request::File(_)
        | Request::Lock(_)
        | Request::Delegated(_)
        | Request::Session(_)
        | Request::Admin(_)
        | Request::Data(_)
        | Request::Peer(_) => Affected::None,
    }
}

impl PendingWrites {
    /// Waits until the requests of all writes that are delayed now and that `request` affects are over.
    /// Returns the files of which this is known only by the [reply](finish_shown).
    pub fn finish_before(&self, request: &Request) -> Vec<Arc<DelayedWrites>> {
        if self.is_empty() {
            return Vec::new();
        }
        match affected_by(request) {
            Affected::None => {}
            Affected::Inodes(inos) => inos.iter().for_each(|ino| self.finish_file(*ino)),
            Affected::Shown => return self.files(),
            Affected::Unknown => self.finish(),
        }
        Vec::new()
    }
}

/// Waits until the requests of all writes to those of the `files` are over whose attributes a reply shows.
/// Returns whether there are any, so that the request is to be repeated.
pub fn finish_shown(files: &[Arc<DelayedWrites>], reply: &Reply) -> bool {
    let mut any = false;
    for writes in files.iter().filter(|writes| shows(reply, writes.ino())) {
        writes.finish();
        any = true;
    }
    any
}

/// Whether a reply shows attributes of an inode.
fn shows(reply: &Reply, ino: Ino) -> bool {
    match reply {
        Reply::Entries { entries, .. } => entries.iter().any(|entry| entry.ino == ino),
        other => other.reached_inodes().contains(&ino),
    }
}
