//! Instances: granules allocated, and the objects made that an instance has.

use forebay_job_script::AccessMode;
use forebay_policy::allocate::{self, Share, Size};
use forebay_policy::pool;
use forebay_units::Bytes;

use super::*;
use crate::messages::*;
use forebay_units::human;

impl Controller {
    /// Chooses the nodes that an instance gets granules of, and says how many; nothing is taken yet.
    pub(super) fn allocate_granules(
        &mut self,
        spec: &InstanceSpec,
    ) -> Result<(Pool, Vec<Share>), Failure> {
        if spec.access.is_empty() {
            return Err(Failure::new(
                Cause::Invalid,
                "an instance needs an access mode",
            ));
        }
        let copied = is_replicated(spec);
        if copied && spec.access.len() > 1 {
            let reason = "a load-balanced instance has no other access mode: it is read-only";
            return Err(Failure::new(Cause::Invalid, reason));
        }
        let pool = self.state.pool(spec.pool.as_deref())?.clone();
        let size = Size::of_instance(spec.capacity, copied, pool.granularity)
            .ok_or_else(|| Failure::new(Cause::Invalid, "the pool has no granularity"))?;
        let request = allocate::AllocationRequest {
            size,
            preference: spec.preference,
            equalize: pool.equalize_fragments,
            max_nodes: Some(self.settings.max_nodes),
        };
        let nodes = self
            .state
            .candidate_nodes(&pool.name, |node| self.node_online(node));
        match allocate::allocate(&nodes, &request) {
            Ok(shares) => Ok((pool, shares)),
            Err(refusal) => {
                self.short_of_space = Some(self.now);
                let size =
                    |granules: u64| human::bytes(granules.saturating_mul(pool.granularity.0));
                let sizes = match refusal.wanted_and_free() {
                    Some((wanted, free)) => {
                        format!(", which is {} and {}", size(wanted), size(free))
                    }
                    None => String::new(),
                };
                let reason = format!(
                    "pool `{}`: {refusal} (a granule is {}{sizes})",
                    pool.name,
                    size(1)
                );
                Err(Failure::new(Cause::Full, reason))
            }
        }
    }

    /// Makes an instance of `session` on the nodes that were chosen.
    #[allow(
        clippy::too_many_arguments,
        reason = "each is a part of what is recorded of the instance"
    )]
    pub(super) fn create_instance(
        &mut self,
        session: SessionId,
        label: String,
        owner: Owner,
        spec: &InstanceSpec,
        pool: Pool,
        shares: Vec<Share>,
        public: bool,
    ) {
        let id = InstanceId(self.state.next_id());
        let granules = shares.iter().map(|share| share.granules);
        let granules = granules.fold(0, u64::saturating_add);
        let fragments: Vec<FragmentId> = shares
            .iter()
            .map(|share| self.add_fragment(id, *share))
            .collect();
        let mut configurations = Vec::new();
        for access in &spec.access {
            let configuration = ConfigurationId(self.state.next_id());
            let namespaces = self.add_namespaces(configuration, access.mode, &fragments);
            let row = Configuration {
                instance: id,
                kind: spec.kind.clone(),
                mode: access.mode,
                group: owner.gid,
                root_permissions: if public { 0o1777 } else { 0o770 },
                modifiers: access.modifiers.clone(),
                namespaces,
            };
            self.state.configurations.insert(configuration.0, row);
            configurations.push(configuration);
        }
        let row = Instance {
            session,
            label,
            pool: pool.name,
            capacity: pool::bytes_in(granules, pool.granularity).unwrap_or(Bytes(u64::MAX)),
            public,
            replicated: is_replicated(spec),
            created: self.now,
            fragments,
            configurations,
            broken: None,
            ending: false,
        };
        self.state.instances.insert(id.0, row);
        if let Some(session) = self.state.sessions.get_mut(session.0) {
            session.instance = Some(id);
        }
        self.register_session(session, id);
    }

    /// The trees of a configuration: one on each fragment, unless every host has one of its own.
    pub(super) fn add_namespaces(
        &mut self,
        configuration: ConfigurationId,
        mode: AccessMode,
        fragments: &[FragmentId],
    ) -> Vec<NameSpaceId> {
        let mut namespaces = Vec::new();
        if mode == AccessMode::Private {
            return namespaces;
        }
        let span = match mode {
            AccessMode::LoadBalanced => 1,
            _ => u32::try_from(fragments.len()).unwrap_or(u32::MAX),
        };
        for fragment in fragments {
            let number = NameSpaceId(self.state.next_id());
            let row = NameSpace {
                configuration,
                fragment: *fragment,
                span,
            };
            self.state.namespaces.insert(number.0, row);
            namespaces.push(number);
        }
        namespaces
    }

    /// A fragment that its node is to make.
    pub(super) fn add_fragment(&mut self, instance: InstanceId, share: Share) -> FragmentId {
        let id = FragmentId(self.state.next_id());
        let (node, granules, state) = (share.node, share.granules, FragmentState::Requested);
        self.state.fragments.insert(
            id.0,
            Fragment {
                instance,
                node,
                granules,
                state,
            },
        );
        id
    }

    /// A session's claims on all configurations of an instance.
    pub(super) fn register_session(&mut self, session: SessionId, instance: InstanceId) {
        let of = self.state.instances.get(instance.0);
        let configurations = of.map(|i| i.configurations.clone()).unwrap_or_default();
        for configuration in configurations {
            let id = RegistrationId(self.state.next_id());
            self.state.registrations.insert(
                id.0,
                Registration {
                    session,
                    configuration,
                    wait: true,
                },
            );
            if let Some(session) = self.state.sessions.get_mut(session.0) {
                session.registrations.push(id);
            }
        }
    }
}

/// Whether an allocation is to be load-balanced: a copy of everything on each of its nodes.
pub(super) fn is_replicated(spec: &InstanceSpec) -> bool {
    spec.access
        .iter()
        .any(|access| access.mode == AccessMode::LoadBalanced)
}
