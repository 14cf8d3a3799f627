//! Everything a storage daemon must not forget, and the records that alter it.

use crate::namespace::{Change, Namespace, TxLock};
use forebay_protocol::message::InstanceSpec;
use forebay_protocol::peer::{StepResult, TxId};
use forebay_protocol::{FileKind, Ino, InstanceId, NodeIndex, SessionId, Timestamp};
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
    /// Sessions there ever were.
    pub session_count: u64,
}

/// An instance's part on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeState {
    /// What was asked for.
    pub spec: InstanceSpec,
    /// Its files.
    pub names: Namespace,
    /// Parts of transactions that this node is ready for, and that others decide.
    pub prepared: BTreeMap<TxId, Prepared>,
    /// Transactions decided here to happen, and the nodes that may not know yet.
    pub decided: BTreeMap<TxId, BTreeSet<NodeIndex>>,
}

/// Part of a transaction that another node decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Who decides.
    pub coordinator: NodeIndex,
    /// What this node was asked for, one after the other.
    pub waves: Vec<Wave>,
}

/// What a node was asked for at once as part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wave {
    /// Its number.
    pub number: u8,
    /// What happens if it is decided.
    pub changes: Vec<Change>,
    /// What nobody else may touch until then.
    pub locks: Vec<TxLock>,
    /// What was answered.
    pub found: Vec<StepResult>,
}

/// A client's attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    /// Proof of membership for its connections.
    pub secret: u128,
    /// The user whose connections may join.
    pub uid: u32,
    /// What it is attached to; `None` for administration.
    pub instance: Option<InstanceId>,
    /// The last change through each slot.
    pub slots: BTreeMap<u32, (u64, SlotResult)>,
}

/// What a change led to, as far as its reply must be given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotResult {
    /// It was done.
    Done,
    /// It concerned this inode, whose attributes are the reply.
    Attr(Ino),
    /// A file was opened, and made unless the flag is unset.
    Opened(Ino, bool),
    /// It concerned this inode, whose home is another node.
    Elsewhere(Ino, FileKind),
}

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What happens.
    pub event: Event,
    /// The request that asked for it, and its outcome.
    pub request: Option<(SessionId, u32, u64, SlotResult)>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The daemon started.
    Start,
    /// A new instance.
    AddInstance(InstanceSpec, Timestamp),
    /// An instance goes with all it holds.
    DropInstance(InstanceId),
    /// An instance's capacity changes.
    Resize(InstanceId, u64),
    /// A client attaches.
    BeginSession {
        /// Its session.
        id: SessionId,
        /// Proof of membership.
        secret: u128,
        /// Whose it is.
        uid: u32,
        /// What it attaches to.
        instance: Option<InstanceId>,
    },
    /// A client is gone.
    EndSession(SessionId),
    /// A name space changes.
    Namespace(InstanceId, Change),
    /// The addresses of an instance's nodes change.
    SetPeers(InstanceId, Vec<String>),
    /// This node is ready for part of a transaction.
    Prepare {
        /// In this instance.
        instance: InstanceId,
        /// Which.
        tx: TxId,
        /// Who decides.
        coordinator: NodeIndex,
        /// What it is ready for.
        wave: Wave,
    },
    /// Another node decided a transaction that this node was ready for.
    Resolve {
        /// In this instance.
        instance: InstanceId,
        /// Which.
        tx: TxId,
        /// It happens.
        commit: bool,
    },
    /// A transaction happens.
    Decide {
        /// In this instance.
        instance: InstanceId,
        /// Which.
        tx: TxId,
        /// Nodes that have to be told.
        nodes: BTreeSet<NodeIndex>,
        /// What it changes here.
        changes: Vec<Change>,
    },
    /// All nodes know of a transaction that it happened.
    Forget {
        /// In this instance.
        instance: InstanceId,
        /// Which.
        tx: TxId,
    },
}

impl NodeState {
    /// Carry out a record. Fails only if it was made for another state.
    pub fn apply(&mut self, record: &Record) -> Result<(), &'static str> {
        match &record.event {
            Event::Start => {
                self.epoch += 1;
                for instance in self.volumes.values_mut() {
                    instance.names.skip_inode_numbers();
                }
            }
            Event::AddInstance(spec, now) => {
                let names = Namespace::new(spec.mode, spec.uid, spec.gid, &spec.placement, *now);
                let instance = VolumeState {
                    spec: spec.clone(),
                    names,
                    prepared: BTreeMap::new(),
                    decided: BTreeMap::new(),
                };
                if self.volumes.insert(spec.id, instance).is_some() {
                    return Err("the instance exists");
                }
            }
            Event::DropInstance(id) => {
                self.volumes.remove(id).ok_or("no such instance")?;
                self.sessions
                    .retain(|_, session| session.instance != Some(*id));
            }
            Event::Resize(id, capacity) => self.instance(*id)?.spec.capacity = *capacity,
            Event::BeginSession {
                id,
                secret,
                uid,
                instance,
            } => {
                let session = SessionState {
                    secret: *secret,
                    uid: *uid,
                    instance: *instance,
                    slots: BTreeMap::new(),
                };
                self.session_count = self.session_count.max(id.0);
                self.sessions.insert(*id, session);
            }
            Event::EndSession(id) => {
                self.sessions.remove(id).ok_or("no such session")?;
            }
            Event::Namespace(id, change) => self.instance(*id)?.names.apply(change)?,
            Event::SetPeers(id, peers) => self.instance(*id)?.spec.placement.peers = peers.clone(),
            Event::Prepare {
                instance,
                tx,
                coordinator,
                wave,
            } => self.instance(*instance)?.prepare(*tx, *coordinator, wave),
            Event::Resolve {
                instance,
                tx,
                commit,
            } => self.instance(*instance)?.resolve(*tx, *commit)?,
            Event::Decide {
                instance,
                tx,
                nodes,
                changes,
            } => self.instance(*instance)?.decide(*tx, nodes, changes)?,
            Event::Forget { instance, tx } => {
                let decided = self.instance(*instance)?.decided.remove(tx);
                decided.ok_or("no such transaction")?;
            }
        }
        if let Some((session, slot, seq, outcome)) = record.request
            && let Some(session) = self.sessions.get_mut(&session)
        {
            session.slots.insert(slot, (seq, outcome));
        }
        Ok(())
    }

    fn instance(&mut self, id: InstanceId) -> Result<&mut VolumeState, &'static str> {
        self.volumes.get_mut(&id).ok_or("no such instance")
    }
}

impl VolumeState {
    /// This node is ready for a part of a transaction.
    fn prepare(&mut self, tx: TxId, coordinator: NodeIndex, wave: &Wave) {
        for change in &wave.changes {
            if let Change::MakeDir { ino, .. } = change {
                self.names.reserve_ino(*ino);
            }
        }
        let prepared = self.prepared.entry(tx).or_insert_with(|| Prepared {
            coordinator,
            waves: Vec::new(),
        });
        prepared.waves.push(wave.clone());
    }

    /// The transaction's coordinator has decided whether it happens.
    fn resolve(&mut self, tx: TxId, commit: bool) -> Result<(), &'static str> {
        let prepared = self.prepared.remove(&tx).ok_or("no such transaction")?;
        if !commit {
            return Ok(());
        }
        let mut changes = prepared.waves.iter().flat_map(|wave| &wave.changes);
        changes.try_for_each(|change| self.names.apply(change))
    }

    /// A transaction of this node happens; `nodes` have to be told.
    fn decide(
        &mut self,
        tx: TxId,
        nodes: &BTreeSet<NodeIndex>,
        changes: &[Change],
    ) -> Result<(), &'static str> {
        for change in changes {
            self.names.apply(change)?;
        }
        if !nodes.is_empty() {
            self.decided.insert(tx, nodes.clone());
        }
        Ok(())
    }
}
