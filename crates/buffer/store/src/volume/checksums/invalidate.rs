//! Requests wait until the checksums of their objects are invalid.

use super::PendingCall;
use crate::context::{Context, Origin};
use crate::driver::{ConnId, Effect};
use crate::objects::Objects;
use crate::volume::Volume;
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest, OpenMode};
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::{Call, Errno, Ino, Request};

impl<O: Objects> Volume<O> {
    /// The object that a request writes to, if its checksums must be invalidated first.
    pub fn object_to_invalidate(&self, origin: &Origin, request: &Request) -> Option<Ino> {
        let passes_descriptor = |open: &OpenMode| open.descriptor && origin.passes_descriptors;
        let ino = match request {
            Request::Name(request) => self.file_to_create(request)?,
            Request::Inode(InodeRequest::SetAttr { ino, set, .. }) if set.size.is_some() => *ino,
            Request::File(FileRequest::Open { ino, open, .. })
                if open.truncate || (open.write && passes_descriptor(open)) =>
            {
                *ino
            }
            Request::File(FileRequest::OpenObject { capability, open, .. })
                if open.write && passes_descriptor(open) =>
            {
                capability.ino
            }
            Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Session(_)
            | Request::Admin(_)
            | Request::Data(_)
            | Request::Path(_)
            | Request::Peer(_)
            | Request::Delegated(_)
            | Request::Batch(_) => return None,
        };
        let object = self.object(ino);
        (self.space.has_object(ino) && self.objects.has_durable_checksums(object)).then_some(ino)
    }

    /// The existing file that a request creates, and writes.
    fn file_to_create(&self, request: &NameRequest) -> Option<Ino> {
        match request {
            NameRequest::Create { parent, name, exclusive: false, open, .. }
                if open.write || open.truncate =>
            {
                self.names().get(*parent)?.dir()?.get(name)
            }
            NameRequest::Create { .. }
            | NameRequest::CreateUnnamed { .. }
            | NameRequest::Lookup { .. }
            | NameRequest::ReadLink { .. }
            | NameRequest::ReadDir { .. }
            | NameRequest::Mknod { .. }
            | NameRequest::PutFile { .. }
            | NameRequest::Unlink { .. }
            | NameRequest::RmDir { .. }
            | NameRequest::Rename { .. }
            | NameRequest::Link { .. } => None,
        }
    }

    /// Continue when the checksums of an object are invalid.
    pub fn await_invalidation(&mut self, node: &mut Context<O>, ino: Ino, call: PendingCall) {
        if self.invalidations.add(ino, call) {
            let object = self.object(ino);
            node.effects.push(Effect::InvalidateChecksums(object));
        }
    }

    /// The checksums of an object are invalid, or that failed. Returns the calls to carry out now.
    pub fn checksums_invalidated(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        result: Result<(), Errno>,
    ) -> Vec<(ConnId, Call)> {
        let mut calls = Vec::new();
        for call in self.invalidations.0.remove(&ino).unwrap_or_default() {
            match (call, result) {
                (PendingCall::Call(conn, call), Ok(())) => calls.push((conn, call)),
                (PendingCall::Call(conn, call), Err(errno)) => {
                    node.finish(conn, call.seq, Err(errno));
                }
                (PendingCall::Resize { from, task, length }, Ok(())) => {
                    self.resize_and_report(node, from, task, ino, Some(length));
                }
                (PendingCall::Resize { from, task, .. }, Err(errno)) => {
                    let info = Err(errno);
                    self.send(node, from, PeerPayload::ObjectResized { task, info });
                }
            }
        }
        calls
    }
}
