//! Requests: recognised if repeated, authorized, carried out, and recorded with what they wait for.

use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

use super::limits;
use super::machine::{Controller, ControllerEffect};
use super::objects::{NodeRecord, Pool, RequestProgress, RequestRecord, Wait};
use super::request::{Answer, Failure, Lifetime, Request, RequestEnvelope, refuse};
use crate::messages::{Owner, PoolId};

/// Result of an accepted request: an answer now, or something to wait for.
pub(super) enum Accepted {
    Answer(Answer),
    Wait(Wait),
}

impl Controller {
    pub(super) fn accept_request(&mut self, envelope: RequestEnvelope) {
        let RequestEnvelope { id, caller, request } = envelope;
        if let Some(record) = self.state.requests.get(id) {
            if let RequestProgress::Answered(outcome) = &record.progress {
                let reply = ControllerEffect::Reply(id, outcome.clone());
                self.effects.push(reply);
            }
            return; // A pending request is answered when its wait is over.
        }
        let uid = Some(caller.uid);
        self.state.requests.forget_excess(uid, &self.settings);
        let timeout_ms = match request.is_for_staging() {
            true => self.settings.staging_timeout_ms,
            false => self.settings.request_timeout_ms,
        };
        let caller = self.with_operator_rights(caller);
        let allowed = self.check_waiting(caller).and_then(|()| limits::check_text(&request));
        let progress = match allowed.and_then(|()| self.dispatch(caller, request)) {
            Ok(Accepted::Wait(wait)) => RequestProgress::Pending(wait),
            Ok(Accepted::Answer(answer)) => RequestProgress::Answered(Ok(answer)),
            Err(failure) => RequestProgress::Answered(Err(failure)),
        };
        if let RequestProgress::Answered(outcome) = &progress {
            let reply = ControllerEffect::Reply(id, outcome.clone());
            self.effects.push(reply);
        }
        if let RequestProgress::Pending(wait) = &progress {
            self.waits.insert(&self.state, id, wait);
        }
        let deadline = self.now.plus_ms(match &progress {
            RequestProgress::Pending(_) => timeout_ms,
            RequestProgress::Answered(_) => self.settings.reply_retention_ms,
        });
        let record = RequestRecord { accepted: self.now, deadline, uid, progress };
        self.state.requests.insert(id, record);
    }

    /// Refuses a request of a user with many that wait.
    fn check_waiting(&self, caller: Owner) -> Result<(), Failure> {
        let max = self.settings.max_user_waiting_requests;
        if caller.uid != 0 && self.state.requests.waiting_of(caller.uid) >= max {
            refuse!(Busy, "limit reached: {max} requests of user {} wait", caller.uid);
        }
        Ok(())
    }

    /// Carries a request out. A refused request changes nothing.
    fn dispatch(&mut self, caller: Owner, request: Request) -> Result<Accepted, Failure> {
        self.looks_at_all |= request.is_for_operators();
        match request {
            Request::Setup { token, owner, creator, setup } => {
                check_may_request_for(caller, owner)?;
                self.set_up_session(token, Lifetime::Job, owner, creator, setup, false)
            }
            Request::CreatePersistent { name, owner, spec, public } => {
                check_may_request_for(caller, owner)?;
                self.create_persistent(caller, name, owner, spec, public)
            }
            Request::StageIn { token } => self.begin_stage_in(caller, &token),
            Request::StageOut { token } => self.begin_stage_out(caller, &token),
            Request::Activate { token, hosts, creator } => {
                self.check_set_up_by(caller, &token, creator.as_deref())?;
                self.activate_session(caller, &token, hosts)
            }
            Request::Deactivate { token, creator } => {
                self.check_set_up_by(caller, &token, creator.as_deref())?;
                self.deactivate_session(caller, &token)
            }
            Request::Teardown { token, creator, hurry } => {
                // A session that does not exist was torn down before.
                if self.state.sessions.by_token(&token).is_some() {
                    self.check_set_up_by(caller, &token, creator.as_deref())?;
                }
                self.tear_down_session(caller, &token, hurry, Lifetime::Job)
            }
            Request::DestroyPersistent { name, hurry } => {
                self.tear_down_session(caller, &name, hurry, Lifetime::Persistent)
            }
            Request::ExtendPersistent { name, lifetime_ms } => {
                self.extend_persistent(caller, &name, lifetime_ms)
            }
            Request::BeginStage { token, what } => self.accept_stage(caller, &token, what, false),
            Request::DeferStage { token, what } => self.accept_stage(caller, &token, what, true),
            Request::ReleaseStage { stage } => self.release_stage(caller, stage),
            Request::LimitStages { token, instance, max_concurrent } => {
                self.limit_stages(caller, &token, &instance, max_concurrent)
            }
            Request::AwaitStage { stage } => {
                self.check_stage_owner(caller, stage)?;
                Ok(Accepted::Wait(Wait::Staged(vec![stage])))
            }
            Request::CancelStage { stage } => {
                self.check_stage_owner(caller, stage)?;
                self.state.stages.cancel(stage);
                Ok(Accepted::Wait(Wait::Stopped(vec![stage])))
            }
            Request::AddPool { name, granularity, equalize_fragments } => {
                check_operator(caller)?;
                let pool = Pool { name, granularity, equalize_fragments };
                self.add_pool(pool)
            }
            Request::AddNode { name, pool, granules, address } => {
                check_operator(caller)?;
                self.add_or_change_node(name, pool, granules, address)
            }
            Request::DrainNode { node, drained, evacuate } => {
                check_operator(caller)?;
                self.drain_node(node, drained, evacuate)
            }
            Request::ForgetNode { node, allow_data_loss } => {
                check_operator(caller)?;
                self.forget_node(node, allow_data_loss)
            }
            Request::SetQuota { subject, quota } => {
                check_operator(caller)?;
                self.set_quota(subject, quota)
            }
            // The storage nodes check the administrator, too; this is for the record.
            Request::EvictSessions { sessions: _ } => {
                check_operator(caller)?;
                Ok(Accepted::Answer(Answer::Done))
            }
            Request::AcceptRestored => self.accept_restored(caller),
            Request::DiscardUnknown { node } => self.discard_unknown(caller, node),
        }
    }

    /// The caller of a request; the operator has the rights of root.
    pub(super) fn with_operator_rights(&self, caller: Owner) -> Owner {
        match caller.uid == self.settings.operator {
            true => Owner { uid: 0, ..caller },
            false => caller,
        }
    }

    fn add_pool(&mut self, pool: Pool) -> Result<Accepted, Failure> {
        if pool.granularity == Bytes(0) {
            refuse!(Invalid, "a granule must have at least one byte");
        }
        let mut pools = self.state.storage.pools();
        match pools.find(|known| known.name == pool.name) {
            // The request was repeated under another key.
            Some(known) if *known == pool => {}
            Some(_) => {
                refuse!(Exists, "there is already another pool `{}`", pool.name);
            }
            None => {
                drop(pools);
                let id = PoolId(self.state.next_id());
                self.state.storage.add_pool(id, pool);
            }
        }
        Ok(Accepted::Answer(Answer::Done))
    }

    fn add_or_change_node(
        &mut self,
        name: String,
        pool: String,
        granules: u64,
        address: Option<String>,
    ) -> Result<Accepted, Failure> {
        let storage = &mut self.state.storage;
        storage.pool(Some(&pool))?;
        let known = storage.nodes().find(|(_, node)| node.name == name);
        let known = known.map(|(id, node)| (id, node.pool.clone()));
        let id = match known {
            Some((id, old)) if old == pool => {
                if let Some(node) = storage.node_mut(id) {
                    node.granules = granules;
                    node.address = address;
                }
                id
            }
            Some((_, old)) => {
                refuse!(Exists, "node `{name}` is in pool `{old}`");
            }
            None => storage.add_node(NodeRecord {
                name,
                pool,
                granules,
                drained: false,
                evacuates: false,
                forgotten: None,
                address,
                disk: None,
                discards_unknown: false,
            }),
        };
        Ok(Accepted::Answer(Answer::Node(id)))
    }

    fn drain_node(
        &mut self,
        id: NodeId,
        drained: bool,
        evacuate: bool,
    ) -> Result<Accepted, Failure> {
        self.state.storage.existing_node(id)?;
        if let Some(node) = self.state.storage.node_mut(id) {
            node.drained = drained;
            node.evacuates = drained && evacuate;
        }
        self.retry_evacuations(id);
        Ok(Accepted::Answer(Answer::Done))
    }
}

/// Refuses a request that only operators may make.
pub(super) fn check_operator(caller: Owner) -> Result<(), Failure> {
    if caller.uid == 0 {
        return Ok(());
    }
    refuse!(
        Denied,
        "permission denied: only an operator may change pools, nodes and quotas, and \
         end clients' sessions"
    )
}

/// Refuses a request in the name of another user, except of operators.
fn check_may_request_for(caller: Owner, owner: Owner) -> Result<(), Failure> {
    if caller == owner || caller.uid == 0 {
        return Ok(());
    }
    refuse!(
        Denied,
        "permission denied: user {} may not make requests for user {}, group {}",
        caller.uid,
        owner.uid,
        owner.gid
    )
}
