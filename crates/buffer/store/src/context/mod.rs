//! State that is shared by a node's volumes: time, log, data objects, sessions, and the effects of a step.

mod journal;
mod memory;
mod parked;
mod sessions;
mod traffic;

pub use journal::{AfterDurable, Journal, VolumeAction};
pub use memory::{MetadataMemory, SESSION_BYTES};
pub use parked::{Attempts, ParkedCalls, Unlocked};
pub use sessions::{Session, Sessions};
pub use traffic::Traffic;

use crate::driver::{ConnId, Effect, Limits, Now};
use crate::log::LogSpace;
use crate::objects::Objects;
use crate::state::{Event, Record, SlotResult, SlotUpdate};
use forebay_protocol::peer::Incarnation;
use forebay_protocol::random::keyed_block;
use forebay_protocol::{Call, Credentials, Errno, InstanceId, Reply, SessionId, Timestamp};

/// The outcome of a request that did not fail.
#[derive(Debug)]
pub enum Outcome<D> {
    Reply(Reply),
    /// The reply, and the descriptor of a data object.
    ReplyWith(Reply, D),
    /// The reply follows: an effect, or a later input, leads to it.
    Deferred,
}

impl<D> Outcome<D> {
    /// A reply with the descriptor of a data object, if there is one.
    pub fn with_descriptor(reply: Reply, descriptor: Option<D>) -> Outcome<D> {
        match descriptor {
            Some(descriptor) => Outcome::ReplyWith(reply, descriptor),
            None => Outcome::Reply(reply),
        }
    }
}

/// The outcome of a request, or its error.
pub type Handled<O> = Result<Outcome<<O as Objects>::Descriptor>, Errno>;

/// The connection and slot that a call came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub conn: ConnId,
    /// Number of the call in its slot.
    pub seq: u64,
    pub session: SessionId,
    /// The slot, or that of the results at its position in a batch.
    pub slot: u32,
    /// Whether descriptors are passed over the connection: the peer is trusted, and on this host.
    pub passes_descriptors: bool,
    /// Whether the session has, or had, such connections.
    pub session_has_descriptors: bool,
    /// Whether the session has, or had, others, and uses data connections.
    pub session_uses_data_connections: bool,
}

impl Origin {
    /// The update of the slot's idempotency record for a call that led to `result`.
    pub fn slot_update(&self, result: SlotResult) -> SlotUpdate {
        SlotUpdate { session: self.session, slot: self.slot, seq: self.seq, result }
    }
}

#[derive(Clone, Debug)]
pub struct Requester {
    /// The connection and slot.
    pub origin: Origin,
    pub user: Credentials,
    /// The time at which the client has reported the change to a program; `None`: it has not.
    pub reported_at: Option<Timestamp>,
}

/// A keyed sequence of numbers that an outsider cannot predict.
#[derive(Debug)]
pub struct Secrets {
    seed: [u8; 32],
    epoch: u64,
    count: u64,
}

impl Secrets {
    /// The sequence of a start; `seed` is random.
    pub fn new(seed: [u8; 32], epoch: u64) -> Secrets {
        Secrets { seed, epoch, count: 0 }
    }

    pub fn next(&mut self) -> u128 {
        self.count = self.count.wrapping_add(1);
        let block = (u128::from(self.count) << 64) | u128::from(self.epoch);
        u128::from_le_bytes(keyed_block(&self.seed, block))
    }
}

/// State that is shared by a node's volumes.
pub struct Context<O: Objects> {
    /// The time of the present input.
    pub now: Now,
    /// Start of the node, in nanoseconds of [`Now::steady_ns`].
    pub started_ns: u64,
    pub log_space: LogSpace,
    /// Memory that metadata take.
    pub memory: MetadataMemory,
    /// Limits on the use by clients.
    pub limits: Limits,
    /// Log records, and what waits for them.
    pub journal: Journal,
    pub sessions: Sessions,
    pub parked: ParkedCalls,
    /// Calls to carry out again in this step: what they waited for is done.
    pub ready: Vec<(ConnId, Call)>,
    /// The attempts of the call being carried out, if it was parked before.
    pub attempts: Option<Attempts>,
    /// Effects of the present step.
    pub effects: Vec<Effect<O::Descriptor>>,
    /// This start, as other nodes know it.
    pub incarnation: Incarnation,
    /// Source of secrets and random numbers.
    pub secrets: Secrets,
    /// Files stored whole; their contents may not be durable. Those from before this start count as
    /// one.
    pub put_count: u64,
    /// Whether inodes without names that no returning session opened have been dropped.
    pub orphans_dropped: bool,
    /// Time at which lengths of files are to be settled.
    pub settle_at_ns: Option<u64>,
}

impl<O: Objects> Context<O> {
    /// Write a record of a change that has been applied. Returns its sequence number.
    pub fn log(&mut self, event: Event, request: Option<SlotUpdate>) -> u64 {
        if let Some(update) = &request {
            self.sessions.record_result(update);
        }
        self.journal.append(&Record { event, request })
    }

    /// `ENOSPC` unless the log has this much space.
    pub fn require_log_space(&self, needed: LogSpace) -> Result<(), Errno> {
        if self.log_space >= needed { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    pub fn reply(&mut self, conn: ConnId, seq: u64, reply: Reply) {
        self.finish(conn, seq, Ok(Outcome::Reply(reply)));
    }

    /// Reply to the call of a requester.
    pub fn reply_to(&mut self, origin: &Origin, reply: Reply) {
        self.reply(origin.conn, origin.seq, reply);
    }

    /// Reply to a call with its outcome, unless that is deferred.
    pub fn finish(&mut self, conn: ConnId, seq: u64, handled: Handled<O>) {
        let (reply, descriptor) = match handled {
            Ok(Outcome::Reply(reply)) => (reply, None),
            Ok(Outcome::ReplyWith(reply, descriptor)) => (reply, Some(descriptor)),
            Ok(Outcome::Deferred) => return,
            Err(errno) => (Reply::Failed(errno), None),
        };
        self.effects.push(Effect::Reply { conn, seq, reply, descriptor, cacheable: false });
    }

    /// Attempts of the call being carried out.
    pub fn current_attempts(&self) -> Attempts {
        let first = Attempts::first(self.now.steady_ns);
        self.attempts.unwrap_or(first)
    }

    /// Whether clients of an instance from before this start have opened their handles again, or have had
    /// the time of a lease to do so.
    pub fn handles_are_restored(&self, instance: InstanceId) -> bool {
        let restored_ns = self.started_ns.saturating_add(self.limits.lease_ns);
        !self.sessions.any_returning_to(instance) || self.now.steady_ns >= restored_ns
    }
}
