//! The controller's thread: what comes in steps the state machine, what it decides goes out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use forebay_net::stream::Stream;

use super::{ConnId, Event};
use crate::activity::HostActivity;
use crate::activity::Status;
use crate::controller_client::RequestIds;
use crate::database::Database;
use crate::embedded::now;
use crate::hosts::DaemonError;
use crate::hosts::config::{AllowedSources, PoolConfig};
use crate::hosts::messages::{FromController, Query, QueryReply, ToController};
use crate::hosts::server::hang_up;
use forebay_control::controller::{
    Answer, Cause, Controller, ControllerEffect, ControllerInput, Failure, Outcome, Request,
    RequestEnvelope, RequestId,
};
use forebay_control::messages::{Owner, Peer};

/// Time between ticks.
const TICK: Duration = Duration::from_secs(1);
/// Messages that wait to be sent on a connection; one that lets more pile up is closed.
pub(super) const OUTBOX: usize = 4096;
/// The same for those who only ask: answers to all requests under way, and as many to queries.
pub(super) const CLIENT_OUTBOX: usize = 2 * MAX_ASKED;
/// Requests that one connection may have under way.
const MAX_ASKED: usize = 256;
/// Answers to queries that wait to be sent on one connection: each may be long.
const MAX_TOLD: usize = 8;

pub(super) struct Connection {
    pub(super) stream: Arc<Stream>,
    /// The address it has come from, on TCP.
    pub(super) from: Option<IpAddr>,
    pub(super) outbox: SyncSender<FromController>,
    /// The storage node or agent at the other end.
    pub(super) peer: Option<Peer>,
    /// For whom it asks.
    pub(super) caller: Owner,
    /// Requests under way.
    pub(super) asked: usize,
    /// Answers to queries that are not sent yet.
    pub(super) told: Arc<AtomicUsize>,
}

/// The controller's thread.
pub(super) struct Server {
    pub(super) controller: Controller,
    records: Database,
    pub(super) pool: String,
    /// From where each storage node may say that it is that node.
    pub(super) froms: BTreeMap<String, AllowedSources>,
    pub(super) connections: BTreeMap<ConnId, Connection>,
    pub(super) peers: BTreeMap<Peer, ConnId>,
    /// What those that are connected have done.
    activity: BTreeMap<Peer, HostActivity>,
    /// Who waits for the answer to a client's request.
    asked: BTreeMap<RequestId, ConnId>,
    pub(super) next: u64,
    _lock: std::fs::File,
}

impl Server {
    /// A controller from its records, without connections. `pool` is what storage nodes know it
    /// by, `froms` from where they may come; `lock` is held as long as it lives.
    pub(super) fn new(
        controller: Controller,
        records: Database,
        pool: String,
        froms: BTreeMap<String, AllowedSources>,
        lock: std::fs::File,
    ) -> Server {
        Server {
            controller,
            records,
            pool,
            froms,
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            activity: BTreeMap::new(),
            asked: BTreeMap::new(),
            next: 0,
            _lock: lock,
        }
    }

    /// Runs until it is told to stop or cannot go on.
    pub(super) fn run(mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let mut ticked = Instant::now();
        let outcome = loop {
            let event = inbox.recv_timeout(TICK.saturating_sub(ticked.elapsed()));
            let done = match event {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break Ok(()),
                Ok(event) => self.event(event),
                Err(RecvTimeoutError::Timeout) => Ok(()),
            };
            let ticks = ticked.elapsed() >= TICK;
            let done = done.and_then(|()| match ticks {
                true => self.step(ControllerInput::Tick),
                false => Ok(()),
            });
            if let Err(reason) = done {
                tracing::error!(reason, "the controller stops");
                break Err(reason);
            }
            if ticks {
                ticked = Instant::now();
            }
        };
        for connection in self.connections.values() {
            hang_up(&connection.stream);
        }
        outcome
    }

    fn event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Came(stream, caller, entry) => {
                let decision = self.admit(stream, &caller);
                // Who has gone meanwhile is forgotten when its thread says so, or here.
                if let Err(unsent) = entry.send(decision)
                    && let Ok(admitted) = unsent.0
                {
                    self.forget(admitted.id);
                }
                Ok(())
            }
            Event::Said(id, message) => self.said(id, message),
            Event::Gone(id) => {
                self.forget(id);
                Ok(())
            }
            Event::Status(answer) => {
                // Who asked may have gone.
                let _ = answer.try_send(self.status());
                Ok(())
            }
            Event::Stop => Ok(()),
        }
    }

    pub(super) fn forget(&mut self, id: ConnId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        hang_up(&connection.stream);
        if let Some(peer) = &connection.peer
            && self.peers.get(peer) == Some(&id)
        {
            tracing::warn!(?peer, "disconnected");
            self.peers.remove(peer);
            self.activity.remove(peer);
        }
        if connection.asked > 0 {
            self.asked.retain(|_, asker| *asker != id);
        }
    }

    fn said(&mut self, id: ConnId, message: ToController) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        match message {
            ToController::Report(report) if connection.peer.as_ref() == Some(&report.sender()) => {
                self.step(ControllerInput::Report(report))
            }
            ToController::Activity(activity) if connection.peer.is_some() => {
                let peer = connection.peer.clone();
                self.activity.extend(peer.map(|peer| (peer, *activity)));
                Ok(())
            }
            ToController::Request(request_id, request) => {
                if connection.asked >= MAX_ASKED {
                    let reason = format!("{MAX_ASKED} requests are under way; wait for one");
                    let busy = Err(Failure::new(Cause::Busy, reason));
                    self.tell(id, FromController::Reply(request_id, busy));
                    return Ok(());
                }
                let caller = connection.caller;
                let before = self.asked.insert(request_id, id);
                if before != Some(id) {
                    connection.asked += 1;
                }
                // Asked again after its connection broke, and before that was noticed.
                if let Some(before) = before.filter(|before| *before != id)
                    && let Some(old) = self.connections.get_mut(&before)
                {
                    old.asked = old.asked.saturating_sub(1);
                }
                self.step(ControllerInput::Request(Box::new(RequestEnvelope {
                    id: request_id,
                    caller,
                    request: *request,
                })))
            }
            ToController::Query(number, query) => {
                let caller = connection.caller;
                let told = connection.told.clone();
                if told.fetch_add(1, Ordering::AcqRel) >= MAX_TOLD {
                    let reason = format!("{MAX_TOLD} answers have not been taken; take them first");
                    let busy = Err(Failure::new(Cause::Busy, reason));
                    self.tell(id, FromController::QueryReply(number, busy));
                    return Ok(());
                }
                let told = match query {
                    Query::Status => Ok(QueryReply::Status(Box::new(self.status()))),
                    Query::MountVariables(token) => self
                        .controller
                        .mount_variables(&token, caller)
                        .map(QueryReply::MountVariables),
                    Query::Job(token) => self
                        .controller
                        .job_view(&token, caller)
                        .map(QueryReply::Job),
                    Query::RequestedStages(token, about, numbers) => self
                        .controller
                        .requested_stages(&token, caller, &about, &numbers)
                        .map(QueryReply::RequestedStages),
                };
                self.tell(id, FromController::QueryReply(number, told));
                Ok(())
            }
            // A greeting out of turn, or a report in another's name.
            _ => {
                self.forget(id);
                Ok(())
            }
        }
    }

    fn status(&self) -> Status {
        Status {
            control: self.controller.status(),
            activity: self.activity.values().cloned().collect(),
        }
    }

    fn tell(&mut self, id: ConnId, message: FromController) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        match connection.outbox.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                tracing::warn!("a connection takes nothing any more and is closed");
                self.forget(id);
            }
            Err(TrySendError::Disconnected(_)) => self.forget(id),
        }
    }

    fn step(&mut self, input: ControllerInput) -> Result<(), String> {
        for effect in self.controller.step(now(), input) {
            match effect {
                ControllerEffect::Persist(changes) => {
                    self.records.commit(&changes).map_err(|e| e.to_string())?;
                }
                ControllerEffect::SendToStorageNode(node, command) => {
                    let message = FromController::StorageCommand(Box::new(command));
                    self.tell_peer(&Peer::StorageNode(node), message);
                }
                ControllerEffect::SendToComputeNode(host, command) => {
                    let message = FromController::ComputeCommand(Box::new(command));
                    self.tell_peer(&Peer::ComputeNode(host), message);
                }
                ControllerEffect::Reply(request_id, outcome) => self.reply(request_id, outcome),
            }
        }
        Ok(())
    }

    fn tell_peer(&mut self, peer: &Peer, message: FromController) {
        if let Some(id) = self.peers.get(peer).copied() {
            self.tell(id, message);
        }
    }

    fn reply(&mut self, request_id: RequestId, outcome: Outcome) {
        let Some(id) = self.asked.remove(&request_id) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.asked = connection.asked.saturating_sub(1);
        }
        self.tell(id, FromController::Reply(request_id, outcome));
    }

    /// Makes pool and nodes as the configuration says.
    pub(super) fn furnish(&mut self, config: &PoolConfig) -> Result<(), DaemonError> {
        let pool = Request::AddPool {
            name: config.name.clone(),
            granularity: config.granularity,
            equalize_fragments: config.equalize_fragments,
        };
        self.order(pool)?;
        for node in &config.storage {
            let request = Request::AddNode {
                name: node.name.clone(),
                pool: config.name.clone(),
                granules: node.capacity.0 / config.granularity.0.max(1),
                address: Some(node.address.to_string()),
            };
            self.order(request)?;
        }
        for (_, node) in self.controller.state().storage.nodes() {
            if config.storage_node(&node.name).is_none() {
                tracing::warn!(node = node.name, "no longer in the configuration");
            }
        }
        Ok(())
    }

    /// A request of the configuration's.
    fn order(&mut self, request: Request) -> Result<Answer, DaemonError> {
        let id = RequestIds::new().map_err(DaemonError::new)?.next_id();
        let envelope = RequestEnvelope {
            id,
            caller: Owner { uid: 0, gid: 0 },
            request,
        };
        let mut answer = None;
        for effect in self
            .controller
            .step(now(), ControllerInput::Request(Box::new(envelope)))
        {
            match effect {
                ControllerEffect::Persist(changes) => {
                    self.records.commit(&changes).map_err(DaemonError::new)?;
                }
                ControllerEffect::Reply(_, outcome) => answer = Some(outcome),
                // Nobody is connected yet; it is sent again.
                ControllerEffect::SendToStorageNode(..)
                | ControllerEffect::SendToComputeNode(..) => {}
            }
        }
        match answer {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(failure)) => Err(DaemonError::new(failure)),
            None => Err(DaemonError::new("the controller gave no answer")),
        }
    }
}

#[cfg(test)]
mod tests;
