//! Pools, storage nodes, and the instances allocated on them.
//!
//! This module owns the accounting: the granules in use on a node are the sum of its fragments',
//! also of those that are being removed, until the node has confirmed the removal.

use std::collections::{BTreeMap, BTreeSet};

use forebay_policy::pool::{self, NodeId, NodeState};
use forebay_units::Bytes;

use super::objects::{Configuration, Fragment, FragmentState, Instance, NodeRecord, Pool};
use super::request::{Cause, Failure};
use crate::messages::{ConfigurationId, FragmentId, InstanceId, PoolId, SessionId};
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// Use of one node by fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NodeUsage {
    granules: u64,
    fragments: u32,
}

/// Pools, storage nodes, instances, their fragments and configurations.
#[derive(Clone, Debug)]
pub struct StorageTable {
    /// The pool with the lowest id is the default.
    pools: Table<PoolId, Pool>,
    nodes: Table<NodeId, NodeRecord>,
    instances: Table<InstanceId, Instance>,
    fragments: Table<FragmentId, Fragment>,
    configurations: Table<ConfigurationId, Configuration>,
    /// Follows from `fragments`.
    usage: BTreeMap<NodeId, NodeUsage>,
    /// The fragments of each node. Follows from `fragments`.
    on_node: BTreeMap<NodeId, BTreeSet<FragmentId>>,
}

impl Default for StorageTable {
    fn default() -> StorageTable {
        StorageTable {
            pools: Table::new("pools"),
            nodes: Table::new("nodes"),
            instances: Table::new("instances"),
            fragments: Table::new("fragments"),
            configurations: Table::new("configurations"),
            usage: BTreeMap::new(),
            on_node: BTreeMap::new(),
        }
    }
}

/// Whether a fragment occupies granules of its node.
fn occupies(state: FragmentState) -> bool {
    state != FragmentState::Forgotten
}

impl StorageTable {
    pub(super) fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        Ok(self.pools.restore(record)?
            || self.nodes.restore(record)?
            || self.instances.restore(record)?
            || self.fragments.restore(record)?
            || self.configurations.restore(record)?)
    }

    /// Computes what follows from the restored records.
    pub(super) fn finish_restore(&mut self) {
        self.usage = self.compute_usage();
        for (id, fragment) in self.fragments.iter() {
            self.on_node.entry(fragment.node).or_default().insert(id);
        }
    }

    pub(super) fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.pools.take_changes(changes);
        self.nodes.take_changes(changes);
        self.instances.take_changes(changes);
        self.fragments.take_changes(changes);
        self.configurations.take_changes(changes);
    }

    fn compute_usage(&self) -> BTreeMap<NodeId, NodeUsage> {
        let mut usage: BTreeMap<NodeId, NodeUsage> = BTreeMap::new();
        for (_, fragment) in self.fragments.iter().filter(|(_, f)| occupies(f.state)) {
            let used = usage.entry(fragment.node).or_default();
            used.granules = used.granules.saturating_add(fragment.granules);
            used.fragments += 1;
        }
        usage
    }

    /// Panics if the tables contradict each other. Costs time in proportion to their size.
    pub(super) fn check_invariants(&self) {
        let mut usage = self.usage.clone();
        usage.retain(|_, used| used.fragments > 0);
        assert_eq!(usage, self.compute_usage(), "granules in use are the sum of the fragments'");
        let mut listed = BTreeSet::new();
        for (id, instance) in self.instances.iter() {
            for fragment in &instance.fragments {
                let row = self.fragments.get(*fragment);
                assert!(
                    row.is_some_and(|row| row.instance == id),
                    "an instance lists a fragment that is not its own"
                );
                assert!(listed.insert(*fragment), "a fragment is listed twice");
            }
        }
        for (id, fragment) in self.fragments.iter() {
            assert!(self.nodes.contains(fragment.node), "a fragment has no node");
            assert!(listed.contains(&id), "a fragment is not listed by its instance");
            let of_node = self.on_node.get(&fragment.node);
            assert!(of_node.is_some_and(|of_node| of_node.contains(&id)), "an unlisted fragment");
        }
        let indexed: usize = self.on_node.values().map(BTreeSet::len).sum();
        assert_eq!(indexed, self.fragments.len(), "a node lists a fragment that does not exist");
    }

    /// Whether there is no instance, fragment or configuration.
    pub fn is_unused(&self) -> bool {
        self.instances.is_empty() && self.fragments.is_empty() && self.configurations.is_empty()
    }

    /// A pool by name; the default pool for `None`.
    pub fn pool(&self, name: Option<&str>) -> Result<&Pool, Failure> {
        let mut pools = self.pools();
        match name {
            None => pools.next().ok_or_else(|| {
                Failure::new(Cause::NotFound, "the buffer has no pool; add one first")
            }),
            Some(name) => pools.find(|pool| pool.name == name).ok_or_else(|| {
                let names: Vec<&str> = self.pools().map(|pool| pool.name.as_str()).collect();
                let reason =
                    format!("there is no pool `{name}`; the pools are {}", names.join(", "));
                Failure::new(Cause::NotFound, reason)
            }),
        }
    }

    /// All pools.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().map(|(_, pool)| pool)
    }

    pub(super) fn add_pool(&mut self, id: PoolId, pool: Pool) {
        assert!(pool.granularity.0 > 0, "a granule has no bytes");
        self.pools.insert_new(id, pool);
    }

    /// A storage node.
    pub fn node(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(id)
    }

    /// All storage nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.nodes.iter()
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> Option<&mut NodeRecord> {
        self.nodes.get_mut(id)
    }

    /// A storage node that must exist.
    pub(super) fn existing_node(&self, id: NodeId) -> Result<&NodeRecord, Failure> {
        self.nodes.get(id).ok_or_else(|| {
            let reason = format!("there is no storage node {}", id.0);
            Failure::new(Cause::NotFound, reason)
        })
    }

    /// Adds a node under the next free id.
    pub(super) fn add_node(&mut self, node: NodeRecord) -> NodeId {
        let id = NodeId(self.nodes.last_key().map_or(0, |last| last.0 + 1));
        self.nodes.insert_new(id, node);
        id
    }

    /// The name of a storage node.
    pub(super) fn node_name(&self, id: NodeId) -> &str {
        self.nodes.get(id).map_or("?", |node| &node.name)
    }

    /// Whether a storage node was given up for lost.
    pub fn is_forgotten(&self, id: NodeId) -> bool {
        let node = self.nodes.get(id);
        node.is_some_and(|node| node.forgotten.is_some())
    }

    /// The nodes of a pool as the allocation policy sees them.
    pub(super) fn candidate_nodes(
        &self,
        pool: &str,
        online: impl Fn(NodeId) -> bool,
        written: impl Fn(NodeId) -> Bytes,
    ) -> Vec<pool::StorageNode> {
        let of_pool = self.nodes.iter().filter(|(_, node)| node.pool == pool);
        let candidate = |(id, node): (NodeId, &NodeRecord)| {
            let used = self.usage.get(&id).copied().unwrap_or_default();
            pool::StorageNode {
                id,
                state: match (online(id), node.drained) {
                    (false, _) => NodeState::Offline,
                    (true, true) => NodeState::Drained,
                    (true, false) => NodeState::Online,
                },
                total: match node.forgotten {
                    Some(_) => 0,
                    None => node.granules,
                },
                used: used.granules,
                instances: used.fragments,
                written: written(id),
            }
        };
        of_pool.map(candidate).collect()
    }

    /// An instance.
    pub fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(id)
    }

    /// All instances.
    pub fn instances(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        self.instances.iter()
    }

    pub(super) fn instance_mut(&mut self, id: InstanceId) -> Option<&mut Instance> {
        self.instances.get_mut(id)
    }

    pub(super) fn add_instance(&mut self, id: InstanceId, instance: Instance) {
        assert!(instance.fragments.is_empty(), "fragments are added one by one");
        self.instances.insert_new(id, instance);
    }

    /// Removes an instance without fragments, and its configurations.
    pub(super) fn remove_instance(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.remove(id) else {
            return;
        };
        assert!(instance.fragments.is_empty(), "an instance with fragments was removed");
        for configuration in instance.configurations {
            self.configurations.remove(configuration);
        }
    }

    /// Marks an instance as unusable, unless it already is for another reason.
    pub(super) fn mark_broken(&mut self, id: InstanceId, reason: String) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.broken.get_or_insert(reason);
        }
    }

    /// Moves the configurations of an instance that was never used to a new instance without
    /// fragments. The old instance, and all its fragments, are to be removed.
    pub(super) fn renumber_instance(&mut self, old: InstanceId, new: InstanceId) {
        let Some(row) = self.instances.get_mut(old) else {
            return;
        };
        let successor = Instance { fragments: Vec::new(), ..row.clone() };
        row.configurations.clear();
        self.end_instance(old);
        for id in &successor.configurations {
            if let Some(configuration) = self.configurations.get_mut(*id) {
                configuration.instance = new;
            }
        }
        self.instances.insert_new(new, successor);
    }

    /// An instance whose data were copied to another one takes its place: that one gets its
    /// configurations, and it is to be removed with all its fragments.
    pub(super) fn replace_instance(&mut self, old: InstanceId, new: InstanceId) {
        let Some(row) = self.instances.get_mut(old) else {
            return;
        };
        let configurations = std::mem::take(&mut row.configurations);
        let created = row.created;
        self.end_instance(old);
        for id in &configurations {
            if let Some(configuration) = self.configurations.get_mut(*id) {
                configuration.instance = new;
            }
        }
        if let Some(row) = self.instances.get_mut(new) {
            assert_eq!(row.replaces, Some(old), "an instance was replaced by another's copy");
            row.replaces = None;
            row.configurations = configurations;
            row.created = created;
        }
    }

    /// A fragment.
    pub fn fragment(&self, id: FragmentId) -> Option<&Fragment> {
        self.fragments.get(id)
    }

    /// All fragments.
    pub fn fragments(&self) -> impl Iterator<Item = (FragmentId, &Fragment)> {
        self.fragments.iter()
    }

    /// The fragments of a node.
    pub(super) fn fragments_on(
        &self,
        node: NodeId,
    ) -> impl Iterator<Item = (FragmentId, &Fragment)> {
        let ids = self.on_node.get(&node).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.fragments.get(*id)?)))
    }

    /// Fragments that were changed or removed in this step.
    pub(super) fn changed_fragments(&self) -> impl Iterator<Item = FragmentId> {
        self.fragments.changed_keys()
    }

    /// Whether anything was changed in this step.
    pub(super) fn has_changes(&self) -> bool {
        self.pools.has_changes()
            || self.nodes.has_changes()
            || self.instances.has_changes()
            || self.fragments.has_changes()
            || self.configurations.has_changes()
    }

    /// Instances that were changed or removed in this step, also in their fragments.
    pub(super) fn changed_instances(&self) -> impl Iterator<Item = InstanceId> {
        let of_fragment = |id| Some(self.fragments.get(id)?.instance);
        let fragments = self.fragments.changed_keys().filter_map(of_fragment);
        self.instances.changed_keys().chain(fragments)
    }

    /// Whether a node has, or is to have, a fragment.
    pub(super) fn has_fragments_on(&self, node: NodeId) -> bool {
        self.usage.get(&node).is_some_and(|used| used.fragments > 0)
    }

    /// The fragments of an instance, in stripe order.
    pub fn fragments_of(
        &self,
        instance: InstanceId,
    ) -> impl Iterator<Item = (FragmentId, &Fragment)> {
        let instance = self.instances.get(instance);
        let ids = instance.map_or(&[][..], |instance| &instance.fragments);
        ids.iter().filter_map(|id| Some((*id, self.fragments.get(*id)?)))
    }

    /// The ids of the fragments that match a condition.
    pub(super) fn fragment_ids(&self, matches: impl Fn(&Fragment) -> bool) -> Vec<FragmentId> {
        let fragments = self.fragments.iter();
        let found = fragments.filter(|(_, fragment)| matches(fragment));
        found.map(|(id, _)| id).collect()
    }

    /// Adds a fragment to an instance; its node is to create it.
    pub(super) fn add_fragment(
        &mut self,
        id: FragmentId,
        instance: InstanceId,
        node: NodeId,
        granules: u64,
    ) {
        assert!(granules > 0, "a fragment occupies no granule");
        assert!(
            self.fragments_of(instance).all(|(_, f)| f.node != node),
            "an instance has two fragments on one node"
        );
        let state = FragmentState::Requested;
        let fragment = Fragment { instance, node, granules, state, fenced: 0 };
        self.fragments.insert_new(id, fragment);
        self.on_node.entry(node).or_default().insert(id);
        if let Some(row) = self.instances.get_mut(instance) {
            row.fragments.push(id);
        }
        let used = self.usage.entry(node).or_default();
        used.granules = used.granules.saturating_add(granules);
        used.fragments += 1;
        let total = self.nodes.get(node).map_or(0, |node| node.granules);
        assert!(used.granules <= total, "more granules are allocated than the node has");
    }

    pub(super) fn set_fragment_state(&mut self, id: FragmentId, state: FragmentState) {
        let Some(fragment) = self.fragments.get_mut(id) else {
            return;
        };
        assert!(
            occupies(fragment.state) || !occupies(state),
            "a fragment returned from a node that was given up"
        );
        let frees = occupies(fragment.state) && !occupies(state);
        fragment.state = state;
        if frees {
            let (node, granules) = (fragment.node, fragment.granules);
            self.release_granules(node, granules);
        }
    }

    /// A node has confirmed the fences of a fragment's instance up to this one. Returns whether that
    /// was not known.
    pub(super) fn confirm_fences(&mut self, id: FragmentId, through: u64) -> bool {
        let is_news = self.fragments.get(id).is_some_and(|fragment| fragment.fenced < through);
        if is_news && let Some(fragment) = self.fragments.get_mut(id) {
            fragment.fenced = through;
        }
        is_news
    }

    /// Removes a fragment that no longer exists on its node.
    pub(super) fn remove_fragment(&mut self, id: FragmentId) {
        let Some(fragment) = self.fragments.remove(id) else {
            return;
        };
        if let Some(of_node) = self.on_node.get_mut(&fragment.node) {
            of_node.remove(&id);
        }
        if occupies(fragment.state) {
            self.release_granules(fragment.node, fragment.granules);
        }
        if let Some(instance) = self.instances.get_mut(fragment.instance) {
            instance.fragments.retain(|of| *of != id);
        }
    }

    fn release_granules(&mut self, node: NodeId, granules: u64) {
        let used = self.usage.entry(node).or_default();
        assert!(
            used.granules >= granules && used.fragments > 0,
            "more granules are released than are in use"
        );
        used.granules -= granules;
        used.fragments -= 1;
    }

    /// An instance, and all its fragments, are to be removed.
    pub(super) fn end_instance(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        instance.ending = true;
        for fragment in instance.fragments.clone() {
            self.end_fragment(fragment);
        }
    }

    /// A fragment is to be removed; one of a node that was given up is gone already.
    fn end_fragment(&mut self, id: FragmentId) {
        match self.fragments.get(id).map(|fragment| fragment.state) {
            Some(FragmentState::Forgotten) => self.remove_fragment(id),
            Some(_) => self.set_fragment_state(id, FragmentState::Ending),
            None => {}
        }
    }

    /// Whether an instance can be used: every fragment exists, or was given up and not replaced.
    pub fn is_ready(&self, instance: InstanceId) -> bool {
        let row = self.instances.get(instance);
        let usable = row.is_some_and(|row| row.broken.is_none() && !row.ending);
        let settled = |f: &Fragment| f.is_ready() || f.state == FragmentState::Ending;
        usable
            && self.fragments_of(instance).all(|(_, f)| settled(f))
            && self.fragments_of(instance).any(|(_, f)| f.is_ready())
    }

    /// A configuration.
    pub fn configuration(&self, id: ConfigurationId) -> Option<&Configuration> {
        self.configurations.get(id)
    }

    /// All configurations.
    pub fn configurations(&self) -> impl Iterator<Item = (ConfigurationId, &Configuration)> {
        self.configurations.iter()
    }

    /// The configurations of an instance.
    pub(super) fn configurations_of<'a>(
        &'a self,
        instance: &'a Instance,
    ) -> impl Iterator<Item = &'a Configuration> + Clone {
        let ids = instance.configurations.iter();
        ids.filter_map(|id| self.configurations.get(*id))
    }

    pub(super) fn add_configuration(&mut self, id: ConfigurationId, configuration: Configuration) {
        if let Some(instance) = self.instances.get_mut(configuration.instance) {
            instance.configurations.push(id);
        }
        self.configurations.insert_new(id, configuration);
    }

    /// The session that created an instance.
    pub(super) fn session_of(&self, instance: InstanceId) -> Option<SessionId> {
        self.instances.get(instance).map(|row| row.session)
    }
}
