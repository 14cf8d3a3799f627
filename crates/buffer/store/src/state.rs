//! The durable state of a storage node, and the log records that change it.

use crate::namespace::{ApplyError, Change, Namespace, TxLock};
use forebay_protocol::message::{
    DELEGATION_SLOT, FIRST_WRITE_LEASE_SLOT, InstanceSpec, MAX_WRITE_LEASES,
};
use forebay_protocol::peer::{StepResult, TxId};
use forebay_protocol::{FileKind, HandleId, Ino, InstanceId, NodeIndex, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The durable state. Two states that were reached by the same records are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Starts of the daemon so far.
    pub epoch: u64,
    /// Instances with storage on this node.
    pub volumes: BTreeMap<InstanceId, VolumeState>,
    /// Attached clients.
    pub sessions: BTreeMap<SessionId, SessionState>,
    /// Sessions begun so far.
    pub session_count: u64,
}

/// The durable state of an instance on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeState {
    /// The instance's parameters.
    pub spec: InstanceSpec,
    /// Its name space.
    pub names: Namespace,
    /// Transactions that other nodes coordinate and for which this node is prepared.
    pub prepared: BTreeMap<TxId, Prepared>,
    /// Committed transactions that this node coordinated, and the participants that have not applied
    /// them durably.
    pub decided: BTreeMap<TxId, BTreeSet<NodeIndex>>,
    /// Clients may have read leases. After a power cut this may be lost; but then they have expired,
    /// because a host takes longer to start than a lease lasts.
    pub leased: bool,
}

/// A participant's part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The node that decides.
    pub coordinator: NodeIndex,
    /// The rounds this node is prepared for, in order.
    pub rounds: Vec<Round>,
}

/// The steps that a participant was asked for in one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Its number within the transaction.
    pub number: u8,
    /// Changes to apply when the transaction commits.
    pub changes: Vec<Change>,
    /// Locks held until the transaction ends.
    pub locks: Vec<TxLock>,
    /// The findings that the vote reports.
    pub found: Vec<StepResult>,
}

/// The durable part of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    /// Proof of membership for its connections.
    pub secret: u128,
    /// The user whose connections may join.
    pub uid: u32,
    /// The instance it is attached to; `None` for administration.
    pub instance: Option<InstanceId>,
    /// Number and result of the last change through each slot: the idempotency records.
    pub slots: BTreeMap<u32, (u64, SlotResult)>,
}

/// Numbers of delegations that a session may have had.
const DELEGATIONS: u64 = 1 << 32;

impl SessionState {
    /// The session may get a delegation. Its number is that of a slot without a connection; it is different
    /// from those of all other sessions.
    pub fn permit_delegation(&mut self, id: SessionId) {
        let first = id.0.saturating_mul(DELEGATIONS);
        self.slots.insert(DELEGATION_SLOT, (first, SlotResult::Done));
    }

    /// The write leases that it has: the slot on which each is noted, its handle and its inode.
    pub fn write_leases(&self) -> impl Iterator<Item = (u32, HandleId, Ino)> {
        let slots = FIRST_WRITE_LEASE_SLOT..FIRST_WRITE_LEASE_SLOT + MAX_WRITE_LEASES;
        self.slots.range(slots).filter_map(|(slot, (handle, noted))| match noted {
            SlotResult::Attr(ino) => Some((*slot, HandleId(*handle), *ino)),
            SlotResult::Done | SlotResult::Opened(..) | SlotResult::Referral(..) => None,
        })
    }

    /// The number of the delegation that it may have.
    pub fn delegation(&self) -> Option<u64> {
        self.slots.get(&DELEGATION_SLOT).map(|(number, _)| *number)
    }
}

/// The result of a change, as far as it is needed to reply again when the call is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotResult {
    /// The change was made.
    Done,
    /// The reply is the attributes of this inode.
    Attr(Ino),
    /// A file was opened. The flag: it was also created.
    Opened(Ino, bool),
    /// The change concerned this inode of another node.
    Referral(Ino, FileKind),
}

/// The idempotency record of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotUpdate {
    /// The session.
    pub session: SessionId,
    /// The slot that the call came through.
    pub slot: u32,
    /// Number of the call.
    pub seq: u64,
    /// Its result.
    pub result: SlotResult,
}

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The change.
    pub event: Event,
    /// The call that made it.
    pub request: Option<SlotUpdate>,
}

/// A change of the durable state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The daemon starts.
    Start,
    /// An instance is created.
    AddInstance(InstanceSpec, Timestamp),
    /// An instance is removed with all its data.
    DropInstance(InstanceId),
    /// A session begins.
    BeginSession {
        /// Its number.
        id: SessionId,
        /// Its durable part.
        state: SessionState,
    },
    /// A session ends.
    EndSession(SessionId),
    /// A volume changes.
    Volume(InstanceId, VolumeEvent),
}

/// A change of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeEvent {
    /// The name space changes.
    Namespace(Change),
    /// The capacity changes, in bytes.
    Resize(u64),
    /// This node is prepared for a round of a transaction.
    Prepare {
        /// The transaction.
        tx: TxId,
        /// The node that decides.
        coordinator: NodeIndex,
        /// The round.
        round: Round,
    },
    /// The coordinator of a transaction for which this node was prepared has decided.
    Resolve {
        /// The transaction.
        tx: TxId,
        /// Whether it commits.
        commit: bool,
    },
    /// A transaction that this node coordinates commits.
    Decide {
        /// The transaction.
        tx: TxId,
        /// The participants.
        nodes: BTreeSet<NodeIndex>,
        /// The changes on this node.
        changes: Vec<Change>,
    },
    /// All participants have applied a transaction durably.
    Forget {
        /// The transaction.
        tx: TxId,
    },
    /// Clients may have read leases from now on, or have none any more.
    Leased(bool),
}

impl NodeState {
    /// Apply a record. Fails only if it was made for another state.
    pub fn apply(&mut self, record: &Record) -> Result<(), ApplyError> {
        match &record.event {
            Event::Start => {
                self.epoch += 1;
                for volume in self.volumes.values_mut() {
                    volume.names.skip_inode_numbers();
                }
            }
            Event::AddInstance(spec, now) => {
                let volume = VolumeState::new(spec.clone(), *now);
                if self.volumes.insert(spec.id, volume).is_some() {
                    return Err("the instance exists");
                }
            }
            Event::DropInstance(id) => {
                self.volumes.remove(id).ok_or("no such instance")?;
                self.sessions.retain(|_, session| session.instance != Some(*id));
            }
            Event::BeginSession { id, state } => {
                self.session_count = self.session_count.max(id.0);
                let replaced = self.sessions.insert(*id, state.clone());
                debug_assert!(replaced.is_none(), "session numbers are used once");
            }
            Event::EndSession(id) => {
                self.sessions.remove(id).ok_or("no such session")?;
            }
            Event::Volume(id, event) => {
                let volume = self.volumes.get_mut(id).ok_or("no such instance")?;
                volume.apply(event)?;
            }
        }
        if let Some(update) = record.request
            && let Some(session) = self.sessions.get_mut(&update.session)
        {
            let done = (update.seq, update.result);
            session.slots.insert(update.slot, done);
        }
        Ok(())
    }
}

impl VolumeState {
    /// A new volume.
    pub fn new(spec: InstanceSpec, now: Timestamp) -> VolumeState {
        VolumeState {
            names: Namespace::new(spec.mode, spec.uid, spec.gid, &spec.placement, now),
            spec,
            prepared: BTreeMap::new(),
            decided: BTreeMap::new(),
            leased: false,
        }
    }

    /// Apply a change. Fails, possibly halfway, only if it was made for another state.
    pub fn apply(&mut self, event: &VolumeEvent) -> Result<(), ApplyError> {
        match event {
            VolumeEvent::Namespace(change) => self.names.apply(change)?,
            VolumeEvent::Resize(capacity) => self.spec.capacity = *capacity,
            VolumeEvent::Prepare { tx, coordinator, round } => {
                self.prepare(*tx, *coordinator, round)
            }
            VolumeEvent::Resolve { tx, commit } => {
                let prepared = self.prepared.remove(tx).ok_or("no such transaction")?;
                let changes = prepared.rounds.iter().flat_map(|round| &round.changes);
                for change in changes.filter(|_| *commit) {
                    self.names.apply(change)?;
                }
            }
            VolumeEvent::Decide { tx, nodes, changes } => {
                for change in changes {
                    self.names.apply(change)?;
                }
                if !nodes.is_empty() {
                    self.decided.insert(*tx, nodes.clone());
                }
            }
            VolumeEvent::Forget { tx } => {
                self.decided.remove(tx).ok_or("no such transaction")?;
            }
            VolumeEvent::Leased(leased) => self.leased = *leased,
        }
        Ok(())
    }

    fn prepare(&mut self, tx: TxId, coordinator: NodeIndex, round: &Round) {
        for change in &round.changes {
            if let Some(ino) = change.created() {
                self.names.reserve_ino(ino);
            }
        }
        let prepared =
            self.prepared.entry(tx).or_insert_with(|| Prepared { coordinator, rounds: Vec::new() });
        let mut rounds = prepared.rounds.iter();
        debug_assert!(rounds.all(|known| known.number != round.number), "a round is prepared once");
        prepared.rounds.push(round.clone());
    }
}
