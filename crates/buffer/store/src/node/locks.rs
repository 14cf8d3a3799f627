//! What transactions keep to themselves, and requests that wait until they are decided.
//!
//! Transactions never wait for each other: one that finds something taken is given up and tried
//! again after a pause. Requests of a single node hold nothing, so they can simply wait.

use super::tasks::{DECIDED_PATIENCE, PATIENCE};
use super::{ConnId, Context, Shard};
use crate::namespace::{Namespace, TxLock};
use crate::objects::Objects;
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest};
use forebay_protocol::peer::TxId;
use forebay_protocol::{Call, Errno, HandleId, Ino, InstanceId, Reply, Request, SessionId};
use std::collections::BTreeMap;

/// Longest pause before a transaction is tried again, in nanoseconds.
const LONGEST_PAUSE: u64 = 100_000_000;

/// Who holds what.
#[derive(Debug, Default)]
pub(super) struct Locks(BTreeMap<TxLock, TxId>);

impl Locks {
    pub(super) fn take(&mut self, lock: TxLock, tx: TxId) {
        self.0.insert(lock, tx);
    }

    pub(super) fn release(&mut self, tx: TxId) {
        self.0.retain(|_, holder| *holder != tx);
    }

    /// Is it held by another transaction than `tx`?
    pub(super) fn held(&self, lock: &TxLock, tx: TxId) -> bool {
        self.0.get(lock).is_some_and(|holder| *holder != tx)
    }

    /// Is any name in a directory held by another transaction than `tx`?
    pub(super) fn names_held(&self, dir: Ino, tx: TxId) -> bool {
        let first = TxLock::Name(dir, Vec::new());
        self.0
            .range(first..)
            .take_while(|(lock, _)| matches!(lock, TxLock::Name(of, _) if *of == dir))
            .any(|(_, holder)| *holder != tx)
    }

    fn has_name(&self, dir: Ino, name: &[u8]) -> bool {
        self.0.contains_key(&TxLock::Name(dir, name.to_vec()))
    }

    fn has_inode(&self, ino: Ino) -> bool {
        self.0.contains_key(&TxLock::Inode(ino))
    }

    /// Is what an entry names taken, or something in it, if it is a directory?
    fn has_child(&self, names: &Namespace, dir: Ino, name: &[u8]) -> bool {
        let entry = names
            .get(dir)
            .and_then(|inode| inode.dir())
            .and_then(|dir| dir.get(name));
        entry.is_some_and(|ino| self.has_inode(ino) || self.names_held(ino, NOBODY))
    }

    /// Must a request wait?
    fn block(&self, names: &Namespace, request: &Request) -> bool {
        match request {
            Request::Name(NameRequest::Lookup { parent, name }) => self.has_name(*parent, name),
            Request::Name(NameRequest::Mknod { parent, name, .. }) => {
                self.has_name(*parent, name) || self.has_inode(*parent)
            }
            Request::Name(NameRequest::Create { parent, name, .. })
            | Request::Name(NameRequest::PutFile { parent, name, .. })
            | Request::Name(NameRequest::Unlink { parent, name })
            | Request::Name(NameRequest::RmDir { parent, name }) => {
                self.has_name(*parent, name)
                    || self.has_inode(*parent)
                    || self.has_child(names, *parent, name)
            }
            Request::Name(NameRequest::Rename {
                parent,
                name,
                to,
                to_name,
                ..
            }) => [(*parent, name), (*to, to_name)]
                .into_iter()
                .any(|(dir, name)| {
                    self.has_name(dir, name)
                        || self.has_inode(dir)
                        || self.has_child(names, dir, name)
                }),
            Request::Name(NameRequest::Link { ino, parent, name }) => {
                self.has_name(*parent, name) || self.has_inode(*parent) || self.has_inode(*ino)
            }
            Request::Inode(InodeRequest::SetAttr { ino, .. }) => self.has_inode(*ino),
            Request::File(FileRequest::Open { ino, open, .. }) => {
                open.truncate && self.has_inode(*ino)
            }
            Request::Session(_)
            | Request::Admin(_)
            | Request::Name(NameRequest::ReadLink { .. } | NameRequest::ReadDir { .. })
            | Request::Inode(
                InodeRequest::GetAttr { .. }
                | InodeRequest::GetAttrs { .. }
                | InodeRequest::Access { .. }
                | InodeRequest::SetXattr { .. }
                | InodeRequest::GetXattr { .. }
                | InodeRequest::ListXattr { .. }
                | InodeRequest::RemoveXattr { .. }
                | InodeRequest::GetFile { .. }
                | InodeRequest::StatFs
                | InodeRequest::StatObjects { .. },
            )
            | Request::File(
                FileRequest::OpenObject { .. }
                | FileRequest::Close { .. }
                | FileRequest::CloseAll { .. }
                | FileRequest::RenewCapability { .. }
                | FileRequest::ReserveSpace { .. }
                | FileRequest::Allocate { .. }
                | FileRequest::Sync { .. }
                | FileRequest::SyncMetadata { .. }
                | FileRequest::AppendLock { .. }
                | FileRequest::AppendUnlock { .. },
            )
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_) => false,
        }
    }
}

/// No transaction has this number.
const NOBODY: TxId = TxId(0);

/// How long a call has been in the way of others, or they in its.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// How often it was given up for others.
    times: u32,
    /// Since when.
    since: u64,
}

impl Tried {
    /// A call that has just come.
    pub(super) fn not_yet(now: u64) -> Tried {
        Tried {
            times: 0,
            since: now,
        }
    }

    fn is_late(self, now: u64, patience: u64) -> bool {
        self.since.saturating_add(patience) < now
    }
}

/// A call that waits.
#[derive(Debug)]
pub(super) struct Parked {
    conn: ConnId,
    call: Call,
    /// Not before this time, even if something it waited for is over; 0: as soon as it is.
    due: u64,
    tried: Tried,
}

impl<O: Objects> Shard<O> {
    /// Is something that a request is about in the hands of a transaction?
    pub(super) fn is_blocked(
        &self,
        (session, slot, seq): (SessionId, u32, u64),
        request: &Request,
    ) -> bool {
        let Some(known) = self.state.sessions.get(&session) else {
            return false;
        };
        let Some(instance) = known.instance else {
            return false;
        };
        // Its outcome may be that of a transaction which has not happened everywhere.
        let repeated = known.slots.get(&slot).is_some_and(|(last, _)| *last == seq);
        let recalled = self.runtime.get(&instance).map(|r| &r.spread.recalled);
        if repeated && recalled.is_some_and(|recalled| !recalled.is_empty()) {
            return true;
        }
        if let Request::File(FileRequest::AppendLock { handle }) = request {
            let known = self.handle(session, *handle).map(|handle| handle.ino);
            let appenders = self.runtime.get(&instance).map(|r| &r.spread.appenders);
            let holder = appenders.and_then(|appenders| appenders.get(&known.ok()?));
            return holder.is_some_and(|holder| *holder != (session, *handle));
        }
        let locks = self.runtime.get(&instance).map(|r| &r.spread.locks);
        let Some(locks) = locks.filter(|locks| !locks.0.is_empty()) else {
            return false;
        };
        let Some(known) = self.state.volumes.get(&instance) else {
            return false;
        };
        locks.block(&known.names, request)
    }

    /// Keep a call until what it waits for is over. A connection has one call under way, so there
    /// are never more of them than connections.
    pub(super) fn park(&mut self, conn: ConnId, call: Call, due: u64) {
        let tried = self.tried();
        self.parked.push(Parked {
            conn,
            call,
            due,
            tried,
        });
    }

    /// How long the call that is being carried out has been tried.
    pub(super) fn tried(&self) -> Tried {
        let first = Tried::not_yet(self.now.steady_ns);
        self.tried.unwrap_or(first)
    }

    /// Try a call again after a pause that grows with every conflict.
    pub(super) fn park_for_a_pause(&mut self, conn: ConnId, call: Call, tried: Tried) {
        let most = (1_000_000u64 << tried.times.min(10)).min(LONGEST_PAUSE);
        let pause = most / 2 + self.secret() as u64 % (most / 2);
        self.parked.push(Parked {
            conn,
            call,
            due: self.now.steady_ns.saturating_add(pause),
            tried: Tried {
                times: tried.times + 1,
                ..tried
            },
        });
    }

    /// Give calls back that have waited for long, perhaps for a node that never answers. One that was
    /// carried out here must not be tried again by another name: it waits for longer, and then it is
    /// not known whether it has happened everywhere. Who wants to append waits for another client.
    pub(super) fn give_up_parked(&mut self) {
        let now = self.now.steady_ns;
        let mut late = Vec::new();
        for parked in std::mem::take(&mut self.parked) {
            let appends = matches!(
                parked.call.request,
                Request::File(FileRequest::AppendLock { .. })
            );
            let (patience, errno) = match self.was_carried_out(parked.conn, parked.call.seq) {
                false => (PATIENCE, Errno::EAGAIN),
                true => (DECIDED_PATIENCE, Errno::EIO),
            };
            if parked.tried.is_late(now, patience) && !appends {
                late.push((parked.conn, parked.call.seq, errno));
            } else {
                self.parked.push(parked);
            }
        }
        for (conn, seq, errno) in late {
            self.reply(conn, seq, Reply::Failed(errno));
        }
    }

    fn was_carried_out(&self, conn: ConnId, seq: u64) -> bool {
        let known = self.conns.get(&conn).and_then(|known| known.session);
        let done = known.and_then(|(session, slot)| {
            let session = self.state.sessions.get(&session)?;
            session.slots.get(&slot)
        });
        done.is_some_and(|(done, _)| *done == seq)
    }

    /// An instance goes: nothing that calls wait for will be.
    pub(super) fn end_waiting(&mut self, instance: InstanceId) {
        let of = |shard: &Self, conn: &ConnId| {
            let known = shard.conns.get(conn).and_then(|known| known.session);
            let session = known.and_then(|(session, _)| shard.state.sessions.get(&session));
            session.is_some_and(|session| session.instance == Some(instance))
        };
        let mut calls = Vec::new();
        for parked in std::mem::take(&mut self.parked) {
            match of(self, &parked.conn) {
                true => calls.push((parked.conn, parked.call.seq)),
                false => self.parked.push(parked),
            }
        }
        if let Some(runtime) = self.runtime.get(&instance) {
            let spread = &runtime.spread;
            let tasks = spread.tasks.values();
            let tasks = tasks.filter_map(|task| Some(&task.asker.as_ref()?.context));
            let transactions = spread.transactions.values();
            let transactions = transactions.filter_map(|live| Some(&live.asker.as_ref()?.0));
            let contexts = tasks.chain(transactions);
            calls.extend(contexts.map(|context| (context.conn, context.seq)));
        }
        for (conn, seq) in calls {
            self.reply(conn, seq, Reply::Failed(Errno::ESTALE));
        }
    }

    /// A connection is gone, and its call will be repeated on another one.
    pub(super) fn drop_parked(&mut self, conn: ConnId) {
        self.parked.retain(|parked| parked.conn != conn);
    }

    /// When a tick is due though the second is not over: for a parked call that waits for a time,
    /// or for lengths to be settled.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let due = self.parked.iter().map(|parked| parked.due);
        let due = due.chain(std::iter::once(self.settle_due));
        due.filter(|due| *due > 0).min()
    }

    /// Take up calls again that waited for something that is over, or whose pause is.
    pub(super) fn unpark(&mut self) {
        loop {
            let now = self.now.steady_ns;
            let over = std::mem::take(&mut self.unlocked);
            if over {
                self.go_on_walking();
            }
            let ready = |parked: &Parked| match parked.due {
                0 => over,
                due => due <= now,
            };
            if !self.parked.iter().any(ready) {
                if !self.unlocked {
                    return;
                }
                continue;
            }
            let (ready, rest) = std::mem::take(&mut self.parked)
                .into_iter()
                .partition(ready);
            self.parked = rest;
            let ready: Vec<Parked> = ready;
            for parked in ready {
                self.tried = Some(parked.tried);
                self.call(parked.conn, parked.call);
                self.tried = None;
            }
        }
    }

    /// Let nobody else append to an open file.
    pub(super) fn lock_append(&mut self, context: &Context, id: HandleId) -> Result<Reply, Errno> {
        let handle = self.handle(context.session, id)?;
        if !handle.mode.write {
            return Err(Errno::EBADF);
        }
        let ino = handle.ino;
        let appenders = &mut self.runtime(context.instance).spread.appenders;
        appenders.insert(ino, (context.session, id));
        Ok(Reply::Done)
    }

    /// Others may append again, if it was this handle that kept them from it.
    pub(super) fn unlock_append(
        &mut self,
        instance: InstanceId,
        ino: Ino,
        holder: (SessionId, HandleId),
    ) {
        let appenders = &mut self.runtime(instance).spread.appenders;
        if appenders.get(&ino) == Some(&holder) {
            appenders.remove(&ino);
            self.unlocked = true;
        }
    }

    pub(super) fn locks(&mut self, instance: InstanceId) -> &mut Locks {
        &mut self.runtime(instance).spread.locks
    }
}
