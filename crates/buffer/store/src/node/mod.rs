//! The storage daemon's logic as a state machine: [`Node::step`] takes one input at a given time and
//! returns messages to send, records to log and objects to sync. It has no sockets, threads or clock.
//!
//! A node keeps connections and sessions, and routes every request to the `Volume` of the session's
//! instance.
//!
//! The driver must, after one or more steps and before it carries out any [`Effect`], append and
//! flush [`Node::take_records`] to the log; if that fails it must stop for good, since the tables are
//! then ahead of the log.

mod admin;
mod calls;
mod charged_users;
mod client_sessions;
mod connections;
mod host_fences;
mod inode_tags;
mod sessions;

pub use crate::batch_replies::BatchReplies;
pub use crate::driver::{ConnId, Effect, Input, Limits, Now, ObjectSync};
pub use crate::namespace::Inode;
pub use crate::state::{
    Event, NodeState, Prepared, Record, Round, SessionState, SlotResult, SlotUpdate, VolumeEvent,
    VolumeState,
};
pub use crate::volume::fetch_reply;

use crate::context::{
    AfterDurable, Context, Journal, MetadataMemory, ParkedCalls, SESSION_BYTES, Secrets, Sessions,
    Unlocked,
};
use crate::log::LogSpace;
use crate::objects::{ObjectId, Objects};
use crate::shared_space::SharedSpace;
use crate::volume::{ANSWER_TIMEOUT_NS, DECIDED_TIMEOUT_NS, RETRANSMIT_INTERVAL_NS, Volume};
use client_sessions::EvictedSessions;
use connections::Connections;
use forebay_protocol::message::FileRequest;
use forebay_protocol::peer::Incarnation;
use forebay_protocol::{Errno, InstanceId, Reply, Request};
use host_fences::HostFences;
use std::collections::BTreeMap;

/// The state machine.
pub struct Node<O: Objects> {
    volumes: BTreeMap<InstanceId, Volume<O>>,
    connections: Connections,
    host_fences: HostFences,
    evicted: EvictedSessions,
    context: Context<O>,
    objects: O,
    /// Starts of the daemon so far.
    epoch: u64,
    /// Identifies the boot of the host.
    boot_id: u64,
    /// Secret of the tags of inode numbers, for instances on this node alone.
    tag_key: [u8; 32],
    /// Whether any volume is striped.
    any_striped: bool,
    /// Time at which messages were last retransmitted.
    retransmitted_ns: u64,
    /// The capacity that is shared with other nodes in this process.
    shared_space: Option<SharedSpace>,
}

impl<O: Objects + Clone> Node<O> {
    /// Start from a recovered state whose last record is `last`. `seed` is random; secrets follow from
    /// it. Objects that no inode refers to are removed.
    pub fn start(
        state: NodeState,
        last: u64,
        mut objects: O,
        limits: Limits,
        now: Now,
        seed: [u8; 32],
    ) -> Result<Node<O>, Errno> {
        let epoch = state.epoch + 1;
        for id in objects.list_instances()? {
            if !state.volumes.contains_key(&id) {
                objects.remove_instance(id)?;
            }
        }
        let mut memory = MetadataMemory::new(limits.metadata_bytes);
        memory.replace(0, state.sessions.len() as u64 * SESSION_BYTES);
        let mut volumes = BTreeMap::new();
        for (id, mut volume) in state.volumes {
            volume.names.skip_inode_numbers();
            let mut volume = Volume::restore(volume, objects.clone())?;
            volume.account_memory(&mut memory);
            volumes.insert(id, volume);
        }
        for (session, state) in &state.sessions {
            if let Some(volume) = state.instance.and_then(|id| volumes.get_mut(&id)) {
                volume.restore_session(*session, state, now.steady_ns);
            }
        }
        let mut secrets = Secrets::new(seed, epoch);
        let incarnation = Incarnation { epoch, nonce: secrets.next() as u64 | 1 };
        let sessions = Sessions::restore(state.sessions, state.session_count, now.steady_ns);
        let mut context = Context {
            now,
            started_ns: now.steady_ns,
            log_space: LogSpace::Normal,
            memory,
            limits,
            journal: Journal::new(last),
            sessions,
            parked: ParkedCalls::default(),
            ready: Vec::new(),
            attempts: None,
            effects: Vec::new(),
            incarnation,
            secrets,
            put_count: 1,
            orphans_dropped: false,
            settle_at_ns: None,
        };
        context.log(Event::Start, None);
        Ok(Node {
            any_striped: volumes.values().any(Volume::is_striped),
            volumes,
            objects,
            connections: Connections::default(),
            host_fences: HostFences::default(),
            evicted: EvictedSessions::default(),
            context,
            epoch,
            boot_id: 0,
            tag_key: seed,
            retransmitted_ns: now.steady_ns,
            shared_space: None,
        })
    }

    /// The capacity of the only instance is shared with other nodes in this process.
    pub fn share_space(&mut self, shared: SharedSpace) {
        for volume in self.volumes.values_mut() {
            volume.share_space(shared.clone());
        }
        self.shared_space = Some(shared);
    }

    /// Set the number of the host's boot, not 0: another one after a power cut. Clients learn from it
    /// that unsynced data may be lost.
    pub fn set_boot_id(&mut self, boot_id: u64) {
        self.boot_id = boot_id;
    }

    /// Set the log's space. Requests for which it has none fail with `ENOSPC`. Returns the
    /// previous value.
    pub fn set_log_space(&mut self, space: LogSpace) -> LogSpace {
        std::mem::replace(&mut self.context.log_space, space)
    }

    /// The log's space, as it was [set](Node::set_log_space).
    pub fn log_space(&self) -> LogSpace {
        self.context.log_space
    }

    /// Records to append to the log, in order.
    pub fn take_records(&mut self) -> Vec<Vec<u8>> {
        self.context.journal.take_records()
    }

    /// Whether there are records to append.
    pub fn has_records(&self) -> bool {
        self.context.journal.has_records()
    }

    /// Bytes of records to append.
    pub fn pending_record_bytes(&self) -> usize {
        self.context.journal.pending_bytes()
    }

    /// The durable state of an instance on this node.
    pub fn volume(&self, id: InstanceId) -> Option<&VolumeState> {
        self.volumes.get(&id).map(Volume::state)
    }

    /// The durable state of all instances on this node.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeState> {
        self.volumes.values().map(Volume::state)
    }

    /// The durable part of all sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (forebay_protocol::SessionId, &SessionState)> {
        let sessions = self.context.sessions.iter();
        sessions.map(|(id, session)| (id, &session.state))
    }

    /// The number of sessions.
    pub fn session_count(&self) -> usize {
        self.context.sessions.len()
    }

    /// A copy of the durable state.
    pub fn snapshot(&self) -> NodeState {
        NodeState {
            epoch: self.epoch,
            volumes: self
                .volumes
                .iter()
                .map(|(id, volume)| (*id, volume.state().clone()))
                .collect(),
            sessions: self.sessions().map(|(id, state)| (id, state.clone())).collect(),
            session_count: self.context.sessions.begun(),
        }
    }

    /// Memory that metadata take, in bytes.
    pub fn metadata_bytes(&self) -> u64 {
        self.context.memory.used()
    }

    /// The budget for it.
    pub fn metadata_budget_bytes(&self) -> u64 {
        self.context.memory.budget()
    }

    /// Whether anything waits for time to pass.
    pub fn needs_tick(&self) -> bool {
        self.context.journal.has_waiting()
            || !self.context.orphans_dropped
            || self.volumes.values().any(|volume| volume.holds_locks_back() || volume.is_leased())
            || self.context.parked.next_retry_ns().is_some()
            || self.needs_retransmission()
            || self.context.sessions.has_idle()
    }

    fn needs_retransmission(&self) -> bool {
        let mut volumes = self.volumes.values();
        self.any_striped
            && (!self.context.parked.is_empty() || volumes.any(Volume::needs_retransmission))
    }

    /// Time of a tick that is due before the next regular one: a backoff ends, or lengths are to be
    /// settled.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let retry_at_ns = self.context.parked.next_retry_ns();
        retry_at_ns.into_iter().chain(self.context.settle_at_ns).min()
    }

    /// Take one input. Effects are added to `effects` in the order in which to carry them out.
    pub fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect<O::Descriptor>>) {
        self.context.now = now;
        let is_tick = matches!(input, Input::Tick);
        match input {
            Input::Connected(conn, peer) => self.connections.insert(conn, peer),
            Input::Call(conn, call) => match &call.request {
                Request::Batch(_) => self.batch(conn, call),
                _ => self.call(conn, call),
            },
            Input::Disconnected(conn) => self.disconnected(conn),
            Input::LogSynced(sequence) => self.log_synced(sequence),
            Input::ObjectDurable(object) => {
                if let Some(volume) = self.volumes.get_mut(&object.instance) {
                    volume.object_durable(object.ino);
                }
            }
            Input::ChecksumsInvalidated(object, result) => {
                self.checksums_invalidated(object, result);
            }
            Input::ObjectSynced(object, result) => self.object_synced(object, result),
            Input::Tick => {
                self.expire_sessions();
                self.settle_lengths();
                self.retransmit();
            }
        }
        self.carry_out_ready();
        self.retry_parked();
        self.carry_out_ready();
        self.tag_replies();
        if self.shared_space.is_some() {
            self.volumes.values().for_each(Volume::publish_space);
        }
        effects.append(&mut self.context.effects);
        debug_assert!(self.check(is_tick), "invariants hold after every step");
    }

    /// Check invariants, of large volumes only on a tick.
    fn check(&self, is_tick: bool) -> bool {
        assert!(self.context.attempts.is_none(), "no call is being carried out");
        let accounted = self.volumes.values().map(Volume::accounted_bytes).sum::<u64>();
        let sessions = self.context.sessions.len() as u64 * SESSION_BYTES;
        assert_eq!(self.context.memory.used(), accounted + sessions, "memory of metadata");
        for (id, volume) in &self.volumes {
            assert_eq!(*id, volume.id());
            if is_tick || volume.is_small() {
                volume.check();
            }
        }
        true
    }

    /// The log is durable up to a record: carry out what waited for that.
    fn log_synced(&mut self, sequence: u64) {
        self.context.journal.mark_durable(sequence);
        while let Some(action) = self.context.journal.pop_durable() {
            let removed = match action {
                AfterDurable::RemoveObject(object, bytes) => self.objects.remove(object, bytes),
                AfterDurable::RemoveInstance(id) => self.objects.remove_instance(id),
                AfterDurable::Volume(id, action) => {
                    if let Some(volume) = self.volumes.get_mut(&id) {
                        volume.carry_out(&mut self.context, action);
                    }
                    Ok(())
                }
            };
            if let Err(error) = removed {
                tracing::warn!(%error, "cannot remove a data object; the next start retries");
            }
        }
    }

    fn checksums_invalidated(&mut self, object: ObjectId, result: Result<(), Errno>) {
        let Some(volume) = self.volumes.get_mut(&object.instance) else {
            return;
        };
        let calls = volume.checksums_invalidated(&mut self.context, object.ino, result);
        for (conn, call) in calls {
            self.call(conn, call);
        }
    }

    fn object_synced(&mut self, object: ObjectId, result: Result<(), Errno>) {
        let Some(volume) = self.volumes.get_mut(&object.instance) else {
            return;
        };
        volume.data_synced(&mut self.context, object.ino, result);
    }

    /// Carry out calls for which data have become durable.
    fn carry_out_ready(&mut self) {
        while !self.context.ready.is_empty() {
            for (conn, call) in std::mem::take(&mut self.context.ready) {
                self.call(conn, call);
            }
        }
    }

    /// Settle the lengths of files whose last write handles were closed.
    fn settle_lengths(&mut self) {
        let now_ns = self.context.now.steady_ns;
        if self.context.settle_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.context.settle_at_ns = None;
            for volume in self.volumes.values_mut() {
                volume.settle_lengths(&mut self.context);
            }
        }
    }

    /// Retransmit what has not been answered, if it is time.
    fn retransmit(&mut self) {
        let now_ns = self.context.now.steady_ns;
        let due_ns = self.retransmitted_ns.saturating_add(RETRANSMIT_INTERVAL_NS);
        if !self.any_striped || now_ns < due_ns {
            return;
        }
        self.retransmitted_ns = now_ns;
        self.time_out_parked();
        for volume in self.volumes.values_mut().filter(|volume| volume.is_striped()) {
            volume.retransmit(&mut self.context);
        }
    }

    /// Return calls that have waited too long, perhaps for a node that never answers. One that was
    /// carried out here must not be retried as another call: it waits for longer, and is answered `EIO`,
    /// since it is not known whether all nodes have applied it. A client that wants to append waits for
    /// another client, without a timeout.
    fn time_out_parked(&mut self) {
        let (connections, sessions) = (&self.connections, &self.context.sessions);
        let now_ns = self.context.now.steady_ns;
        let errno_of = |conn, seq| {
            let attached = connections.session(conn);
            let session = attached.and_then(|(id, slot)| Some((sessions.get(id).ok()?, slot)));
            if session.is_some_and(|(session, slot)| session.completed(slot, seq).is_some()) {
                (Errno::EIO, DECIDED_TIMEOUT_NS)
            } else {
                (Errno::EAGAIN, ANSWER_TIMEOUT_NS)
            }
        };
        let late = self.context.parked.take_if(|parked| {
            let (_, timeout_ns) = errno_of(parked.conn, parked.call.seq);
            let appends =
                matches!(parked.call.request, Request::File(FileRequest::AppendLock { .. }));
            !appends && parked.attempts.has_timed_out(now_ns, timeout_ns)
        });
        let late: Vec<_> = late
            .into_iter()
            .map(|parked| {
                let (errno, _) = errno_of(parked.conn, parked.call.seq);
                (parked.conn, parked.call.seq, errno)
            })
            .collect();
        for (conn, seq, errno) in late {
            self.context.reply(conn, seq, Reply::Failed(errno));
        }
    }

    /// Retry calls whose backoff is over, or which waited for something that was unlocked.
    fn retry_parked(&mut self) {
        loop {
            let unlocked = self.context.parked.take_unlocked();
            if unlocked != Unlocked::Nowhere {
                for (id, volume) in &mut self.volumes {
                    if unlocked.includes(*id) {
                        volume.continue_walks(&mut self.context);
                    }
                }
            }
            if self.context.parked.is_empty() && unlocked == Unlocked::Nowhere {
                return;
            }
            let now_ns = self.context.now.steady_ns;
            let ready = self.context.parked.take_ready(now_ns, unlocked);
            if ready.is_empty() && unlocked == Unlocked::Nowhere {
                return;
            }
            for parked in ready {
                assert!(self.context.attempts.is_none(), "calls are carried out one by one");
                self.context.attempts = Some(parked.attempts);
                self.call(parked.conn, parked.call);
                self.context.attempts = None;
            }
        }
    }
}
