//! What people and other programs are shown.

use forebay_job_script::{AccessMode, Direction};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use super::*;
use crate::messages::*;

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Bytes in a granule.
    pub granularity: Bytes,
    /// Granules of all its nodes.
    pub quantity: u64,
    /// Granules that can be allocated now.
    pub free: u64,
}

/// A storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Whether it reports.
    pub online: bool,
    /// Whether it is taken out of service.
    pub drained: bool,
    /// Whether it is given up for lost.
    #[serde(default)]
    pub forgotten: bool,
    /// Granules it has; none if it is given up.
    pub granules: u64,
    /// Granules in use.
    pub used: u64,
    /// Fragments on it.
    pub fragments: u32,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Its number.
    pub id: SessionId,
    /// Five characters.
    pub state: String,
    /// The job's id or the persistent instance's name.
    pub token: String,
    /// Whether it ends with its job.
    pub lifetime: Lifetime,
    /// Whether clients may have written since it was set up.
    pub written: bool,
    /// Whether it is being taken down.
    pub ending: bool,
    /// In whose name it was made.
    pub creator: String,
    /// Its user and group.
    pub owner: Owner,
    /// Since when.
    pub created: UnixMillis,
    /// Client hosts.
    pub hosts: Vec<String>,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// Its number.
    pub id: InstanceId,
    /// Five characters.
    pub state: String,
    /// Its session.
    pub session: SessionId,
    /// Its name.
    pub label: String,
    /// Its pool.
    pub pool: String,
    /// Bytes in its fragments.
    pub capacity: Bytes,
    /// Nodes that hold it.
    pub nodes: Vec<NodeId>,
    /// Whether all its data is there.
    pub intact: bool,
    /// Why not, or why it cannot be used at all.
    #[serde(default)]
    pub broken: Option<String>,
    /// Whether any user may use it.
    pub public: bool,
    /// Its access modes.
    pub modes: Vec<AccessMode>,
    /// Since when.
    pub created: UnixMillis,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// Its number.
    pub id: StageId,
    /// The session's token.
    pub token: String,
    /// Which way.
    pub direction: Direction,
    /// Line of the directive.
    pub line: u32,
    /// How far.
    pub state: StageState,
    /// Files and bytes.
    pub progress: StageProgress,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlStatus {
    /// Pools.
    pub pools: Vec<PoolStatus>,
    /// Storage nodes.
    pub nodes: Vec<NodeStatus>,
    /// Sessions.
    pub sessions: Vec<SessionStatus>,
    /// Instances.
    pub instances: Vec<InstanceStatus>,
    /// Stages.
    pub stages: Vec<StageStatus>,
    /// The process that has the pool open, of a pool that is open only while one needs it.
    #[serde(default)]
    pub process: Option<u32>,
}

impl Controller {
    /// All pools, nodes, sessions, instances and stages, in the order of their numbers.
    pub fn status(&self) -> ControlStatus {
        let (pools, nodes) = self.pools_and_nodes();
        let sessions = self.state.sessions.iter();
        let instances = self.state.instances.iter();
        let stages = self.state.stages.iter();
        ControlStatus {
            pools,
            nodes,
            sessions: sessions
                .map(|(id, session)| self.session_status(SessionId(id), session))
                .collect(),
            instances: instances
                .map(|(id, instance)| self.instance_status(InstanceId(id), instance))
                .collect(),
            stages: stages
                .map(|(id, stage)| self.stage_status(StageId(id), stage))
                .collect(),
            ..ControlStatus::default()
        }
    }

    fn pools_and_nodes(&self) -> (Vec<PoolStatus>, Vec<NodeStatus>) {
        let (mut pools, mut all) = (Vec::new(), Vec::new());
        for (_, pool) in self.state.pools.iter() {
            let online = |node| self.node_online(node);
            let nodes = self.state.candidate_nodes(&pool.name, online);
            let total = nodes.iter().map(|node| node.total);
            let free = nodes.iter().map(|node| node.free_granules());
            pools.push(PoolStatus {
                name: pool.name.clone(),
                granularity: pool.granularity,
                quantity: total.fold(0, u64::saturating_add),
                free: free.fold(0, u64::saturating_add),
            });
            for node in nodes {
                let Some(row) = self.state.nodes.get(u64::from(node.id.0)) else {
                    continue;
                };
                all.push(NodeStatus {
                    id: node.id,
                    name: row.name.clone(),
                    pool: row.pool.clone(),
                    online: self.node_online(node.id),
                    drained: row.drained,
                    forgotten: row.forgotten.is_some(),
                    granules: node.total,
                    used: node.used,
                    fragments: node.instances,
                });
            }
        }
        all.sort_by_key(|node| node.id);
        (pools, all)
    }

    fn session_status(&self, id: SessionId, session: &Session) -> SessionStatus {
        let instance = session.instance.map(|i| self.instance_state(i));
        let word = instance.unwrap_or(StateWord::from_parts(session.ending, 0, 0));
        SessionStatus {
            id,
            state: word.to_string(),
            token: session.token.clone(),
            lifetime: session.lifetime,
            written: session.written,
            ending: session.ending,
            creator: session.creator.clone(),
            owner: session.owner,
            created: session.created,
            hosts: session.hosts.clone(),
        }
    }

    fn instance_status(&self, id: InstanceId, instance: &Instance) -> InstanceStatus {
        let fragments = self.state.fragments_of(id);
        let there = fragments.filter(|(_, f)| f.state != FragmentState::Forgotten);
        let configurations = instance.configurations.iter();
        let modes = configurations.filter_map(|c| Some(self.state.configurations.get(c.0)?.mode));
        InstanceStatus {
            id,
            state: self.instance_state(id).to_string(),
            session: instance.session,
            label: instance.label.clone(),
            pool: instance.pool.clone(),
            capacity: instance.capacity,
            nodes: there.map(|(_, f)| f.node).collect(),
            intact: instance.broken.is_none(),
            broken: instance.broken.clone(),
            public: instance.public,
            modes: modes.collect(),
            created: instance.created,
        }
    }

    /// One stage.
    pub fn stage(&self, id: StageId) -> Option<StageStatus> {
        let stage = self.state.stages.get(id.0)?;
        Some(self.stage_status(id, stage))
    }

    fn stage_status(&self, id: StageId, stage: &StageRecord) -> StageStatus {
        let session = self.state.sessions.get(stage.session.0);
        StageStatus {
            id,
            token: session.map(|s| s.token.clone()).unwrap_or_default(),
            direction: stage.directive.direction,
            line: stage.directive.line,
            state: stage.state.clone(),
            progress: self.progress.get(&id).copied().unwrap_or(stage.moved),
        }
    }

    /// The state of an instance, from its fragments'.
    pub fn instance_state(&self, id: InstanceId) -> StateWord {
        let ending = self.state.instances.get(id.0).is_some_and(|i| i.ending);
        let parts = self.state.fragments_of(id).count();
        let there = self
            .state
            .fragments_of(id)
            .filter(|(_, f)| matches!(f.state, FragmentState::Ready(_) | FragmentState::Ending))
            .count();
        StateWord::from_parts(ending, there, parts)
    }

    /// The variables of a session's job and what they are set to; values end with `/`.
    pub fn mount_variables(
        &self,
        token: &str,
        caller: Owner,
    ) -> Result<Vec<(String, String)>, Failure> {
        let (_, session) = self.state.authorized_session(token, caller)?;
        let mut paths = Vec::new();
        for registration in &session.registrations {
            let claim = self.state.registrations.get(registration.0);
            let Some(configuration) = claim.map(|claim| claim.configuration) else {
                continue;
            };
            let Some(row) = self.state.configurations.get(configuration.0) else {
                continue;
            };
            let label = self
                .state
                .instances
                .get(row.instance.0)
                .map(|i| i.label.as_str());
            let persistent = label.filter(|_| session.instance != Some(row.instance));
            let Some(path) = self.mount_path(session, configuration) else {
                continue;
            };
            paths.push((mount_variable(&row.kind, row.mode, persistent), path));
        }
        Ok(paths)
    }

    /// Bytes that a session's own instance really has.
    pub fn real_size(&self, token: &str, caller: Owner) -> Result<Bytes, Failure> {
        let (_, session) = self.state.authorized_session(token, caller)?;
        let instance = session
            .instance
            .and_then(|id| self.state.instances.get(id.0));
        Ok(instance.map_or(Bytes(0), |instance| instance.capacity))
    }
}
