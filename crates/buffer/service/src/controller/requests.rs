//! Requests: checked, begun, and remembered with what they wait for.

use forebay_model::jobscript::{AccessMode, Capacity, InstanceType, Space};
use forebay_model::units::Bytes;
use forebay_policy::allocate::{self, Share, Size};
use forebay_policy::pool::{self, NodeId};
use forebay_policy::removal::{self, Uses};

use super::state::may_act;
use super::*;
use crate::protocol::*;

/// What a request leads to: an answer now, or something to wait for.
pub(super) enum Begun {
    Answer(Answer),
    Wait(Wait),
}

impl Controller {
    pub(super) fn request(&mut self, envelope: Envelope) {
        let Envelope {
            client,
            number,
            caller,
            request,
        } = envelope;
        if let Some(record) = self.state.requests.get(client) {
            if number < record.number {
                return; // A late copy of a request whose client has gone on.
            }
            if number == record.number {
                if let Some(outcome) = record.outcome.clone() {
                    self.effects.push(Effect::Reply {
                        client,
                        number,
                        outcome,
                    });
                }
                return; // Under way: answered when it ends.
            }
        }
        let staging = matches!(
            request,
            Request::StageIn { .. } | Request::StageOut { .. } | Request::AwaitStage { .. }
        );
        let timeout = if staging {
            self.settings.staging_timeout
        } else {
            self.settings.request_timeout
        };
        let (wait, outcome) = match self.begin(caller, request) {
            Ok(Begun::Answer(answer)) => (None, Some(Ok(answer))),
            Ok(Begun::Wait(wait)) => (Some(wait), None),
            Err(failure) => (None, Some(Err(failure))),
        };
        if let Some(outcome) = outcome.clone() {
            self.effects.push(Effect::Reply {
                client,
                number,
                outcome,
            });
        }
        let record = RequestRecord {
            number,
            accepted: self.now,
            deadline: self.now.plus(timeout),
            wait,
            outcome,
        };
        self.state.requests.put(client, record);
    }

    fn begin(&mut self, caller: Owner, request: Request) -> Result<Begun, Failure> {
        match request {
            Request::Setup {
                token,
                owner,
                creator,
                setup,
            } => {
                may_be(caller, owner, self.settings.operator)?;
                self.setup(token, Lifetime::Job, owner, creator, setup, false)
            }
            Request::CreatePersistent {
                name,
                owner,
                spec,
                public,
            } => {
                may_be(caller, owner, self.settings.operator)?;
                let creator = "persistent".to_owned();
                let setup = Setup {
                    instance: Some(spec),
                    ..Setup::default()
                };
                self.setup(name, Lifetime::Persistent, owner, creator, setup, public)
            }
            Request::StageIn { token } => self.stage_in(caller, &token),
            Request::StageOut { token } => self.stage_out(caller, &token),
            Request::Activate { token, hosts } => self.activate(caller, &token, hosts),
            Request::Deactivate { token } => self.deactivate(caller, &token),
            Request::Teardown { token, hurry } => {
                self.teardown(caller, &token, hurry, Lifetime::Job)
            }
            Request::DestroyPersistent { name, hurry } => {
                self.teardown(caller, &name, hurry, Lifetime::Persistent)
            }
            Request::Stage { token, what } => self.stage_now(caller, &token, what),
            Request::AwaitStage { stage } => {
                self.own_stage(caller, stage)?;
                Ok(Begun::Wait(Wait::Staged(vec![stage])))
            }
            Request::CancelStage { stage } => {
                self.own_stage(caller, stage)?;
                self.cancel_stage(stage);
                Ok(Begun::Wait(Wait::Stopped(vec![stage])))
            }
            Request::AddPool {
                name,
                granularity,
                equalize_fragments,
            } => {
                self.operator(caller)?;
                self.add_pool(name, granularity, equalize_fragments)
            }
            Request::AddNode {
                name,
                pool,
                granules,
            } => {
                self.operator(caller)?;
                self.add_node(name, pool, granules)
            }
            Request::Drain { node, drained } => {
                self.operator(caller)?;
                let found = self.state.nodes.get_mut(u64::from(node.0));
                let found = found.ok_or_else(|| {
                    Failure::new(
                        Cause::NotFound,
                        format!("there is no storage node {}", node.0),
                    )
                })?;
                found.drained = drained;
                Ok(Begun::Answer(Answer::Done))
            }
        }
    }

    fn operator(&self, caller: Owner) -> Result<(), Failure> {
        if caller.uid == 0 || caller.uid == self.settings.operator {
            return Ok(());
        }
        Err(Failure::new(
            Cause::Denied,
            "only an operator may change pools and nodes",
        ))
    }

    fn add_pool(
        &mut self,
        name: String,
        granularity: Bytes,
        equalize_fragments: bool,
    ) -> Result<Begun, Failure> {
        if granularity.0 == 0 {
            return Err(Failure::new(
                Cause::Invalid,
                "a granule must have at least one byte",
            ));
        }
        let pool = Pool {
            name,
            granularity,
            equalize_fragments,
        };
        let known = self
            .state
            .pools
            .iter()
            .find(|(_, known)| known.name == pool.name);
        match known.map(|(_, known)| known.clone()) {
            Some(known) if known == pool => {}
            Some(_) => {
                let reason = format!("there is another pool `{}` already", pool.name);
                return Err(Failure::new(Cause::Exists, reason));
            }
            None => {
                let number = self.state.number();
                self.state.pools.put(number, pool);
            }
        }
        Ok(Begun::Answer(Answer::Done))
    }

    fn add_node(&mut self, name: String, pool: String, granules: u64) -> Result<Begun, Failure> {
        self.state.pool(Some(&pool))?;
        let known = self.state.nodes.iter().find(|(_, node)| node.name == name);
        let known = known.map(|(key, node)| (key, node.pool.clone()));
        let key = match known {
            Some((key, old)) if old == pool => key,
            Some((_, old)) => {
                let reason = format!("node `{name}` is in pool `{old}`");
                return Err(Failure::new(Cause::Exists, reason));
            }
            None => self.state.nodes.iter().last().map_or(0, |(key, _)| key + 1),
        };
        let drained = self.state.nodes.get(key).is_some_and(|node| node.drained);
        self.state.nodes.put(
            key,
            StorageNode {
                name,
                pool,
                granules,
                drained,
            },
        );
        Ok(Begun::Answer(Answer::Node(NodeId(
            u32::try_from(key).unwrap_or(u32::MAX),
        ))))
    }

    fn setup(
        &mut self,
        token: String,
        lifetime: Lifetime,
        owner: Owner,
        creator: String,
        setup: Setup,
        public: bool,
    ) -> Result<Begun, Failure> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if token.is_empty()
            || token.len() > 64
            || token.starts_with('.')
            || !token.chars().all(plain)
        {
            let reason = "a session's name has 1 to 64 letters, digits and `_-.` and does not begin with a dot";
            return Err(Failure::new(Cause::Invalid, reason));
        }
        if let Some((id, session)) = self.state.session(&token) {
            may_act(owner, session.owner, &format!("session `{token}`"))?;
            if session.ending {
                let reason = format!("`{token}` is still being taken down; try again");
                return Err(Failure::new(Cause::Busy, reason));
            }
            if session.setup != setup || session.lifetime != lifetime {
                let reason = format!("there is another session `{token}` already; end it first");
                return Err(Failure::new(Cause::Exists, reason));
            }
            return Ok(Begun::Wait(Wait::Ready(id)));
        }
        if self.state.sessions.len() >= self.settings.max_sessions {
            let reason = format!(
                "there are {} sessions, the most there can be",
                self.settings.max_sessions
            );
            return Err(Failure::new(Cause::Full, reason));
        }
        let persistents = self.persistents(owner, &setup.persistents)?;
        self.check_stages(&setup)?;
        // From here on nothing fails: a refused request leaves nothing behind.
        let allocated = match &setup.instance {
            None => None,
            Some(spec) => Some(self.allocate(spec)?),
        };
        let id = SessionId(self.state.number());
        let session = Session {
            token: token.clone(),
            lifetime,
            owner,
            creator,
            created: self.now,
            setup: setup.clone(),
            instance: None,
            registrations: Vec::new(),
            activations: Vec::new(),
            stages: Vec::new(),
            hosts: Vec::new(),
            written: false,
            ending: false,
        };
        self.state.sessions.put(id.0, session);
        if let (Some(spec), Some((pool, shares))) = (&setup.instance, allocated) {
            self.create_instance(id, token, owner, spec, pool, shares, public);
        }
        for instance in persistents {
            self.register(id, instance);
        }
        for what in setup.stages {
            if let Some(instance) = self.stage_instance(id, what.space()) {
                self.add_stage(id, instance, what, StageState::Waiting);
            }
        }
        Ok(Begun::Wait(Wait::Ready(id)))
    }

    /// The persistent instances of these names, if `owner` may use them.
    fn persistents(&self, owner: Owner, names: &[String]) -> Result<Vec<InstanceId>, Failure> {
        let mut found = Vec::new();
        for name in names {
            let session = self
                .state
                .session(name)
                .filter(|(_, s)| s.lifetime == Lifetime::Persistent);
            let session = session.and_then(|(_, s)| Some((s, s.instance?)));
            let instance =
                session.and_then(|(s, id)| Some((s, id, self.state.instances.get(id.0)?)));
            let Some((session, id, instance)) = instance else {
                let reason = format!("there is no persistent instance `{name}`; create it first");
                return Err(Failure::new(Cause::NotFound, reason));
            };
            if session.ending {
                let reason = format!("the persistent instance `{name}` is being destroyed");
                return Err(Failure::new(Cause::Busy, reason));
            }
            let group = owner.gid == session.owner.gid;
            if !instance.public && !group {
                may_act(
                    owner,
                    session.owner,
                    &format!("the persistent instance `{name}`"),
                )?;
            }
            found.push(id);
        }
        Ok(found)
    }

    fn check_stages(&self, setup: &Setup) -> Result<(), Failure> {
        if setup.stages.len() > self.settings.max_stages {
            let reason = format!(
                "more than {} stages; stage directories",
                self.settings.max_stages
            );
            return Err(Failure::new(Cause::Invalid, reason));
        }
        let striped = setup.instance.as_ref().is_some_and(|spec| {
            spec.kind == InstanceType::Scratch
                && spec.access.iter().any(|a| a.mode == AccessMode::Striped)
        });
        for stage in &setup.stages {
            let known = match stage.space() {
                Some(Space::Job) => striped,
                Some(Space::Persistent(name)) => setup.persistents.contains(name),
                None => striped || !setup.persistents.is_empty(),
            };
            if !known {
                let reason = format!(
                    "line {}: the stage names an instance that the job does not have",
                    stage.line
                );
                return Err(Failure::new(Cause::Invalid, reason));
            }
        }
        Ok(())
    }

    fn allocate(&mut self, spec: &InstanceSpec) -> Result<(Pool, Vec<Share>), Failure> {
        if spec.access.is_empty() {
            return Err(Failure::new(
                Cause::Invalid,
                "an instance needs an access mode",
            ));
        }
        let pool = self.state.pool(spec.pool.as_deref())?.clone();
        let size = match spec.capacity {
            Capacity::Bytes(size) => pool::granules(size, pool.granularity).map(Size::Granules),
            Capacity::Nodes(count) => Some(Size::WholeNodes(count)),
        };
        let size =
            size.ok_or_else(|| Failure::new(Cause::Invalid, "the pool has no granularity"))?;
        let request = allocate::Request {
            size,
            preference: spec.preference,
            equalize: pool.equalize_fragments,
            max_nodes: None,
        };
        let nodes = self
            .state
            .candidates(&pool.name, |node| self.node_online(node));
        match allocate::allocate(&nodes, &request) {
            Ok(shares) => Ok((pool, shares)),
            Err(refusal) => {
                self.short_of_space = Some(self.now);
                let reason = format!(
                    "pool `{}`: {refusal} (a granule is {} bytes)",
                    pool.name, pool.granularity.0
                );
                Err(Failure::new(Cause::Full, reason))
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn create_instance(
        &mut self,
        session: SessionId,
        label: String,
        owner: Owner,
        spec: &InstanceSpec,
        pool: Pool,
        shares: Vec<Share>,
        public: bool,
    ) {
        let id = InstanceId(self.state.number());
        let granules = shares
            .iter()
            .fold(0u64, |sum, share| sum.saturating_add(share.granules));
        let fragments: Vec<FragmentId> = shares
            .iter()
            .map(|share| self.add_fragment(id, *share))
            .collect();
        let mut configurations = Vec::new();
        for access in &spec.access {
            let configuration = ConfigurationId(self.state.number());
            let mut namespaces = Vec::new();
            if access.mode != AccessMode::Private {
                for fragment in &fragments {
                    let number = NameSpaceId(self.state.number());
                    let span = u32::try_from(fragments.len()).unwrap_or(u32::MAX);
                    self.state.namespaces.put(
                        number.0,
                        NameSpace {
                            configuration,
                            fragment: *fragment,
                            span,
                        },
                    );
                    namespaces.push(number);
                }
            }
            let row = Configuration {
                instance: id,
                kind: spec.kind.clone(),
                mode: access.mode,
                group: owner.gid,
                root_permissions: if public { 0o1777 } else { 0o770 },
                modifiers: access.modifiers.clone(),
                namespaces,
            };
            self.state.configurations.put(configuration.0, row);
            configurations.push(configuration);
        }
        let row = Instance {
            session,
            label,
            pool: pool.name,
            capacity: pool::bytes(granules, pool.granularity).unwrap_or(Bytes(u64::MAX)),
            public,
            created: self.now,
            fragments,
            configurations,
            broken: None,
            ending: false,
        };
        self.state.instances.put(id.0, row);
        if let Some(session) = self.state.sessions.get_mut(session.0) {
            session.instance = Some(id);
        }
        self.register(session, id);
    }

    pub(super) fn add_fragment(&mut self, instance: InstanceId, share: Share) -> FragmentId {
        let id = FragmentId(self.state.number());
        let (node, granules, state) = (share.node, share.granules, FragmentState::Wanted);
        self.state.fragments.put(
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

    fn register(&mut self, session: SessionId, instance: InstanceId) {
        let of = self.state.instances.get(instance.0);
        let configurations = of.map(|i| i.configurations.clone()).unwrap_or_default();
        for configuration in configurations {
            let id = RegistrationId(self.state.number());
            self.state.registrations.put(
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

    fn activate(
        &mut self,
        caller: Owner,
        token: &str,
        hosts: Vec<String>,
    ) -> Result<Begun, Failure> {
        let (id, session) = self.state.own_session(token, caller)?;
        let session = session.clone();
        if hosts.is_empty() {
            return Err(Failure::new(Cause::Invalid, "no host is named to mount on"));
        }
        self.usable(&session)?;
        let running = |stage: &StageId| {
            self.state
                .stages
                .get(stage.0)
                .is_some_and(StageRecord::in_progress)
        };
        if session.stages.iter().any(running) {
            let reason = format!("`{token}` is still being staged; wait for it first");
            return Err(Failure::new(Cause::Busy, reason));
        }
        for activation in &session.activations {
            let Some(row) = self.state.activations.get_mut(activation.0) else {
                continue;
            };
            if row.ending.is_some() {
                let reason = format!("`{token}` is still being unmounted; try again");
                return Err(Failure::new(Cause::Busy, reason));
            }
            for host in &hosts {
                let state = row.hosts.entry(host.clone()).or_insert(MountState::Wanted);
                if matches!(state, MountState::Failed(_)) {
                    *state = MountState::Wanted;
                }
            }
        }
        let mut activations = session.activations.clone();
        if activations.is_empty() {
            for registration in &session.registrations {
                let claim = self.state.registrations.get(registration.0).cloned();
                let Some(Registration { configuration, .. }) = claim else {
                    continue;
                };
                let Some(mount) = self.mount_path(&session, configuration) else {
                    continue;
                };
                let activation = ActivationId(self.state.number());
                let wanted = hosts
                    .iter()
                    .map(|host| (host.clone(), MountState::Wanted))
                    .collect();
                let row = Activation {
                    session: id,
                    configuration,
                    mount,
                    hosts: wanted,
                    ending: None,
                };
                self.state.activations.put(activation.0, row);
                activations.push(activation);
            }
        }
        // What the job writes from now on is not what was staged out before.
        for stage in &session.stages {
            let out = self.state.stages.get(stage.0).is_some_and(|s| {
                s.what.direction == forebay_model::jobscript::Direction::Out
                    && s.state == StageState::Done
            });
            if let (true, Some(stage)) = (out, self.state.stages.get_mut(stage.0)) {
                stage.state = StageState::Waiting;
            }
        }
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.activations = activations.clone();
            session.written = true;
            session.hosts = hosts;
        }
        Ok(Begun::Wait(Wait::Mounted(activations)))
    }

    /// Refuses a session that is ending or whose instances cannot be used.
    pub(super) fn usable(&self, session: &Session) -> Result<(), Failure> {
        if session.ending {
            let reason = format!("`{}` is being taken down", session.token);
            return Err(Failure::new(Cause::Busy, reason));
        }
        for instance in self.instances_of(session) {
            if let Some(reason) = self
                .state
                .instances
                .get(instance.0)
                .and_then(|i| i.broken.clone())
            {
                return Err(Failure::new(Cause::Failed, reason));
            }
            if !self.state.is_ready(instance) {
                let reason = format!("`{}` is not set up yet; wait for it first", session.token);
                return Err(Failure::new(Cause::Busy, reason));
            }
        }
        Ok(())
    }

    /// The instances on which a session has a claim, each once.
    pub(super) fn instances_of(&self, session: &Session) -> Vec<InstanceId> {
        let claims = session
            .registrations
            .iter()
            .filter_map(|id| self.state.registrations.get(id.0));
        let configurations =
            claims.filter_map(|c| self.state.configurations.get(c.configuration.0));
        let mut instances: Vec<InstanceId> = configurations.map(|c| c.instance).collect();
        instances.sort();
        instances.dedup();
        instances
    }

    /// Where a session's hosts mount a configuration; ends with `/`.
    pub(super) fn mount_path(
        &self,
        session: &Session,
        configuration: ConfigurationId,
    ) -> Option<String> {
        let row = self.state.configurations.get(configuration.0)?;
        let instance = self.state.instances.get(row.instance.0)?;
        let persistent =
            (session.instance != Some(row.instance)).then_some(instance.label.as_str());
        let short = match (&row.kind, row.mode) {
            (InstanceType::Cache { .. }, AccessMode::LoadBalanced) => "ldbal_cache",
            (InstanceType::Cache { .. }, _) => "striped_cache",
            (_, AccessMode::Private) => "private",
            (_, _) => "ss",
        };
        let (root, token) = (&self.settings.mount_root, &session.token);
        Some(match persistent {
            None => format!("{root}/{token}/{short}/"),
            Some(name) => format!("{root}/{token}/{name}_{short}/"),
        })
    }

    fn deactivate(&mut self, caller: Owner, token: &str) -> Result<Begun, Failure> {
        let (id, session) = self.state.own_session(token, caller)?;
        let activations = session.activations.clone();
        self.end_activations(id);
        Ok(Begun::Wait(Wait::Unmounted(activations)))
    }

    pub(super) fn end_activations(&mut self, session: SessionId) {
        let of = self.state.sessions.get(session.0);
        for activation in of.map(|s| s.activations.clone()).unwrap_or_default() {
            let mounted = self
                .state
                .activations
                .get(activation.0)
                .is_some_and(|a| a.ending.is_none());
            if let (true, Some(row)) = (mounted, self.state.activations.get_mut(activation.0)) {
                row.ending = Some(self.now);
            }
        }
    }

    fn teardown(
        &mut self,
        caller: Owner,
        token: &str,
        hurry: bool,
        lifetime: Lifetime,
    ) -> Result<Begun, Failure> {
        let Some((id, session)) = self
            .state
            .session(token)
            .filter(|(_, s)| s.lifetime == lifetime)
        else {
            if lifetime == Lifetime::Job {
                return Ok(Begun::Answer(Answer::Done)); // Asked again after it was done.
            }
            let reason = format!("there is no persistent instance `{token}`");
            return Err(Failure::new(Cause::NotFound, reason));
        };
        may_act(caller, session.owner, &format!("`{token}`"))?;
        if session.ending {
            return Ok(Begun::Wait(Wait::Gone(id)));
        }
        let outs: Vec<&StageRecord> = session
            .stages
            .iter()
            .filter_map(|stage| self.state.stages.get(stage.0))
            .filter(|s| s.what.direction == forebay_model::jobscript::Direction::Out)
            .filter(|s| !matches!(s.state, StageState::Done | StageState::Cancelled))
            .collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let failed = outs
            .iter()
            .filter(|s| matches!(s.state, StageState::Failed(_)))
            .count();
        let others = session
            .instance
            .map(|i| self.state.other_users(i).len())
            .unwrap_or(0);
        let uses = Uses {
            written: session.written,
            unfinished_outs: count(outs.len()),
            failed_outs: count(failed),
            other_sessions: count(others),
            mounts: count(session.activations.len()),
        };
        removal::may_remove(&uses, hurry)
            .map_err(|keep| Failure::new(Cause::Busy, format!("`{token}` is kept: {keep}")))?;
        let stages = session.stages.clone();
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.ending = true;
        }
        self.end_activations(id);
        for stage in stages {
            self.cancel_stage(stage);
        }
        Ok(Begun::Wait(Wait::Gone(id)))
    }
}

/// Refuses to act in another user's name, except for operators.
fn may_be(caller: Owner, owner: Owner, operator: u32) -> Result<(), Failure> {
    if caller == owner || caller.uid == 0 || (operator != 0 && caller.uid == operator) {
        return Ok(());
    }
    let reason = format!(
        "user {} may not ask in the name of user {}, group {}",
        caller.uid, owner.uid, owner.gid
    );
    Err(Failure::new(Cause::Denied, reason))
}
