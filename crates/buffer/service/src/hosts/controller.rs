//! The controller as a daemon: one thread steps the state machine, others read and write.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_policy::pool::NodeId;
use forebay_wire::auth::keyed_block;
use forebay_wire::stream::Stream;

use super::config::{Identity, PoolConfig};
use super::frame::{self, MAX_BODY};
use super::message::{Downward, Query, Role, Told, Upward, Welcome};
use super::server::{Listener, hang_up};
use super::{ServeError, directory, greet, lock, write_whole};
use crate::activity::{HostActivity, Source};
use crate::controller::{
    Answer, Cause, Controller, Effect, Envelope, Failure, Input, Outcome, Request, Settings, Status,
};
use crate::database::Database;
use crate::embedded::now;
use crate::protocol::{Owner, Peer};

/// Time between ticks.
const TICK: Duration = Duration::from_secs(1);
/// Messages from all connections that wait for the controller; whoever has more to say waits.
const INBOX: usize = 4096;
/// Messages that wait to be sent on a connection; one that lets more pile up is closed.
const OUTBOX: usize = 4096;
/// Requests that one connection may have under way.
const MAX_ASKED: usize = 256;

/// A connection's number; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConnId(u64);

/// What the controller's thread is told.
enum Event {
    /// Someone has proved who it is, and wants to be let in.
    Came(Arc<Stream>, greet::Caller, SyncSender<Entry>),
    Said(ConnId, Upward),
    Gone(ConnId),
    Status(SyncSender<Status>),
    Stop,
}

/// Whether someone may come in: the connection's number, what to say, and what to send later.
type Entry = Result<(ConnId, Welcome, Receiver<Downward>), String>;

/// A running controller. Dropping it stops it.
pub struct ControllerDaemon {
    events: SyncSender<Event>,
    thread: Option<JoinHandle<Result<(), String>>>,
    address: SocketAddr,
    listeners: Vec<Listener>,
}

impl ControllerDaemon {
    /// Takes up the state in the controller's directory, brings pool and nodes up to what is
    /// configured, and begins to listen.
    pub fn start(config: &PoolConfig) -> Result<ControllerDaemon, ServeError> {
        let home = &config.controller_directory;
        directory(home, 0o700)?;
        let lock = lock(home)?;
        let identity = config.identity()?;
        let secret = secret(home)?;
        let records = Database::open(&home.join("controller.redb")).map_err(ServeError::new)?;
        let rows = records.load().map_err(ServeError::new)?;
        let controller =
            Controller::restore(settings(config, secret), rows).map_err(ServeError::new)?;
        let id = keyed_block(&secret, u128::MAX);
        let mut server = Server {
            controller,
            records,
            pool: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            activity: BTreeMap::new(),
            asked: BTreeMap::new(),
            next: 0,
            _lock: lock,
        };
        server.furnish(config)?;
        let listeners = vec![
            Listener::tcp(config.controller)?,
            Listener::unix(&config.controller_socket)?,
        ];
        let address = listeners.iter().find_map(Listener::address);
        let (events, inbox) = sync_channel(INBOX);
        for listener in &listeners {
            let (events, identity) = (events.clone(), identity.clone());
            listener.serve(move |stream| serve(stream, &events, &identity))?;
        }
        let thread = std::thread::Builder::new()
            .name("forebay-controller".into())
            .spawn(move || server.run(&inbox))
            .map_err(ServeError::at("no thread can be made"))?;
        Ok(ControllerDaemon {
            events,
            thread: Some(thread),
            address: address.unwrap_or(config.controller),
            listeners,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its status, again and again, for another thread.
    pub fn source(&self) -> Source {
        let events = self.events.clone();
        Box::new(move || {
            let (answer, status) = sync_channel(1);
            let sent = events.try_send(Event::Status(answer));
            sent.map_err(|_| "the controller is busy".to_owned())?;
            let status = status.recv_timeout(TICK);
            status.map_err(|_| "the controller is busy".to_owned())
        })
    }

    /// Whether it has ended by itself, because its database failed.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it; why it had ended, if it had.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ServeError> {
        self.listeners.clear();
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let _ = self.events.send(Event::Stop);
        match thread.join() {
            Ok(outcome) => outcome.map_err(ServeError::new),
            Err(_) => Err(ServeError::new("the controller's thread has failed")),
        }
    }
}

impl Drop for ControllerDaemon {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn settings(config: &PoolConfig, secret: [u8; 32]) -> Settings {
    Settings {
        mount_root: config.mount_root.display().to_string(),
        operator: config.operator,
        stages_per_node: config.movers,
        max_nodes: config.max_nodes,
        stripe: config.stripe.0,
        secret,
        staged_below: config.staged_below.clone(),
        ..Settings::default()
    }
}

/// The pool's secret; made with the pool.
fn secret(home: &Path) -> Result<[u8; 32], ServeError> {
    let file = home.join("secret");
    match std::fs::read(&file) {
        Ok(bytes) => bytes
            .try_into()
            .map_err(|_| ServeError::new(format!("{}: damaged; it has 32 bytes", file.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if home.join("controller.redb").exists() {
                return Err(ServeError::new(format!(
                    "{}: missing, but there is a controller.redb; restore both together",
                    file.display()
                )));
            }
            let mut secret = [0; 32];
            forebay_wire::auth::random(&mut secret)
                .and_then(|()| write_whole(&file, &secret, 0o600))
                .map_err(ServeError::at(file.display()))?;
            Ok(secret)
        }
        Err(error) => Err(ServeError::at(file.display())(error)),
    }
}

/// A connection from its beginning to its end, on a thread of its own.
fn serve(stream: Stream, events: &SyncSender<Event>, identity: &Identity) {
    let caller = match greet::answer(&stream, identity) {
        Ok(caller) => caller,
        Err(error) => {
            tracing::warn!(%error, "a connection is refused");
            return greet::refuse(&stream, &error.to_string());
        }
    };
    let stream = Arc::new(stream);
    let (entry, decision) = sync_channel(1);
    if events
        .send(Event::Came(stream.clone(), caller.clone(), entry))
        .is_err()
    {
        return;
    }
    let (id, welcome, outbox) = match decision.recv() {
        Ok(Ok(entry)) => entry,
        Ok(Err(reason)) => {
            tracing::warn!(reason, "a connection is refused");
            return greet::refuse(&stream, &reason);
        }
        Err(_) => return,
    };
    if greet::welcome(&stream, identity, &caller, welcome).is_ok() {
        let out = stream.clone();
        let write = move || {
            for message in outbox {
                if frame::send(&out, &message).is_err() {
                    break;
                }
            }
            hang_up(&out);
        };
        let writer = std::thread::Builder::new()
            .name("forebay-write".into())
            .spawn(write);
        if writer.is_ok() {
            while let Ok(message) = frame::receive(&stream, MAX_BODY) {
                if events.send(Event::Said(id, message)).is_err() {
                    break;
                }
            }
        }
    }
    hang_up(&stream);
    // The controller may have ended before.
    let _ = events.send(Event::Gone(id));
}

struct Connection {
    stream: Arc<Stream>,
    outbox: SyncSender<Downward>,
    /// The storage node or agent at the other end.
    peer: Option<Peer>,
    /// For whom it asks.
    caller: Owner,
    /// Requests under way.
    asked: usize,
}

struct Server {
    controller: Controller,
    records: Database,
    pool: String,
    connections: BTreeMap<ConnId, Connection>,
    peers: BTreeMap<Peer, ConnId>,
    /// What those that are connected have done.
    activity: BTreeMap<Peer, HostActivity>,
    /// Who waits for the answer to a client's request.
    asked: BTreeMap<(u64, u64), ConnId>,
    next: u64,
    _lock: std::fs::File,
}

impl Server {
    fn run(mut self, inbox: &Receiver<Event>) -> Result<(), String> {
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
                true => self.step(Input::Tick),
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
                if let Err(unsent) = entry.send(decision) {
                    if let Ok((id, ..)) = unsent.0 {
                        self.forget(id);
                    }
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

    /// Whether someone may come in, and as what.
    fn admit(&mut self, stream: Arc<Stream>, caller: &greet::Caller) -> Entry {
        let uid = caller.peer.uid;
        let trusted = |what: &str| match caller.peer.trusted {
            true => Ok(()),
            false => Err(format!("user {uid} may not {what}: only root may")),
        };
        let mut welcome = Welcome {
            pool: self.pool.clone(),
            node: None,
            granules: 0,
            host: None,
            proof: None,
        };
        let own = Owner {
            uid,
            gid: caller.peer.gid,
        };
        let (peer, owner) = match &caller.role {
            Role::Storage(name) => {
                trusted("be a storage node")?;
                let nodes = &self.controller.state().nodes;
                let known = nodes.iter().find(|(_, node)| node.name == *name);
                let (number, node) = known.ok_or_else(|| {
                    format!(
                        "there is no storage node `{name}` in the controller's configuration; \
                         add it there and start the controller again"
                    )
                })?;
                let number = NodeId(u32::try_from(number).unwrap_or(u32::MAX));
                welcome.node = Some(number);
                welcome.granules = node.granules;
                (Some(Peer::Node(number)), own)
            }
            Role::Agent(host) => {
                trusted("be a compute node's agent")?;
                (Some(Peer::Host(host.clone())), own)
            }
            Role::Client(None) => (None, own),
            Role::Client(Some(owner)) => {
                if *owner != own {
                    trusted("ask for others")?;
                }
                (None, *owner)
            }
        };
        self.next += 1;
        let id = ConnId(self.next);
        let (outbox, messages) = sync_channel(OUTBOX);
        if let Some(peer) = &peer {
            tracing::info!(?peer, "connected");
            if let Some(old) = self.peers.insert(peer.clone(), id) {
                self.forget(old);
            }
        }
        let connection = Connection {
            stream,
            outbox,
            peer,
            caller: owner,
            asked: 0,
        };
        self.connections.insert(id, connection);
        Ok((id, welcome, messages))
    }

    fn forget(&mut self, id: ConnId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        hang_up(&connection.stream);
        if let Some(peer) = &connection.peer {
            if self.peers.get(peer) == Some(&id) {
                tracing::warn!(?peer, "disconnected");
                self.peers.remove(peer);
                self.activity.remove(peer);
            }
        }
        if connection.asked > 0 {
            self.asked.retain(|_, asker| *asker != id);
        }
    }

    fn said(&mut self, id: ConnId, message: Upward) -> Result<(), String> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        match message {
            Upward::Report(report) if connection.peer.as_ref() == Some(&report.from) => {
                self.step(Input::Report(report))
            }
            Upward::Activity(activity) if connection.peer.is_some() => {
                let peer = connection.peer.clone();
                self.activity.extend(peer.map(|peer| (peer, *activity)));
                Ok(())
            }
            Upward::Ask(client, number, request) => {
                if connection.asked >= MAX_ASKED {
                    let reason = format!("{MAX_ASKED} requests are under way; wait for one");
                    let busy = Err(Failure::new(Cause::Busy, reason));
                    self.tell(id, Downward::Reply(client, number, busy));
                    return Ok(());
                }
                let caller = connection.caller;
                if self.asked.insert((client, number), id).is_none() {
                    connection.asked += 1;
                }
                self.step(Input::Request(Box::new(Envelope {
                    client,
                    number,
                    caller,
                    request: *request,
                })))
            }
            Upward::Query(number, query) => {
                let caller = connection.caller;
                let told = match query {
                    Query::Status => Ok(Told::Status(Box::new(self.status()))),
                    Query::Paths(token) => self.controller.paths(&token, caller).map(Told::Paths),
                };
                self.tell(id, Downward::Told(number, told));
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
        let mut status = self.controller.status();
        status.activity = self.activity.values().cloned().collect();
        status
    }

    fn tell(&mut self, id: ConnId, message: Downward) {
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

    fn step(&mut self, input: Input) -> Result<(), String> {
        for effect in self.controller.step(now(), input) {
            match effect {
                Effect::Persist(changes) => {
                    self.records.commit(&changes).map_err(|e| e.to_string())?;
                }
                Effect::Send(peer, order) => {
                    if let Some(id) = self.peers.get(&peer).copied() {
                        self.tell(id, Downward::Order(Box::new(order)));
                    }
                }
                Effect::Reply {
                    client,
                    number,
                    outcome,
                } => self.reply(client, number, outcome),
            }
        }
        Ok(())
    }

    fn reply(&mut self, client: u64, number: u64, outcome: Outcome) {
        let Some(id) = self.asked.remove(&(client, number)) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.asked = connection.asked.saturating_sub(1);
        }
        self.tell(id, Downward::Reply(client, number, outcome));
    }

    /// Makes pool and nodes as the configuration says.
    fn furnish(&mut self, config: &PoolConfig) -> Result<(), ServeError> {
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
        for (_, node) in self.controller.state().nodes.iter() {
            if config.storage_node(&node.name).is_none() {
                tracing::warn!(node = node.name, "no longer in the configuration");
            }
        }
        Ok(())
    }

    /// A request of the configuration's.
    fn order(&mut self, request: Request) -> Result<Answer, ServeError> {
        self.next += 1;
        let envelope = Envelope {
            client: now().0,
            number: self.next,
            caller: Owner { uid: 0, gid: 0 },
            request,
        };
        let mut answer = None;
        for effect in self
            .controller
            .step(now(), Input::Request(Box::new(envelope)))
        {
            match effect {
                Effect::Persist(changes) => {
                    self.records.commit(&changes).map_err(ServeError::new)?;
                }
                Effect::Reply { outcome, .. } => answer = Some(outcome),
                // Nobody is connected yet; it is sent again.
                Effect::Send(..) => {}
            }
        }
        match answer {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(failure)) => Err(ServeError::new(failure)),
            None => Err(ServeError::new("the controller gave no answer")),
        }
    }
}
