//! The controller's durable state: a table for each kind of object.

use forebay_policy::pool::{self, NodeId, NodeState};

use super::objects::*;
use super::request::{Cause, Failure};
use crate::messages::*;
use crate::records::{Change, CorruptRecord, Table};

/// All objects.
#[derive(Clone, Debug)]
pub struct State {
    /// Pools; the one with the lowest number is the default.
    pub pools: Table<Pool>,
    /// Storage nodes by [`NodeId`].
    pub nodes: Table<NodeRecord>,
    /// Sessions.
    pub sessions: Table<Session>,
    /// Instances.
    pub instances: Table<Instance>,
    /// Fragments.
    pub fragments: Table<Fragment>,
    /// Configurations.
    pub configurations: Table<Configuration>,
    /// Name spaces.
    pub namespaces: Table<NameSpace>,
    /// Registrations.
    pub registrations: Table<Registration>,
    /// Activations.
    pub activations: Table<Activation>,
    /// Stages.
    pub stages: Table<StageRecord>,
    /// Clients' last requests, by client.
    pub requests: Table<RequestRecord>,
    /// Record 0: the highest number given to an object so far.
    numbers: Table<u64>,
}

impl Default for State {
    fn default() -> State {
        State {
            pools: Table::new("pools"),
            nodes: Table::new("nodes"),
            sessions: Table::new("sessions"),
            instances: Table::new("instances"),
            fragments: Table::new("fragments"),
            configurations: Table::new("configurations"),
            namespaces: Table::new("namespaces"),
            registrations: Table::new("registrations"),
            activations: Table::new("activations"),
            stages: Table::new("stages"),
            requests: Table::new("requests"),
            numbers: Table::new("numbers"),
        }
    }
}

impl State {
    /// The state as its records were made durable. Records of other tables are passed over.
    pub fn restore(
        records: impl IntoIterator<Item = (String, u64, Vec<u8>)>,
    ) -> Result<State, CorruptRecord> {
        let mut state = State::default();
        for (table, key, value) in records {
            match table.as_str() {
                "pools" => state.pools.restore(key, &value)?,
                "nodes" => state.nodes.restore(key, &value)?,
                "sessions" => state.sessions.restore(key, &value)?,
                "instances" => state.instances.restore(key, &value)?,
                "fragments" => state.fragments.restore(key, &value)?,
                "configurations" => state.configurations.restore(key, &value)?,
                "namespaces" => state.namespaces.restore(key, &value)?,
                "registrations" => state.registrations.restore(key, &value)?,
                "activations" => state.activations.restore(key, &value)?,
                "stages" => state.stages.restore(key, &value)?,
                "requests" => state.requests.restore(key, &value)?,
                "numbers" => state.numbers.restore(key, &value)?,
                _ => {}
            }
        }
        Ok(state)
    }

    /// What changed since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        self.pools.take_changes(&mut changes);
        self.nodes.take_changes(&mut changes);
        self.sessions.take_changes(&mut changes);
        self.instances.take_changes(&mut changes);
        self.fragments.take_changes(&mut changes);
        self.configurations.take_changes(&mut changes);
        self.namespaces.take_changes(&mut changes);
        self.registrations.take_changes(&mut changes);
        self.activations.take_changes(&mut changes);
        self.stages.take_changes(&mut changes);
        self.requests.take_changes(&mut changes);
        self.numbers.take_changes(&mut changes);
        changes
    }

    /// A number that no object ever had.
    pub fn next_id(&mut self) -> u64 {
        let next = self.numbers.get(0).copied().unwrap_or(0) + 1;
        self.numbers.insert(0, next);
        next
    }

    /// The session with this token.
    pub fn session(&self, token: &str) -> Option<(SessionId, &Session)> {
        let mut sessions = self.sessions.iter();
        sessions
            .find(|(_, s)| s.token == token)
            .map(|(id, s)| (SessionId(id), s))
    }

    /// The session with this token, if `caller` may act for it.
    pub fn authorized_session(
        &self,
        token: &str,
        caller: Owner,
    ) -> Result<(SessionId, &Session), Failure> {
        let found = self.session(token).ok_or_else(|| {
            Failure::new(Cause::NotFound, format!("there is no session `{token}`"))
        })?;
        check_may_act(caller, found.1.owner, &format!("session `{token}`"))?;
        Ok(found)
    }

    /// A pool by name; the first one if none is named.
    pub fn pool(&self, name: Option<&str>) -> Result<&Pool, Failure> {
        let mut pools = self.pools.iter().map(|(_, pool)| pool);
        match name {
            None => pools
                .next()
                .ok_or_else(|| Failure::new(Cause::NotFound, "the buffer has no pool; add one")),
            Some(name) => pools.find(|pool| pool.name == name).ok_or_else(|| {
                let names: Vec<&str> = self.pools.iter().map(|(_, p)| p.name.as_str()).collect();
                let reason = format!(
                    "there is no pool `{name}`; the pools are {}",
                    names.join(", ")
                );
                Failure::new(Cause::NotFound, reason)
            }),
        }
    }

    /// The nodes of a pool as an allocation sees them. Granules of fragments that are going count
    /// until their node has confirmed it.
    pub fn candidate_nodes(
        &self,
        pool: &str,
        online: impl Fn(NodeId) -> bool,
    ) -> Vec<pool::StorageNode> {
        let mut nodes: Vec<pool::StorageNode> = Vec::new();
        for (key, node) in self.nodes.iter().filter(|(_, node)| node.pool == pool) {
            let id = NodeId(u32::try_from(key).unwrap_or(u32::MAX));
            let state = match (online(id), node.drained) {
                (false, _) => NodeState::Offline,
                (true, true) => NodeState::Drained,
                (true, false) => NodeState::Online,
            };
            let mut seen = pool::StorageNode {
                id,
                state,
                total: match node.forgotten {
                    Some(_) => 0,
                    None => node.granules,
                },
                used: 0,
                instances: 0,
            };
            let there = |f: &Fragment| f.node == id && f.state != FragmentState::Forgotten;
            for (_, fragment) in self.fragments.iter().filter(|(_, f)| there(f)) {
                seen.used = seen.used.saturating_add(fragment.granules);
                seen.instances += 1;
            }
            nodes.push(seen);
        }
        nodes
    }

    /// Whether a storage node is given up.
    pub fn is_forgotten(&self, node: NodeId) -> bool {
        let row = self.nodes.get(u64::from(node.0));
        row.is_some_and(|row| row.forgotten.is_some())
    }

    /// The fragments of an instance.
    pub fn fragments_of(
        &self,
        instance: InstanceId,
    ) -> impl Iterator<Item = (FragmentId, &Fragment)> {
        let ids = self
            .instances
            .get(instance.0)
            .map(|i| i.fragments.as_slice())
            .unwrap_or_default();
        ids.iter()
            .filter_map(|id| Some((*id, self.fragments.get(id.0)?)))
    }

    /// Whether every fragment of an instance is there.
    pub fn is_ready(&self, instance: InstanceId) -> bool {
        self.instances
            .get(instance.0)
            .is_some_and(|i| i.broken.is_none() && !i.ending)
            && self.fragments_of(instance).all(|(_, fragment)| {
                matches!(
                    fragment.state,
                    FragmentState::Ready(_) | FragmentState::Ending
                )
            })
            && self
                .fragments_of(instance)
                .any(|(_, fragment)| matches!(fragment.state, FragmentState::Ready(_)))
    }

    /// Sessions other than the instance's own that have a claim on it.
    pub fn other_sessions_using(&self, instance: InstanceId) -> Vec<SessionId> {
        let own = self.instances.get(instance.0).map(|i| i.session);
        let mut users: Vec<SessionId> = self
            .registrations
            .iter()
            .filter(|(_, r)| {
                self.configurations
                    .get(r.configuration.0)
                    .is_some_and(|c| c.instance == instance)
            })
            .map(|(_, r)| r.session)
            .filter(|session| Some(*session) != own)
            .collect();
        users.dedup();
        users
    }
}

/// Refuses those who may not act for `owner`: all but that user and root.
pub fn check_may_act(caller: Owner, owner: Owner, what: &str) -> Result<(), Failure> {
    if caller.uid == owner.uid || caller.uid == 0 {
        return Ok(());
    }
    let reason = format!(
        "{what} belongs to user {}; only that user may do this",
        owner.uid
    );
    Err(Failure::new(Cause::Denied, reason))
}
