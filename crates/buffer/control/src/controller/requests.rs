//! Requests: checked, begun, and remembered with what they wait for.

use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

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
        match record.outcome {
            None => self.waiting.insert(client),
            Some(_) => self.waiting.remove(&client),
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
            Request::Run {
                token,
                hosts,
                creator,
            } => {
                self.set_up_by(caller, &token, &creator)?;
                self.activate(caller, &token, hosts)
            }
            Request::Deactivate { token } => self.deactivate(caller, &token),
            Request::Leave { token, creator } => {
                self.set_up_by(caller, &token, &creator)?;
                self.deactivate(caller, &token)
            }
            Request::Teardown { token, hurry } => {
                self.teardown(caller, &token, hurry, Lifetime::Job)
            }
            Request::End {
                token,
                creator,
                hurry,
            } => {
                // One that is gone already has ended.
                if self.state.session(&token).is_some() {
                    self.set_up_by(caller, &token, &creator)?;
                }
                self.teardown(caller, &token, hurry, Lifetime::Job)
            }
            Request::DestroyPersistent { name, hurry } => {
                self.teardown(caller, &name, hurry, Lifetime::Persistent)
            }
            Request::Stage { token, what } => {
                self.take_stage(caller, &token, what, StageState::Queued)
            }
            Request::Defer { token, what } => {
                self.take_stage(caller, &token, what, StageState::Waiting)
            }
            Request::Release { stage } => {
                self.own_stage(caller, stage)?;
                self.release_stage(stage)
            }
            Request::LimitStages { token, space, most } => {
                self.limit_stages(caller, &token, &space, most)
            }
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
                address,
            } => {
                self.operator(caller)?;
                self.add_node(name, pool, granules, address)
            }
            Request::Drain { node, drained } => {
                self.operator(caller)?;
                self.drain(node, drained)
            }
            Request::Forget { node, lost } => {
                self.operator(caller)?;
                self.forget_node(node, lost)
            }
        }
    }

    fn drain(&mut self, node: NodeId, drained: bool) -> Result<Begun, Failure> {
        let row = self.state.nodes.get_mut(u64::from(node.0));
        let row = row.ok_or_else(|| {
            let reason = format!("there is no storage node {}", node.0);
            Failure::new(Cause::NotFound, reason)
        })?;
        row.drained = drained;
        Ok(Begun::Answer(Answer::Done))
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

    fn add_node(
        &mut self,
        name: String,
        pool: String,
        granules: u64,
        address: Option<String>,
    ) -> Result<Begun, Failure> {
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
        self.state.nodes.put(
            key,
            StorageNode {
                name,
                pool,
                granules,
                drained,
                forgotten,
                address,
            },
        );
        Ok(Begun::Answer(Answer::Node(NodeId(
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
