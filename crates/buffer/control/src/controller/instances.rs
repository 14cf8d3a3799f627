//! Creation of instances.

use forebay_policy::allocate::{self, AllocationError, AllocationRequest, Share, Size};
use forebay_policy::pool;
use forebay_units::{Bytes, human};
use serde::{Deserialize, Serialize};

use super::machine::Controller;
use super::objects::{Configuration, Instance, Pool, is_replicated};
use super::request::{Cause, Failure, InstanceSpec, refuse};
use crate::messages::{ConfigurationId, FragmentId, InstanceId, SessionId};

/// Granules that were chosen for an instance.
pub(super) struct Allocation {
    pub pool: Pool,
    pub shares: Vec<Share>,
}

impl Allocation {
    /// Bytes in the granules.
    pub fn capacity(&self) -> Bytes {
        let granules = self.shares.iter().map(|share| share.granules);
        let granules = granules.fold(0, u64::saturating_add);
        pool::bytes_in(granules, self.pool.granularity).unwrap_or(Bytes(u64::MAX))
    }
}

/// Allocation that an instance would get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedAllocation {
    /// Name of the pool.
    pub pool: String,
    /// Bytes in a granule of the pool.
    pub granularity: Bytes,
    /// Bytes in the granules of the instance.
    pub capacity: Bytes,
    /// Number of storage nodes with a fragment.
    pub nodes: u32,
    /// Whether it fits into the granules that are free now. If not, it fits when other instances
    /// are removed.
    pub fits_now: bool,
}

impl Controller {
    /// The pool of an instance, and its request for an allocation there.
    fn allocation_request(
        &self,
        spec: &InstanceSpec,
    ) -> Result<(&Pool, AllocationRequest), Failure> {
        if spec.access.is_empty() {
            refuse!(Invalid, "an instance needs an access mode");
        }
        let replicated = is_replicated(spec);
        if replicated && spec.access.len() > 1 {
            refuse!(Invalid, "a load-balanced instance has no other access mode: it is read-only");
        }
        let pool = self.state.storage.pool(spec.pool.as_deref())?;
        let size = Size::of_instance(spec.capacity, replicated, pool.granularity);
        let size = size.ok_or_else(|| {
            Failure::new(Cause::Invalid, "the granules of the pool have no bytes")
        })?;
        let request = AllocationRequest {
            size,
            preference: spec.preference,
            equalize: pool.equalize_fragments,
            max_nodes: Some(self.settings.max_nodes),
        };
        Ok((pool, request))
    }

    /// The allocation that an instance would get now or, if the pool lacks space, once all other
    /// instances of the pool are removed. Fails if it would not fit even then.
    pub fn plan_allocation(&self, spec: &InstanceSpec) -> Result<PlannedAllocation, Failure> {
        let (pool, request) = self.allocation_request(spec)?;
        let nodes = self.candidate_nodes(&pool.name, |_| true);
        let (shares, fits_now) = match allocate::allocate(&nodes, &request) {
            Ok(shares) => (shares, true),
            Err(_) => {
                let empty = |node| pool::StorageNode { used: 0, instances: 0, ..node };
                let nodes: Vec<_> = nodes.into_iter().map(empty).collect();
                let shares = allocate::allocate(&nodes, &request);
                (shares.map_err(|refusal| full(pool, refusal))?, false)
            }
        };
        let allocation = Allocation { pool: pool.clone(), shares };
        Ok(PlannedAllocation {
            pool: pool.name.clone(),
            granularity: pool.granularity,
            capacity: allocation.capacity(),
            nodes: u32::try_from(allocation.shares.len()).unwrap_or(u32::MAX),
            fits_now,
        })
    }

    /// Chooses the nodes of an instance, and the granules on each; nothing is taken yet.
    pub(super) fn allocate_granules(&mut self, spec: &InstanceSpec) -> Result<Allocation, Failure> {
        let (pool, request) = self.allocation_request(spec)?;
        let pool = pool.clone();
        let nodes = self.candidate_nodes(&pool.name, |_| true);
        match allocate::allocate(&nodes, &request) {
            Ok(shares) => {
                assert!(
                    shares.is_sorted_by(|one, next| one.node < next.node),
                    "the shares of an allocation are on distinct nodes"
                );
                Ok(Allocation { pool, shares })
            }
            Err(refusal) => {
                self.short_of_space_at = Some(self.now);
                let mut failure = full(&pool, refusal);
                if let AllocationError::Drained { node } = refusal
                    && let Some(node) = self.state.storage.node(node)
                {
                    let name = &node.name;
                    failure.reason.push_str(&format!("; `forebay undrain {name}` ends that"));
                }
                Err(failure)
            }
        }
    }

    /// Creates the instance of a session on the nodes that were chosen.
    pub(super) fn create_instance(
        &mut self,
        session: SessionId,
        spec: &InstanceSpec,
        allocation: Allocation,
        public: bool,
    ) {
        let id = InstanceId(self.state.next_id());
        let Some(row) = self.state.sessions.get_mut(session) else {
            return;
        };
        row.instance = Some(id);
        let group = spec.group.unwrap_or(row.owner.gid);
        let instance = Instance {
            session,
            label: row.token.clone(),
            pool: allocation.pool.name.clone(),
            capacity: allocation.capacity(),
            public,
            replicated: is_replicated(spec),
            created: self.date(),
            fragments: Vec::new(),
            configurations: Vec::new(),
            broken: None,
            ending: false,
            replaces: None,
        };
        self.state.storage.add_instance(id, instance);
        self.add_fragments(id, &allocation.shares);
        for access in &spec.access {
            let configuration = Configuration {
                instance: id,
                kind: spec.kind.clone(),
                mode: access.mode,
                group,
                root_permissions: root_permissions(public, spec.group.is_some()),
                modifiers: access.modifiers.clone(),
            };
            let id = ConfigurationId(self.state.next_id());
            self.state.storage.add_configuration(id, configuration);
        }
        self.use_instance(session, id);
    }

    /// Adds the fragments of an allocation to an instance. Returns the first one.
    pub(super) fn add_fragments(
        &mut self,
        instance: InstanceId,
        shares: &[Share],
    ) -> Option<FragmentId> {
        let mut first = None;
        for share in shares {
            let id = FragmentId(self.state.next_id());
            let storage = &mut self.state.storage;
            storage.add_fragment(id, instance, share.node, share.granules);
            first.get_or_insert(id);
        }
        first
    }

    /// Registers a session for all configurations of an instance.
    pub(super) fn use_instance(&mut self, session: SessionId, instance: InstanceId) {
        let instance = self.state.storage.instance(instance);
        let configurations = instance.map_or(&[][..], |instance| &instance.configurations);
        if let Some(session) = self.state.sessions.get_mut(session) {
            session.configurations.extend(configurations);
        }
    }
}

/// The failure of a request that a pool has no space for.
pub(super) fn full(pool: &Pool, refusal: AllocationError) -> Failure {
    let bytes = |granules: u64| human::bytes(granules.saturating_mul(pool.granularity.0));
    let sizes = match refusal.wanted_and_found() {
        Some((wanted, free)) => format!(", which is {} and {}", bytes(wanted), bytes(free)),
        None => String::new(),
    };
    let reason = format!("pool `{}`: {refusal} (a granule is {}{sizes})", pool.name, bytes(1));
    Failure::new(Cause::Full, reason)
}

/// Permissions of the root directory: for the owner alone, for a group, whose files stay those of the
/// group, or for all users, as those of `/tmp`.
fn root_permissions(public: bool, for_group: bool) -> u32 {
    match (public, for_group) {
        (true, _) => 0o1777,
        (false, true) => 0o2770,
        (false, false) => 0o700,
    }
}
