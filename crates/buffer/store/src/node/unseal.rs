//! Requests to write to objects at rest, whose checksums have to be taken off durably before: that
//! takes as long as the device needs, and nobody else waits for it.
//!
//! Only those are here that are often the first to write to an object. What else opens one to write
//! has its checksums taken off there and then.

use super::{ConnId, Effect, Shard};
use crate::objects::{ObjectId, Objects};
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest};
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::{Call, Errno, Ino, NodeIndex, Reply, Request, SessionId};

/// What goes on when an object has no checksums any more.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A call.
    Call(ConnId, Call),
    /// An object's file gets another length, says its home.
    Resize {
        from: NodeIndex,
        task: u64,
        length: u64,
    },
}

impl Waiting {
    fn is_repeated(&self, other: &Waiting) -> bool {
        match (self, other) {
            (
                Waiting::Resize { from, task, .. },
                Waiting::Resize {
                    from: f, task: t, ..
                },
            ) => (from, task) == (f, t),
            _ => false,
        }
    }
}

impl<O: Objects> Shard<O> {
    /// The object that a request is to write to, if that takes a sync.
    pub(super) fn object_at_rest(
        &self,
        session: SessionId,
        local: bool,
        request: &Request,
    ) -> Option<ObjectId> {
        let instance = || self.state.sessions.get(&session)?.instance;
        let ino: Ino = match request {
            Request::File(FileRequest::Open { ino, open, .. })
                if open.truncate || (open.write && open.descriptor && local) =>
            {
                *ino
            }
            Request::File(FileRequest::OpenObject {
                capability: permit,
                open,
                ..
            }) if open.write && open.descriptor && local => permit.ino,
            Request::Inode(InodeRequest::SetAttr { ino, set, .. }) if set.size.is_some() => *ino,
            Request::Name(NameRequest::Create {
                parent,
                name,
                exclusive: false,
                open,
                ..
            }) if open.write || open.truncate => {
                let names = &self.state.volumes.get(&instance()?)?.names;
                names.get(*parent)?.dir()?.get(name)?
            }
            Request::Session(_)
            | Request::Admin(_)
            | Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_) => return None,
        };
        let instance = instance()?;
        let known = self.runtime.get(&instance)?.space.has_object(ino);
        let object = ObjectId { instance, ino };
        (known && self.objects.has_durable_checksums(object)).then_some(object)
    }

    /// Go on when the object has no checksums any more. A connection has one call under way, and a
    /// node's messages about one task count once, so there is an end to them.
    pub(super) fn await_unsealing(&mut self, object: ObjectId, waiting: Waiting) {
        let known = self.unsealing.entry(object).or_default();
        if known.is_empty() {
            self.effects.push(Effect::InvalidateChecksums(object));
        }
        if !known.iter().any(|known| known.is_repeated(&waiting)) {
            known.push(waiting);
        }
    }

    /// A connection is gone, and its call will be repeated on another one.
    pub(super) fn drop_unsealing(&mut self, conn: ConnId) {
        for waiting in self.unsealing.values_mut() {
            waiting.retain(|waiting| !matches!(waiting, Waiting::Call(of, _) if *of == conn));
        }
    }

    pub(super) fn unsealed(&mut self, object: ObjectId, result: Result<(), Errno>) {
        for waiting in self.unsealing.remove(&object).unwrap_or_default() {
            match (waiting, result) {
                (Waiting::Call(conn, call), Ok(())) => self.call(conn, call),
                (Waiting::Call(conn, call), Err(errno)) => {
                    self.reply(conn, call.seq, Reply::Failed(errno));
                }
                (Waiting::Resize { from, task, length }, Ok(())) => {
                    self.tell_object(object.instance, from, task, object.ino, Some(length));
                }
                (Waiting::Resize { from, task, .. }, Err(errno)) => {
                    let info = Err(errno);
                    self.tell(
                        object.instance,
                        from,
                        PeerPayload::ObjectResized { task, info },
                    );
                }
            }
        }
    }
}
