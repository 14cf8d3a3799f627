//! Simulated machines and the programs that run on them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use forebay_client::Fs;
use forebay_control::compute_node::ComputeNode;
use forebay_control::messages::{ActivationId, FragmentId, FragmentPlan, MountPlan, StageId};
use forebay_control::records::{Change, StoredRecord};
use forebay_control::storage_node::StorageNode;
use forebay_protocol::message::OpenMode;
use forebay_protocol::{HandleId, SessionId};
use forebay_store::log::Log;
use forebay_store::node::{ConnId, Node};
use forebay_store::objects::{MemoryObjects, ObjectId};
use forebay_store::storage::MemoryStorage;

use crate::actor_thread::{ActorId, LinkId};
use crate::journals::Journals;

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

/// A running storage daemon.
pub struct Daemon {
    pub node: Node<MemoryObjects>,
    pub log: Log<MemoryStorage>,
    /// The connection over which other daemons' messages come.
    pub peers: ConnId,
    /// Handles that bulk connections may use.
    pub opens: BTreeMap<(SessionId, HandleId), OpenObject>,
    /// The last connection in each lane.
    pub lanes: BTreeMap<(SessionId, u32), LinkId>,
}

pub struct OpenObject {
    pub object: ObjectId,
    pub mode: OpenMode,
    pub grant: u64,
}

/// A storage node with its disk.
pub struct Storage {
    /// Increases with every crash.
    pub life: u64,
    /// Increases with every power cut.
    pub boot: u64,
    /// Time until which it is down.
    pub down: u64,
    pub granules: u64,
    pub disk: MemoryStorage,
    pub objects: MemoryObjects,
    pub journals: Journals,
    pub records: Records,
    /// Fragments that exist.
    pub fragments: BTreeMap<FragmentId, FragmentPlan>,
    pub running: Option<(Daemon, StorageNode)>,
    /// Fragments to be made (or destroyed, if not `true`), one after the other.
    pub orders: VecDeque<(bool, FragmentPlan)>,
    /// Running movers.
    pub copies: BTreeMap<StageId, (u32, Arc<forebay_stage::ProgressCounters>)>,
}

/// A compute node.
pub struct Compute {
    pub life: u64,
    pub down: u64,
    pub runs: Option<ComputeNode>,
    pub plans: BTreeMap<ActivationId, MountPlan>,
    pub mounts: Mounts,
    /// Processes: of which job, and what they use.
    pub using: BTreeMap<ActorId, (String, BTreeSet<ActivationId>)>,
}

/// What is mounted, as processes find it.
pub type Mounts = Arc<Mutex<BTreeMap<ActivationId, Fs>>>;
