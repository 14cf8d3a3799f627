//! Requests that write to objects whose checksums are durable. The checksums must be invalidated
//! durably first, which takes as long as the device needs; no other request waits for it.
//!
//! Only requests that are often the first to write to an object wait here. Others that open an
//! object for writing invalidate its checksums synchronously.

use super::Volume;
use crate::context::{Context, Origin};
use crate::driver::{ConnId, Effect};
use crate::objects::Objects;
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest, OpenMode};
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::{Call, Errno, Ino, NodeIndex, Request};
use std::collections::BTreeMap;

/// A call or a message that waits until the checksums of an object are invalid.
#[derive(Debug)]
pub enum PendingCall {
    /// A call of a client.
    Call(ConnId, Call),
    /// A file is resized by its metadata node.
    Resize { from: NodeIndex, task: u64, length: u64 },
}

impl PendingCall {
    /// Whether both are the same message of another node.
    fn is_duplicate(&self, other: &PendingCall) -> bool {
        match (self, other) {
            (
                PendingCall::Resize { from, task, .. },
                PendingCall::Resize { from: other_from, task: other_task, .. },
            ) => (from, task) == (other_from, other_task),
            (PendingCall::Call(..), _) | (_, PendingCall::Call(..)) => false,
        }
    }
}

/// Objects whose checksums are being invalidated, and what waits for that. A connection has one call
/// in flight, and the messages of a node about one task count once, so their number is bounded.
#[derive(Debug, Default)]
pub struct Invalidations(BTreeMap<Ino, Vec<PendingCall>>);

impl Invalidations {
    /// Add what waits. `true`: it is the first, and the invalidation is to be started.
    fn add(&mut self, ino: Ino, call: PendingCall) -> bool {
        let waiting = self.0.entry(ino).or_default();
        let is_first = waiting.is_empty();
        if !waiting.iter().any(|other| other.is_duplicate(&call)) {
            waiting.push(call);
        }
        assert!(!waiting.is_empty(), "an invalidation has a cause");
        is_first
    }

    /// Remove all calls of clients.
    pub fn take_calls(&mut self) -> Vec<(ConnId, u64)> {
        let calls = std::mem::take(&mut self.0).into_values().flatten();
        let calls = calls.filter_map(|call| match call {
            PendingCall::Call(conn, call) => Some((conn, call.seq)),
            PendingCall::Resize { .. } => None,
        });
        calls.collect()
    }

    /// A connection is closed; its call will be repeated on another one.
    pub fn drop_calls_of(&mut self, conn: ConnId) {
        for waiting in self.0.values_mut() {
            waiting.retain(|call| !matches!(call, PendingCall::Call(of, _) if *of == conn));
        }
    }
}

impl<O: Objects> Volume<O> {
    /// The object that a request writes to, if its checksums must be invalidated first.
    pub fn object_to_invalidate(&self, origin: &Origin, request: &Request) -> Option<Ino> {
        let passes_descriptor = |open: &OpenMode| open.descriptor && origin.is_local;
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
            | Request::Peer(_) => return None,
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
