//! Volumes: the state of one instance on one storage node.
//!
//! A [`Volume`] owns all of it. Every sub-state is a type of its own with private fields: name space,
//! handles, space, file locks, lengths, tasks, and the parts of transactions. The files of this folder
//! contain one sub-state each, together with the methods of [`Volume`] that are about it.

mod attributes;
mod cache_leases;
mod checksums;
mod confirmations;
mod data;
mod events;
mod files;
mod handles;
mod leases;
mod lengths;
mod locks;
mod memory;
mod names;
mod object_reply;
mod paths;
mod peers;
mod pieces;
mod prepared;
mod replacements;
mod requests;
mod space;
mod tasks;
mod transactions;
mod tx_locks;
mod whole_files;
mod write_leases;

pub use checksums::PendingCall;
pub use object_reply::fetch_reply;
pub use paths::Resolved;
pub use peers::RETRANSMIT_INTERVAL_NS;
pub use tasks::{ANSWER_TIMEOUT_NS, DECIDED_TIMEOUT_NS};

use crate::context::{AfterDurable, Context, Origin, VolumeAction};
use crate::driver::ConnId;
use crate::namespace::{Change, Namespace, PieceNodes};
use crate::objects::{ObjectId, Objects};
use crate::shared_space::SharedSpace;
use crate::state::{Event, SessionState, SlotResult, SlotUpdate, VolumeEvent, VolumeState};
use cache_leases::CacheLeases;
pub use cache_leases::changes;
use checksums::Invalidations;
use confirmations::Confirmations;
use events::Events;
use forebay_policy::layout::FIRST_WIDTH;
use forebay_protocol::message::ACCESS_ACL;
use forebay_protocol::{Errno, Ino, InstanceId, NodeIndex, Reply, SessionId};
use handles::{Handle, Handles};
use leases::ReadLeases;
use lengths::Lengths;
use locks::FileLocks;
use peers::Links;
use pieces::Pieces;
use replacements::Replacements;
use space::Space;
use std::collections::{BTreeMap, BTreeSet};
use tasks::Tasks;
use transactions::{Coordinator, Participant};
use tx_locks::{TxLockOwner, TxLocks};
use write_leases::{WaitingMessages, WriteLeases};

/// The state of one instance on this node.
#[derive(Debug)]
pub struct Volume<O> {
    /// The durable part.
    state: VolumeState,
    /// The data objects of all instances.
    objects: O,
    space: Space,
    handles: Handles,
    locks: FileLocks,
    leases: ReadLeases,
    write_leases: WriteLeases,
    waiting_messages: WaitingMessages,
    events: Events,
    cache_leases: CacheLeases,
    invalidations: Invalidations,
    replacements: Replacements,
    links: Links,
    lengths: Lengths,
    pieces: Pieces,
    confirmations: Confirmations,
    tasks: Tasks,
    tx_locks: TxLocks,
    coordinator: Coordinator,
    participant: Participant,
    /// Memory of prepared changes.
    prepared_bytes: u64,
    /// Memory that the node was told this volume takes.
    accounted_bytes: u64,
}

impl<O: Objects> Volume<O> {
    /// A volume without clients and data objects.
    pub fn new(state: VolumeState, objects: O) -> Volume<O> {
        let mut tx_locks = TxLocks::default();
        for (tx, prepared) in &state.prepared {
            for lock in prepared.rounds.iter().flat_map(|round| &round.locks) {
                tx_locks.take(lock.clone(), TxLockOwner::Transaction(*tx));
            }
        }
        let mut lengths = Lengths::default();
        for (ino, inode) in state.names.iter() {
            if inode.length().is_some_and(|length| !length.known) {
                lengths.add_unsettled(ino);
            }
        }
        let mut volume = Volume {
            coordinator: Coordinator::restore(&state.decided),
            space: Space::new(&state.spec.placement),
            state,
            objects,
            handles: Handles::default(),
            locks: FileLocks::default(),
            leases: ReadLeases::default(),
            write_leases: WriteLeases::default(),
            waiting_messages: WaitingMessages::default(),
            events: Events::default(),
            cache_leases: CacheLeases::default(),
            invalidations: Invalidations::default(),
            replacements: Replacements::default(),
            links: Links::default(),
            lengths,
            pieces: Pieces::default(),
            confirmations: Confirmations::default(),
            tasks: Tasks::default(),
            tx_locks,
            participant: Participant::default(),
            prepared_bytes: 0,
            accounted_bytes: 0,
        };
        volume.count_prepared();
        volume
    }

    /// A volume of a node that starts. Objects without an inode are removed.
    pub fn restore(state: VolumeState, objects: O) -> Result<Volume<O>, Errno> {
        let mut volume = Volume::new(state, objects);
        volume.objects.add_instance(volume.id())?;
        for (ino, bytes) in volume.objects.list_objects(volume.id())? {
            if !volume.names().owns(ino) {
                volume.pieces.check_later(ino);
                volume.space.charge(ino, bytes);
            } else if volume.names().get(ino).is_some() {
                volume.space.charge(ino, bytes);
            } else {
                volume.objects.remove(volume.object(ino), bytes)?;
            }
        }
        Ok(volume)
    }

    /// A session from before this start is attached; its client may be caching.
    pub fn restore_session(&mut self, session: SessionId, state: &SessionState, now_ns: u64) {
        self.handles.attach(session);
        for (slot, handle, ino) in state.write_leases() {
            self.write_leases.restore(ino, (session, handle), slot);
        }
        if self.state.leased {
            self.leases = ReadLeases::forgotten(now_ns);
        }
        self.cache_leases.extend(session, now_ns);
        if state.delegation().is_some() {
            self.cache_leases.delegate(session);
            self.events.restore_obedience(session);
        }
    }

    pub fn id(&self) -> InstanceId {
        self.state.spec.id
    }

    /// The durable part.
    pub fn state(&self) -> &VolumeState {
        &self.state
    }

    fn names(&self) -> &Namespace {
        &self.state.names
    }

    /// The data object of a file.
    fn object(&self, ino: Ino) -> ObjectId {
        let instance = self.id();
        ObjectId { instance, ino }
    }

    /// Whether files are striped over several nodes.
    pub fn is_striped(&self) -> bool {
        self.state.spec.placement.is_distributed()
    }

    /// The other nodes of the instance.
    fn other_nodes(&self) -> impl Iterator<Item = NodeIndex> + use<O> {
        let placement = &self.state.spec.placement;
        let own = placement.node;
        (0..placement.nodes).map(NodeIndex).filter(move |node| *node != own)
    }

    /// The other nodes of the instance that may have data objects of a file, whose record may have been
    /// lost in a power cut: one that has been opened for writing may have them on [`FIRST_WIDTH`]
    /// nodes before that is durable.
    fn other_nodes_with(
        &self,
        ino: Ino,
        pieces: PieceNodes,
    ) -> impl Iterator<Item = NodeIndex> + use<O> {
        let placement = &self.state.spec.placement;
        let own = placement.node;
        let width = pieces.width(placement.nodes).max(FIRST_WIDTH);
        placement.layout().first_nodes(ino, width).filter(move |node| *node != own)
    }

    /// Whether other nodes are still to remove their parts of removed files.
    pub fn awaits_removals(&self) -> bool {
        self.pieces.any_removals()
    }

    /// The capacity is shared with other nodes in this process.
    pub fn share_space(&mut self, shared: SharedSpace) {
        self.space.share(shared);
        self.publish_space();
    }

    /// Let other nodes that share the capacity know of its use.
    pub fn publish_space(&self) {
        self.space.publish(self.state.spec.capacity);
    }

    /// Bytes in use or granted to writers.
    pub fn used(&self) -> u64 {
        self.space.used()
    }

    pub fn session_count(&self) -> usize {
        self.handles.session_count()
    }

    pub fn attach(&mut self, session: SessionId) {
        self.cache_leases.end_denial();
        self.handles.attach(session);
    }

    /// A session is over: close its handles, and forget it.
    pub fn detach(&mut self, node: &mut Context<O>, session: SessionId) {
        self.close_all(node, session);
        self.end_unclaimed_write_leases(node, session);
        self.end_events(node, session);
        self.cache_leases.end_delegation(session);
        self.handles.detach(session);
        self.locks.detach(session);
    }

    /// Close a session's handles to data connections: requests in flight end before any further
    /// effect is visible.
    pub fn close_data_handles(&self, node: &mut Context<O>, session: SessionId) {
        let handles = self.handles.of_session(session);
        node.effects
            .extend(handles.map(|handle| crate::driver::Effect::BulkClose(session, handle)));
    }

    /// The number of read leases of each session that has any.
    pub fn read_lease_counts(&self) -> BTreeMap<SessionId, u64> {
        let mut counts = BTreeMap::new();
        for (_, (session, _)) in self.leases.iter() {
            *counts.entry(session).or_default() += 1;
        }
        counts
    }

    /// Whether a session holds or waits for any lock on a file.
    pub fn has_locks_of(&self, session: SessionId) -> bool {
        self.locks.has_locks_of(session)
    }

    /// A connection of a session is closed.
    pub fn connection_closed(&mut self, session: SessionId, conn: ConnId) {
        self.events.drop_watch(session, conn);
        self.invalidations.drop_calls_of(conn);
        self.replacements.drop_calls_of(conn);
        self.discard_staged(conn);
    }

    /// Whether every user may look names up in a directory.
    pub fn is_searchable_by_all(&self, dir: Ino) -> bool {
        let dir = self.names().get(dir);
        dir.is_some_and(|dir| dir.mode & 0o111 == 0o111 && !dir.xattrs.contains_key(ACCESS_ACL))
    }

    /// Whether any lock waits only for sessions that may reclaim theirs.
    pub fn holds_locks_back(&self) -> bool {
        self.locks.is_held_back()
    }

    /// Carry out an action whose log record is durable.
    pub fn carry_out(&mut self, node: &mut Context<O>, action: VolumeAction) {
        match action {
            VolumeAction::RemovePieces(ino, pieces) => {
                self.have_pieces_removed(node, ino, pieces);
            }
            VolumeAction::ReplyCapability(origin, handle) => self.extended(node, &origin, handle),
            VolumeAction::Vote(tx, round) => self.vote(node, tx, round),
            VolumeAction::Announce(tx) => self.announce(node, tx),
            VolumeAction::ReportRemoved(to, inos) => self.report_removed(node, to, inos),
            VolumeAction::ReportDone(tx, to) => self.report_done(node, tx, to),
        }
    }

    /// The instance is removed: calls that wait for other nodes or for checksums fail.
    pub fn fail_waiting_calls(&mut self, node: &mut Context<O>) {
        let requesters = self.coordinator.calls().map(|requester| requester.origin);
        let calls: Vec<Origin> = self.tasks.origins().chain(requesters).collect();
        let calls = calls.iter().map(|origin| (origin.conn, origin.seq));
        let waiting = self.invalidations.take_calls().into_iter();
        for (conn, seq) in calls.chain(waiting).chain(self.replacements.take_calls()) {
            node.reply(conn, seq, Reply::Failed(Errno::ESTALE));
        }
    }

    /// Change the capacity, in bytes. `EBUSY`: more is in use or granted.
    pub fn resize(
        &mut self,
        node: &mut Context<O>,
        capacity: u64,
        update: SlotUpdate,
    ) -> Result<(), Errno> {
        if capacity < self.used() {
            return Err(Errno::EBUSY);
        }
        self.log(node, VolumeEvent::Resize(capacity), Some(update));
        Ok(())
    }

    /// Carry out an action when a log record is durable.
    fn when_durable(&self, node: &mut Context<O>, record: u64, action: VolumeAction) {
        node.journal.when_durable(record, AfterDurable::Volume(self.id(), action));
    }

    /// Apply a change to the durable state and log it. Returns the record's sequence number.
    fn log(
        &mut self,
        node: &mut Context<O>,
        event: VolumeEvent,
        request: Option<SlotUpdate>,
    ) -> u64 {
        if let Err(why) = self.state.apply(&event) {
            unreachable!("a planned change does not fit the state: {why}: {event:?}");
        }
        if matches!(event, VolumeEvent::Prepare { .. } | VolumeEvent::Resolve { .. }) {
            self.count_prepared();
        }
        self.account_memory(&mut node.memory);
        node.log(Event::Volume(self.id(), event), request)
    }

    /// Log a change of the name space, with its result for the slot of the call that made it.
    fn log_change(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        change: Change,
        result: SlotResult,
    ) {
        let update = origin.slot_update(result);
        self.log(node, VolumeEvent::Namespace(change), Some(update));
    }

    /// Check the invariants that connect sub-states, for debug builds.
    pub fn check(&self) {
        self.names().check();
        self.space.check();
        assert_eq!(self.space.metadata(), self.metadata_charge(), "charge for metadata");
        self.handles.check();
        assert_eq!(self.space.granted(), self.handles.granted(), "grants");
        for ino in self.handles.open_inodes() {
            assert!(self.names().get(ino).is_some(), "inode {ino} is open");
        }
        for ino in self.space.objects().filter(|ino| self.names().owns(*ino)) {
            let inode = self.names().get(ino);
            let is_staged = || self.replacements.is_staged(ino);
            assert!(inode.is_some() || is_staged(), "object {ino} belongs to a file");
        }
        self.locks.check(|session, ino, id| {
            let handle = self.handles.get(session, id);
            handle.is_ok_and(|handle| handle.ino == ino && !handle.is_piece)
        });
        for (ino, (session, id)) in self.leases.iter() {
            let handle = self.handles.get(session, id);
            assert!(handle.is_ok_and(|handle| handle.ino == ino && handle.mode.read));
            assert!(!self.handles.is_open_for_writing(ino), "file {ino} is leased");
        }
        for (ino, (session, id)) in self.write_leases.iter() {
            let handle = self.handles.get(session, id);
            let is_writer = |handle: &Handle| handle.ino == ino && handle.mode.write;
            assert!(handle.as_ref().err().is_some() || handle.is_ok_and(is_writer));
            assert!(!self.handles.is_open_elsewhere(ino, session), "file {ino} is leased");
        }
        let tasks: Vec<_> = self.tasks.lock_owners().collect();
        for owner in self.tx_locks.owners() {
            assert!(
                match owner {
                    TxLockOwner::Task(_) => tasks.contains(&owner),
                    TxLockOwner::Transaction(tx) =>
                        self.state.prepared.contains_key(&tx) || self.coordinator.get(tx).is_some(),
                },
                "{owner:?} holds a lock and is over"
            );
        }
        let unsettled: BTreeSet<Ino> = self.lengths.unsettled().collect();
        for ino in unsettled {
            assert!(!self.handles.is_written(ino), "file {ino} is written");
        }
    }

    /// Whether [`check`](Volume::check) takes little time.
    pub fn is_small(&self) -> bool {
        self.names().len() + self.handles.len() < 200
    }
}
