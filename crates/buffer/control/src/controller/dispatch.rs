//! Requests: checked, begun, and remembered with what they wait for.

use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

use super::*;
use crate::messages::*;

/// What a request leads to: an answer now, or something to wait for.
pub(super) enum Accepted {
    Answer(Answer),
    Wait(Wait),
}

impl Controller {
    pub(super) fn accept_request(&mut self, envelope: Envelope) {
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
                    self.effects.push(ControllerEffect::Reply {
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
            self.settings.staging_timeout_ms
        } else {
            self.settings.request_timeout_ms
        };
        let (wait, outcome) = match self.begin(caller, request) {
            Ok(Accepted::Answer(answer)) => (None, Some(Ok(answer))),
            Ok(Accepted::Wait(wait)) => (Some(wait), None),
            Err(failure) => (None, Some(Err(failure))),
        };
        if let Some(outcome) = outcome.clone() {
            self.effects.push(ControllerEffect::Reply {
                client,
                number,
                outcome,
            });
        }
        let record = RequestRecord {
            number,
            accepted: self.now,
            deadline: self.now.plus_ms(timeout),
            wait,
            outcome,
        };
        match record.outcome {
            None => self.pending_requests.insert(client),
            Some(_) => self.pending_requests.remove(&client),
        };
        self.state.requests.insert(client, record);
    }

    fn begin(&mut self, caller: Owner, request: Request) -> Result<Accepted, Failure> {
        match request {
            Request::Setup {
                token,
                owner,
                creator,
                setup,
            } => {
                may_be(caller, owner, self.settings.operator)?;
                self.set_up_session(token, Lifetime::Job, owner, creator, setup, false)
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
                self.set_up_session(name, Lifetime::Persistent, owner, creator, setup, public)
            }
            Request::StageIn { token } => self.begin_stage_in(caller, &token),
            Request::StageOut { token } => self.begin_stage_out(caller, &token),
            Request::Activate { token, hosts } => self.activate_session(caller, &token, hosts),
            Request::Run {
                token,
                hosts,
                creator,
            } => {
                self.check_set_up_by(caller, &token, &creator)?;
                self.activate_session(caller, &token, hosts)
            }
            Request::Deactivate { token } => self.deactivate_session(caller, &token),
            Request::Leave { token, creator } => {
                self.check_set_up_by(caller, &token, &creator)?;
                self.deactivate_session(caller, &token)
            }
            Request::Teardown { token, hurry } => {
                self.tear_down_session(caller, &token, hurry, Lifetime::Job)
            }
            Request::End {
                token,
                creator,
                hurry,
            } => {
                // One that is gone already has ended.
                if self.state.session(&token).is_some() {
                    self.check_set_up_by(caller, &token, &creator)?;
                }
                self.tear_down_session(caller, &token, hurry, Lifetime::Job)
            }
            Request::DestroyPersistent { name, hurry } => {
                self.tear_down_session(caller, &name, hurry, Lifetime::Persistent)
            }
            Request::BeginStage { token, what } => {
                self.accept_stage(caller, &token, what, StageState::Queued)
            }
            Request::DeferStage { token, what } => {
                self.accept_stage(caller, &token, what, StageState::Waiting)
            }
            Request::ReleaseStage { stage } => {
                self.check_stage_owner(caller, stage)?;
                self.release_stage(stage)
            }
            Request::LimitStages {
                token,
                space,
                max_concurrent: most,
            } => self.limit_stages(caller, &token, &space, most),
            Request::AwaitStage { stage } => {
                self.check_stage_owner(caller, stage)?;
                Ok(Accepted::Wait(Wait::Staged(vec![stage])))
            }
            Request::CancelStage { stage } => {
                self.check_stage_owner(caller, stage)?;
                self.cancel_stage(stage);
                Ok(Accepted::Wait(Wait::Stopped(vec![stage])))
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
                address,
            } => {
                self.operator(caller)?;
                self.add_node(name, pool, granules, address)
            }
            Request::DrainNode { node, drained } => {
                self.operator(caller)?;
                self.drain(node, drained)
            }
            Request::ForgetNode {
                node,
                allow_data_loss: lost,
            } => {
                self.operator(caller)?;
                self.forget_node(node, lost)
            }
        }
    }

    fn drain(&mut self, node: NodeId, drained: bool) -> Result<Accepted, Failure> {
        let row = self.state.nodes.get_mut(u64::from(node.0));
        let row = row.ok_or_else(|| {
            let reason = format!("there is no storage node {}", node.0);
            Failure::new(Cause::NotFound, reason)
        })?;
        row.drained = drained;
        Ok(Accepted::Answer(Answer::Done))
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
    ) -> Result<Accepted, Failure> {
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
                let number = self.state.next_id();
                self.state.pools.insert(number, pool);
            }
        }
        Ok(Accepted::Answer(Answer::Done))
    }

    fn add_node(
        &mut self,
        name: String,
        pool: String,
        granules: u64,
        address: Option<String>,
    ) -> Result<Accepted, Failure> {
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
        let known = self.state.nodes.get(key);
        let drained = known.is_some_and(|node| node.drained);
        let forgotten = known.and_then(|node| node.forgotten);
        self.state.nodes.insert(
            key,
            NodeRecord {
                name,
                pool,
                granules,
                drained,
                forgotten,
                address,
            },
        );
        Ok(Accepted::Answer(Answer::Node(NodeId(
            u32::try_from(key).unwrap_or(u32::MAX),
        ))))
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
