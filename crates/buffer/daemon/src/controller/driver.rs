//! The controller's driver: messages step the state machine, and its effects are carried out.
//! It treats connections over sockets and within the process alike.

mod invariants;
mod measured_use;
mod queries;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use forebay_control::controller::{
    Cause, Controller, ControllerEffect, ControllerInput, Failure, Outcome, Request,
    RequestEnvelope, RequestId,
};
use forebay_control::messages::{Owner, Peer};
use forebay_control::records::Change;
use forebay_net::stream::Stream;

use super::Reload;
use super::admission::{Authorized, Policy};
use super::audit::AuditLog;
use super::port::{Admitted, Candidate, ConnectionId, Event, Outbox};
use super::refused::RefusedHosts;
use crate::activity::HostActivity;
use crate::clock::{now, time_of_day};
use crate::database::Database;
use crate::messages::{FromController, Query, ToController};
use crate::request_ids::RequestIds;
use measured_use::ReportedUse;

/// Capacity of a node's outbox. A connection that lets more pile up is closed.
const NODE_OUTBOX_CAPACITY: usize = 4096;
/// Capacity of a client's outbox: replies to all its requests, and as many to queries.
const CLIENT_OUTBOX_CAPACITY: usize = 2 * MAX_REQUESTS_IN_FLIGHT;
/// Maximum events whose changes are made durable together; their effects wait for that.
const MAX_EVENTS_PER_COMMIT: usize = 256;
/// Maximum requests in flight on one connection.
const MAX_REQUESTS_IN_FLIGHT: usize = 256;
/// Maximum replies to queries waiting to be sent on one connection; each may be long.
const MAX_QUERY_REPLIES: usize = 8;

struct Connection {
    stream: Option<Arc<Stream>>,
    source: Option<IpAddr>,
    outbox: SyncSender<FromController>,
    /// The storage node or compute node at the other end.
    peer: Option<Peer>,
    /// The user whose requests come over it.
    caller: Owner,
    requests_in_flight: usize,
    query_replies: Arc<AtomicUsize>,
}

impl Connection {
    fn shut_down(&self) {
        if let Some(stream) = &self.stream {
            stream.shut_down();
        }
    }
}

/// A controller with its records and connections.
pub(super) struct Driver {
    controller: Controller,
    records: Database,
    policy: Policy,
    /// Time between ticks.
    tick_interval: Duration,
    /// The process that owns the pool, of a pool that exists only as long as a process has it open.
    process: Option<u32>,
    connections: BTreeMap<ConnectionId, Connection>,
    peers: BTreeMap<Peer, ConnectionId>,
    /// The last activity reported by each connected node.
    activity: BTreeMap<Peer, HostActivity>,
    /// The connection that gets the reply to each request in flight.
    pending: BTreeMap<RequestId, ConnectionId>,
    last_id: u64,
    /// Changes of records by the steps since the last [`flush`](Self::flush), and the effects that
    /// wait until they are durable.
    changes: Vec<Change>,
    effects: Vec<ControllerEffect>,
    /// The hosts that failed to authenticate.
    pub refused: RefusedHosts,
    /// The log of allocations, removals and operators' actions.
    pub audit: Option<AuditLog>,
    /// The use of instances that the controller was told.
    told: ReportedUse,
    is_stopped: bool,
}

impl Driver {
    /// A restored controller without connections.
    pub fn new(
        controller: Controller,
        records: Database,
        policy: Policy,
        tick_interval: Duration,
        process: Option<u32>,
    ) -> Driver {
        Driver {
            controller,
            records,
            policy,
            tick_interval,
            process,
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            activity: BTreeMap::new(),
            pending: BTreeMap::new(),
            last_id: 0,
            changes: Vec::new(),
            effects: Vec::new(),
            refused: RefusedHosts::default(),
            audit: None,
            told: ReportedUse::default(),
            is_stopped: false,
        }
    }

    /// Runs until it is stopped, or until the database fails.
    pub fn run(mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let outcome = self.handle_events(inbox);
        for connection in self.connections.values() {
            connection.shut_down();
        }
        outcome
    }

    fn handle_events(&mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let mut last_tick = Instant::now();
        while !self.is_stopped {
            let wait = self.tick_interval.saturating_sub(last_tick.elapsed());
            match inbox.recv_timeout(wait) {
                Ok(event) => self.handle_event(event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.is_stopped = true,
            }
            // One commit makes the changes of many events durable.
            for event in inbox.try_iter().take(MAX_EVENTS_PER_COMMIT) {
                self.handle_event(event)?;
            }
            if last_tick.elapsed() >= self.tick_interval {
                last_tick = Instant::now();
                self.step(ControllerInput::Tick);
                self.record_use();
            }
            self.flush()?;
        }
        self.record_all_use();
        self.flush()
    }

    fn handle_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Connect(candidate, decision) => {
                let decided = self.connect(*candidate);
                // The process has disconnected in the meantime.
                if let Err(unsent) = decision.send(decided)
                    && let Ok(admitted) = unsent.0
                {
                    self.forget(admitted.id);
                }
            }
            Event::Message(id, message) => self.handle_message(id, message)?,
            Event::Disconnected(id) => self.forget(id),
            Event::Status(answer) => {
                self.flush()?;
                // The asking thread may have given up.
                let _ = answer.try_send(self.status());
            }
            Event::Reload(reload, answer) => {
                let outcome = self.reload(*reload)?;
                // The asking thread may have given up.
                let _ = answer.try_send(outcome);
            }
            Event::Stop => self.is_stopped = true,
        }
        Ok(())
    }

    fn connect(&mut self, candidate: Candidate) -> Result<Admitted, String> {
        let Authorized { peer, caller, welcome } =
            self.policy.authorize(&candidate, self.controller.state())?;
        self.last_id += 1;
        let id = ConnectionId(self.last_id);
        let capacity = match peer {
            Some(_) => NODE_OUTBOX_CAPACITY,
            None => CLIENT_OUTBOX_CAPACITY,
        };
        if let Some(peer) = &peer {
            self.check_not_elsewhere(peer, candidate.source)?;
            tracing::info!(?peer, source = ?candidate.source, "connected");
            if let Some(old) = self.peers.insert(peer.clone(), id) {
                self.forget(old);
            }
        }
        let (outbox, messages) = sync_channel(capacity);
        let query_replies = Arc::new(AtomicUsize::new(0));
        let connection = Connection {
            stream: candidate.stream,
            source: candidate.source,
            outbox,
            peer,
            caller,
            requests_in_flight: 0,
            query_replies: query_replies.clone(),
        };
        let outbox = Outbox { messages, query_replies };
        self.connections.insert(id, connection);
        Ok(Admitted { id, welcome, outbox })
    }

    /// Fails if the same node is connected from another host.
    fn check_not_elsewhere(&self, peer: &Peer, source: Option<IpAddr>) -> Result<(), String> {
        let known = self.peers.get(peer).and_then(|id| self.connections.get(id));
        let known = known.and_then(|connection| connection.source);
        let (Some(known), Some(source)) = (known, source) else {
            return Ok(());
        };
        if source == known {
            return Ok(());
        }
        let node = match peer {
            Peer::StorageNode(node) => format!("storage node {}", node.0),
            Peer::ComputeNode(host) => format!("the agent of `{host}`"),
        };
        Err(format!("{node} is connected already, from {known}; hosts must have different names"))
    }

    fn forget(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        connection.shut_down();
        if let Some(peer) = &connection.peer
            && self.peers.get(peer) == Some(&id)
        {
            match connection.stream {
                Some(_) => tracing::warn!(?peer, "disconnected"),
                None => tracing::debug!(?peer, "disconnected"),
            }
            self.peers.remove(peer);
            if let Some(last) = self.activity.remove(peer) {
                self.record_host_io(&last);
            }
        }
        if connection.requests_in_flight > 0 {
            self.pending.retain(|_, client| *client != id);
        }
    }

    fn handle_message(&mut self, id: ConnectionId, message: ToController) -> Result<(), String> {
        let Some(connection) = self.connections.get(&id) else {
            return Ok(());
        };
        match message {
            ToController::Report(report) if connection.peer.as_ref() == Some(&report.sender()) => {
                self.step(ControllerInput::Report(report));
            }
            ToController::Activity(activity) if connection.peer.is_some() => {
                let peer = connection.peer.clone();
                self.note_ended_mounts(&activity);
                self.activity.extend(peer.map(|peer| (peer, *activity)));
            }
            ToController::Report(_) | ToController::Activity(_) => {
                tracing::warn!(peer = ?connection.peer, "refused a report in another node's name");
                self.forget(id);
            }
            ToController::Request(request_id, request) => self.request(id, request_id, *request),
            ToController::Query(number, query) => {
                if let Query::JobUsage(_) = query {
                    self.record_all_use();
                }
                // Nobody sees a state that a crash could undo.
                self.flush()?;
                self.query(id, number, query);
            }
        }
        Ok(())
    }

    fn request(&mut self, id: ConnectionId, request_id: RequestId, request: Request) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.requests_in_flight >= MAX_REQUESTS_IN_FLIGHT {
            let reason = format!("{MAX_REQUESTS_IN_FLIGHT} requests are in flight; wait for one");
            let busy = Err(Failure::new(Cause::Busy, reason));
            self.send(id, FromController::Reply(request_id, busy));
            return;
        }
        let (caller, source) = (connection.caller, connection.source);
        let known = self.controller.state().requests.get(request_id);
        // A repeated request whose outcome is known was logged.
        if known.is_none_or(|record| record.outcome().is_none())
            && let Some(audit) = &mut self.audit
        {
            audit.begin(request_id, caller, source, &request);
        }
        let before = self.pending.insert(request_id, id);
        if before != Some(id) {
            connection.requests_in_flight += 1;
        }
        // Retransmitted over a new connection before the loss of the old one was noticed.
        if let Some(before) = before.filter(|before| *before != id)
            && let Some(old) = self.connections.get_mut(&before)
        {
            assert!(old.requests_in_flight > 0, "its request is in flight");
            old.requests_in_flight -= 1;
        }
        tracing::debug!(%request_id, ?request, "request");
        self.step(ControllerInput::Request(Box::new(RequestEnvelope {
            id: request_id,
            caller,
            request,
        })));
    }

    fn send(&mut self, id: ConnectionId, message: FromController) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        match connection.outbox.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                tracing::warn!("connection closed: the other side reads no messages");
                self.forget(id);
            }
            Err(TrySendError::Disconnected(_)) => self.forget(id),
        }
    }

    fn step(&mut self, input: ControllerInput) {
        self.controller.set_time_of_day(time_of_day());
        for effect in self.controller.step(now(), input) {
            match effect {
                ControllerEffect::Persist(changes) => self.changes.extend(changes),
                ControllerEffect::SendToStorageNode(..)
                | ControllerEffect::SendToComputeNode(..)
                | ControllerEffect::Reply(..) => self.effects.push(effect),
            }
        }
    }

    /// Makes the changes of the steps so far durable, and then carries out their effects.
    fn flush(&mut self) -> Result<(), String> {
        if !self.changes.is_empty() {
            self.records.commit(&self.changes).map_err(|e| e.to_string())?;
            self.changes.clear();
        }
        for notice in self.controller.take_notices() {
            tracing::warn!(action = notice.action, outcome = notice.outcome, "{}", notice.object);
            if let Some(audit) = &mut self.audit {
                audit.note(time_of_day(), &notice);
            }
        }
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                ControllerEffect::Persist(_) => unreachable!("changes are kept apart"),
                ControllerEffect::SendToStorageNode(node, command) => {
                    let message = FromController::StorageCommand(Box::new(command));
                    self.send_to_peer(&Peer::StorageNode(node), message);
                }
                ControllerEffect::SendToComputeNode(host, command) => {
                    let message = FromController::ComputeCommand(Box::new(command));
                    self.send_to_peer(&Peer::ComputeNode(host), message);
                }
                ControllerEffect::Reply(request_id, outcome) => self.reply(request_id, outcome),
            }
        }
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        Ok(())
    }

    /// Sends a command, unless the peer is disconnected: commands are repeated.
    fn send_to_peer(&mut self, peer: &Peer, message: FromController) {
        if let Some(id) = self.peers.get(peer).copied() {
            self.send(id, message);
        }
    }

    fn reply(&mut self, request_id: RequestId, outcome: Outcome) {
        match &outcome {
            Ok(answer) => tracing::debug!(%request_id, ?answer, "request done"),
            Err(failure) => tracing::info!(%request_id, %failure, "request refused or failed"),
        }
        if let Some(audit) = &mut self.audit {
            audit.finish(time_of_day(), request_id, &outcome);
        }
        let Some(id) = self.pending.remove(&request_id) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            assert!(connection.requests_in_flight > 0, "its request is in flight");
            connection.requests_in_flight -= 1;
        }
        self.send(id, FromController::Reply(request_id, outcome));
    }

    /// Applies a changed configuration. The inner error is the first reason for which one of its
    /// requests is refused; the outer one is the database's.
    fn reload(&mut self, reload: Reload) -> Result<Result<(), String>, String> {
        let Reload { settings, allowed_sources, only_user, requests } = reload;
        self.policy.operator = settings.operator;
        self.controller.change_settings(settings);
        self.policy.allowed_sources = allowed_sources;
        self.policy.only_user = only_user;
        let mut first = Ok(());
        for request in requests {
            let outcome = self.apply(request)?;
            first = first.and(outcome.map(drop).map_err(|failure| failure.to_string()));
        }
        Ok(first)
    }

    /// Carries out a request of the configuration. The outer error is the database's.
    pub fn apply(&mut self, request: Request) -> Result<Outcome, String> {
        let ids = RequestIds::new().map_err(|error| error.to_string())?;
        let id = ids.next_id();
        let envelope = RequestEnvelope { id, caller: Owner { uid: 0, gid: 0 }, request };
        self.step(ControllerInput::Request(Box::new(envelope)));
        let outcome = self.effects.iter().find_map(|effect| match effect {
            ControllerEffect::Reply(of, outcome) if *of == id => Some(outcome.clone()),
            _ => None,
        });
        self.flush()?;
        outcome.ok_or_else(|| "the controller gave no answer".to_owned())
    }
}
