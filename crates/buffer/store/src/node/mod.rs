//! The storage daemon's logic as a state machine: [`Shard::step`] takes one input at a given time
//! and says what to send, to log and to sync. It has no sockets, threads or clock.
//!
//! The driver must, after one or more steps and before it carries out any [`Effect`], append and
//! flush [`Shard::take_records`] to the log; if that fails it must stop for good, since the tables
//! are then ahead of the log.

mod admin;
mod attr;
mod caching;
mod calls;
mod data;
mod driver;
mod filelock;
mod files;
mod lengths;
mod links;
mod locks;
mod names;
mod open;
mod pieces;
mod room;
mod session;
mod space;
mod start;
mod state;
mod tasks;
mod transaction;
mod unseal;
mod whole;

pub use driver::{ConnId, Effect, Input, Limits, MungeAuthentication, Now};
pub use state::{Event, NodeState, Prepared, Record, SessionState, SlotResult, VolumeState, Wave};
pub use whole::{fetch_reply, fetch_reply_in_memory};

use crate::log::LogSpace;
use crate::objects::{ObjectId, Objects};
use forebay_net::auth::PoolKey;
use forebay_protocol::Credentials;
use forebay_protocol::identity::PeerIdentity;
use forebay_protocol::message::OpenMode;
use forebay_protocol::peer::{Incarnation, PeerPayload, TxId};
use forebay_protocol::{Errno, HandleId, Ino, InstanceId, NodeIndex, Reply, SessionId};
use links::Link;
use locks::{Locks, Parked};
use space::Space;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use tasks::Task;
use transaction::Transaction;

#[derive(Debug)]
struct Conn {
    peer: PeerIdentity,
    /// Where it was found, on TCP.
    at: Option<SocketAddr>,
    /// Set while a TCP client has not proved who it is.
    challenge: Option<[u8; 32]>,
    /// It has proved that it is `peer`.
    proven: bool,
    session: Option<(SessionId, u32)>,
}

#[derive(Debug)]
struct Handle {
    ino: Ino,
    mode: OpenMode,
    grant: u64,
    /// How much to promise ahead the next time.
    ahead: u64,
    /// Only of the part of a file that lies here.
    piece: bool,
}

/// What a session has besides its durable part.
#[derive(Debug, Default)]
struct Attached {
    handles: BTreeMap<HandleId, Handle>,
    /// Connection and highest call number of each slot.
    slots: BTreeMap<u32, (Option<ConnId>, u64)>,
    /// It has connections from other hosts, or had.
    bulk: bool,
    /// It has connections from this host, or had.
    local: bool,
    caches: bool,
    /// Tickets of locks that were waited for and are held, and the call that waits for such news.
    lock_news: BTreeSet<u64>,
    lock_watch: Option<(ConnId, u64)>,
    /// When the last connection went.
    idle_since: Option<u64>,
}

/// What an instance has besides its durable part.
#[derive(Debug, Default)]
struct Runtime {
    space: Space,
    /// Open handles of each inode.
    opens: BTreeMap<Ino, u32>,
    /// Objects made since the log was last durable, or since they were last synced.
    fresh: BTreeSet<Ino>,
    /// Attached clients.
    sessions: BTreeSet<SessionId>,
    /// Locks that clients have on files.
    locks: filelock::LockTable,
    /// Until when a client may be caching.
    cached_until: u64,
    /// Until when nothing may be cached, because another client wants to attach.
    uncached_until: u64,
    /// What there is besides on an instance that lies on several nodes.
    spread: Spread,
}

/// What an instance on several nodes has besides its durable part.
#[derive(Debug, Default)]
struct Spread {
    links: BTreeMap<NodeIndex, Link>,
    /// Handles for writing of each striped file whose home this is.
    writers: BTreeMap<Ino, u32>,
    /// Files that nobody writes to any more and whose length is not settled.
    unsettled: BTreeSet<Ino>,
    tasks: BTreeMap<u64, Task>,
    /// Files that are no more and of which other nodes may have objects.
    owed: BTreeMap<NodeIndex, BTreeSet<Ino>>,
    /// Objects here, by their homes, which have to say whether there is such a file.
    unconfirmed: BTreeMap<NodeIndex, BTreeSet<Ino>>,
    locks: Locks,
    /// Who may append to a file.
    appenders: BTreeMap<Ino, (SessionId, HandleId)>,
    /// Transactions that this node decides.
    transactions: BTreeMap<TxId, Transaction>,
    /// Those of them from before this start that have not happened everywhere.
    recalled: BTreeSet<TxId>,
    /// Records that must be durable before the votes can be given.
    votes: BTreeMap<(TxId, u8), u64>,
    /// Transactions that happened here, and the records that say so and are not durable yet.
    resolved: BTreeMap<TxId, u64>,
}

/// The state machine.
#[derive(Debug)]
pub struct Shard<O: Objects> {
    state: NodeState,
    objects: O,
    limits: Limits,
    key: Option<PoolKey>,
    munge: bool,
    boot: u64,
    now: Now,
    room: LogSpace,
    /// Key of the sequence that secrets are taken from, and how many were.
    seed: [u8; 32],
    random: u64,
    started: u64,
    conns: BTreeMap<ConnId, Conn>,
    attached: BTreeMap<SessionId, Attached>,
    /// Sessions from before this start that may not have opened their handles again.
    returning: BTreeSet<SessionId>,
    /// What nobody has open was dropped since all of them have.
    collected: bool,
    runtime: BTreeMap<InstanceId, Runtime>,
    records: Vec<Vec<u8>>,
    /// Number of the last record.
    last: u64,
    /// Number of the last record that is known to be durable.
    durable: u64,
    /// What to do once a record is durable.
    doomed: VecDeque<(u64, Doomed)>,
    /// Files that came whole, counted: their contents may not be durable. Those from before this
    /// start count as one.
    contents: u64,
    effects: Vec<Effect<O::Descriptor>>,
    /// This start, as other nodes know it.
    incarnation: Incarnation,
    /// Tasks there were.
    tasks: u64,
    /// Some instance lies on several nodes.
    spread: bool,
    /// When lengths of files are to be settled; 0: there is nothing to settle.
    settle_due: u64,
    /// Calls that wait for a transaction.
    parked: Vec<Parked>,
    /// What waits for an object's checksums to be taken off durably.
    unsealing: BTreeMap<ObjectId, Vec<unseal::Waiting>>,
    /// A transaction has ended: what waited can be tried again.
    unlocked: bool,
    /// How long the call that is being carried out has been in conflict with others, if it was.
    tried: Option<locks::Tried>,
    /// When other nodes were last reminded of what they have not answered.
    reminded: u64,
}

/// What waits for a record to be durable.
#[derive(Debug)]
enum Doomed {
    /// The object of a file that is no more.
    Object(ObjectId),
    /// Its objects on other nodes.
    Pieces(ObjectId),
    /// A removed instance.
    Instance(InstanceId),
    /// A vote on a transaction.
    Vote(InstanceId, TxId, u8),
    /// The news that a transaction happens.
    Commit(InstanceId, TxId),
    /// The news for another node that files are gone.
    Gone(InstanceId, NodeIndex, Vec<Ino>),
    /// The news that a transaction has happened here for good.
    Done(InstanceId, TxId, NodeIndex),
}

/// A request with all that is known about who sent it.
#[derive(Clone, Debug)]
struct Context {
    conn: ConnId,
    seq: u64,
    session: SessionId,
    slot: u32,
    instance: InstanceId,
    who: Credentials,
    local: bool,
}

impl<O: Objects> Shard<O> {
    /// The durable state.
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// From now on peers may prove who they are by MUNGE: the driver decodes credentials and hands
    /// over [`Input::Decoded`].
    pub fn enable_munge(&mut self) {
        self.munge = true;
    }

    /// Which start of the host this is, not 0: another one after a power cut. Clients learn from it
    /// that what was not synced may be gone.
    pub fn set_boot_id(&mut self, boot: u64) {
        self.boot = boot;
    }

    /// What the log has room for. What it has none for fails with `ENOSPC`. Returns what was set
    /// before.
    pub fn set_log_room(&mut self, room: LogSpace) -> LogSpace {
        std::mem::replace(&mut self.room, room)
    }

    /// What the log has room for, as it was [told](Shard::set_room).
    pub fn log_room(&self) -> LogSpace {
        self.room
    }

    /// Records to append to the log, in order.
    pub fn take_records(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.records)
    }

    /// Are there records to append?
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Bytes of records to append.
    pub fn pending_record_bytes(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }

    /// Is anything waiting for time to pass?
    pub fn needs_tick(&self) -> bool {
        !self.doomed.is_empty()
            || !self.collected
            || self.holds_back()
            || (self.spread && self.reminders_due())
            || self
                .attached
                .values()
                .any(|attached| attached.idle_since.is_some())
    }

    /// Take one input. Effects are added to `effects` in the order in which to carry them out.
    pub fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect<O::Descriptor>>) {
        self.now = now;
        match input {
            Input::Connected(conn, peer) => {
                self.conns.insert(
                    conn,
                    Conn {
                        peer,
                        at: None,
                        challenge: None,
                        proven: false,
                        session: None,
                    },
                );
            }
            Input::LocalAddress(conn, at) => {
                if let Some(known) = self.conns.get_mut(&conn) {
                    known.at = Some(at);
                }
            }
            Input::Call(conn, call) => self.call(conn, call),
            Input::MungeDecoded(conn, seq, proven) => {
                let reply = self.decoded(conn, proven);
                self.reply(conn, seq, reply.unwrap_or_else(Reply::Failed));
            }
            Input::Disconnected(conn) => self.disconnected(conn),
            Input::LogSynced(sequence) => self.synced(sequence),
            Input::ChecksumsInvalidated(object, result) => self.unsealed(object, result),
            Input::Tick => {
                self.expire_sessions();
                self.settle_if_due();
                self.remind();
            }
        }
        self.unpark();
        effects.append(&mut self.effects);
    }

    /// Change the durable state.
    fn log(&mut self, event: Event, request: Option<(SessionId, u32, u64, SlotResult)>) {
        let record = Record { event, request };
        match postcard::to_stdvec(&record) {
            Ok(bytes) => self.records.push(bytes),
            Err(error) => unreachable!("a record always has an encoding: {error}"),
        }
        self.last += 1;
        if let Err(why) = self.state.apply(&record) {
            unreachable!("a change that was just planned does not fit: {why}: {record:?}");
        }
    }

    fn synced(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
        while let Some((needed, _)) = self.doomed.front()
            && *needed <= sequence
        {
            let Some((_, doomed)) = self.doomed.pop_front() else {
                break;
            };
            // What cannot be removed now is found superfluous again at the next start.
            let result = match doomed {
                Doomed::Object(object) => self.objects.remove(object),
                Doomed::Instance(id) => self.objects.remove_instance(id),
                Doomed::Pieces(object) => {
                    self.owe(object);
                    Ok(())
                }
                Doomed::Vote(instance, tx, wave) => {
                    self.vote(instance, tx, wave);
                    Ok(())
                }
                Doomed::Commit(instance, tx) => {
                    self.announce(instance, tx);
                    Ok(())
                }
                Doomed::Gone(instance, node, gone) => {
                    let there = Vec::new();
                    self.tell(
                        instance,
                        node,
                        PeerPayload::OrphansChecked {
                            existing: there,
                            removed: gone,
                        },
                    );
                    Ok(())
                }
                Doomed::Done(instance, tx, node) => {
                    self.done(instance, tx, node);
                    Ok(())
                }
            };
            if let Err(error) = result {
                tracing::warn!(%error, "a superfluous data object stays for now");
            }
        }
    }

    fn names(&self, instance: InstanceId) -> Result<&VolumeState, Errno> {
        self.state.volumes.get(&instance).ok_or(Errno::ESTALE)
    }

    fn runtime(&mut self, instance: InstanceId) -> &mut Runtime {
        self.runtime.entry(instance).or_default()
    }
}
