//! Simulated machines and the programs that run on them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use forebay_client::Fs;
use forebay_control::compute_node::ComputeNode;
use forebay_control::messages::{ActivationId, FragmentId, FragmentPlan, MountPlan, StageId};
use forebay_control::records::{Change, StoredRecord};
use forebay_control::storage_node::StorageNode;
use forebay_protocol::SessionId;
use forebay_store::node::ConnId;

use crate::actor_thread::{ActorId, LinkId};
use crate::barrier::SimMover;
use crate::journals::Journals;
use crate::store_support::daemon::Daemon;

/// A simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineId {
    Controller,
    Node(usize),
    Host(usize),
}

/// Durable records of a state machine.
pub type Records = BTreeMap<(String, u128), Vec<u8>>;

pub fn apply_changes(records: &mut Records, changes: Vec<Change>) {
    for change in changes {
        let key = (change.table.to_owned(), change.key);
        match change.value {
            Some(value) => records.insert(key, value),
            None => records.remove(&key),
        };
    }
}

pub fn to_rows(records: &Records) -> Vec<StoredRecord> {
    let row =
        |((table, key), value): (&(String, u128), &Vec<u8>)| (table.clone(), *key, value.clone());
    records.iter().map(row).collect()
}

/// A storage node with its disk.
pub struct Storage {
    /// Increases with every crash.
    pub life: u64,
    /// Time until which it is down.
    pub down_until: u64,
    pub granules: u64,
    pub daemon: Daemon,
    /// The connection on which messages of other daemons arrive.
    pub peers: ConnId,
    /// The last data connection in each slot of a session.
    pub data_slots: BTreeMap<(SessionId, u32), LinkId>,
    pub journals: Journals,
    pub records: Records,
    /// Fragments that exist.
    pub fragments: BTreeMap<FragmentId, FragmentPlan>,
    /// The state machine of the node, while it and its daemon run.
    pub node: Option<StorageNode>,
    /// Fragments to be created, or destroyed if not `true`, one after the other.
    pub orders: VecDeque<(bool, FragmentPlan)>,
    /// Running movers.
    pub movers: BTreeMap<StageId, SimMover>,
}

/// A compute node.
pub struct Compute {
    pub life: u64,
    pub down_until: u64,
    /// The state machine of the node, while its agent runs.
    pub node: Option<ComputeNode>,
    pub plans: BTreeMap<ActivationId, MountPlan>,
    pub mounts: Mounts,
    /// The job of each process, and the mounts that it uses.
    pub using: BTreeMap<ActorId, (String, BTreeSet<ActivationId>)>,
}

/// The mounted file systems.
pub type Mounts = Arc<Mutex<BTreeMap<ActivationId, Fs>>>;
