//! Files that get the name of another file. Their data are made durable before the name is: otherwise a
//! power failure could leave neither the old data nor the new.
//!
//! Names become durable within a second, data by the system's writeback within half a minute.

use super::Volume;
use crate::context::Context;
use crate::driver::{ConnId, Effect};
use crate::objects::Objects;
use forebay_protocol::message::{NameRequest, OnExisting};
use forebay_protocol::{Call, Errno, FileKind, Ino, Request};
use std::collections::BTreeMap;

/// Calls that wait until the data of a file are durable.
#[derive(Debug, Default)]
struct Waiting {
    /// For the sync in progress, which began after they came.
    current: Vec<(ConnId, Call)>,
    /// For the next one: the data may have changed since the sync in progress began.
    next: Vec<(ConnId, Call)>,
}

/// The files whose data are being made durable. A connection has one call in flight, so the number of
/// calls that wait is bounded.
#[derive(Debug, Default)]
pub struct Replacements {
    waiting: BTreeMap<Ino, Waiting>,
    /// The file whose data have just been made durable.
    synced: Option<Ino>,
}

impl Replacements {
    /// Remove all calls.
    pub fn take_calls(&mut self) -> impl Iterator<Item = (ConnId, u64)> {
        let waiting = std::mem::take(&mut self.waiting).into_values();
        let calls = waiting.flat_map(|of_file| of_file.current.into_iter().chain(of_file.next));
        calls.map(|(conn, call)| (conn, call.seq))
    }

    /// A connection is closed; its call will be repeated on another one.
    pub fn drop_calls_of(&mut self, conn: ConnId) {
        for of_file in self.waiting.values_mut() {
            of_file.current.retain(|(of, _)| *of != conn);
            of_file.next.retain(|(of, _)| *of != conn);
        }
    }

    /// The renames that are carried out now can replace other files by `ino`.
    pub fn set_synced(&mut self, ino: Option<Ino>) {
        self.synced = ino;
    }
}

impl<O: Objects> Volume<O> {
    /// The file that a request would give the name of another one, unless its data are known to be
    /// durable. Of a striped file this node knows only a part.
    pub fn file_to_sync_first(&self, request: &Request) -> Option<Ino> {
        let Request::Name(NameRequest::Rename { parent, name, to, to_name, existing }) = request
        else {
            return None;
        };
        if self.is_striped() || *existing != OnExisting::Replace {
            return None;
        }
        let file = |dir: Ino, name: &[u8]| {
            let ino = self.names().get(dir)?.dir()?.get(name)?;
            (self.names().get(ino)?.kind() == FileKind::File).then_some(ino)
        };
        let (source, target) = (file(*parent, name)?, file(*to, to_name)?);
        let has_data = source != target && self.space.has_object(source);
        (has_data && self.replacements.synced != Some(source)).then_some(source)
    }

    /// Carry out a call when the data of a file are durable.
    pub fn await_durable_data(&mut self, node: &mut Context<O>, ino: Ino, call: (ConnId, Call)) {
        if let Some(in_progress) = self.replacements.waiting.get_mut(&ino) {
            in_progress.next.push(call);
            return;
        }
        let waiting = Waiting { current: vec![call], next: Vec::new() };
        self.replacements.waiting.insert(ino, waiting);
        node.effects.push(Effect::SyncObject(self.object(ino)));
    }

    /// The data of a file are durable, or that failed. Returns the calls to carry out now.
    pub fn data_synced(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        result: Result<(), Errno>,
    ) -> Vec<(ConnId, Call)> {
        let Waiting { current: calls, next } =
            self.replacements.waiting.remove(&ino).unwrap_or_default();
        if !next.is_empty() {
            let waiting = Waiting { current: next, next: Vec::new() };
            self.replacements.waiting.insert(ino, waiting);
            node.effects.push(Effect::SyncObject(self.object(ino)));
        }
        if let Err(errno) = result {
            for (conn, call) in calls {
                node.finish(conn, call.seq, Err(errno));
            }
            return Vec::new();
        }
        self.replacements.set_synced(Some(ino));
        calls
    }

    /// The calls after a file's data became durable have been carried out.
    pub fn forget_synced(&mut self) {
        self.replacements.set_synced(None);
    }
}
