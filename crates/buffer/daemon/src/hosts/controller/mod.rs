//! The controller as a daemon: one thread steps the state machine, others read and write.

mod admit;
mod steps;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_net::stream::Stream;
use forebay_protocol::random::keyed_block;

use super::config::{AllowedSources, Identity, PoolConfig, StorageConfig};
use super::doors::{Doors, Guest, Limits, Ticket};
use super::frame::{MAX_BODY, MAX_REQUEST};
use super::messages::{FromController, Query, Role, ToController, Welcome};
use super::server::{Listener, hang_up};
use super::{DaemonError, create_private_directory, greet, lock_directory, write_atomically};
use crate::activity::Status;
use crate::activity::StatusSource;
use crate::database::Database;
use forebay_control::controller::{Controller, Settings};
use steps::Server;

/// Messages from all connections that wait for the controller; whoever has more to say waits.
const INBOX: usize = 4096;

/// How long the controller may take to say what there is.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection's number; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConnId(u64);

/// What the controller's thread is told.
enum Event {
    /// Someone has proved who it is, and wants to be let in.
    Came(Arc<Stream>, greet::Caller, SyncSender<Entry>),
    Said(ConnId, ToController),
    Gone(ConnId),
    Status(SyncSender<Status>),
    Stop,
}

/// Whether someone may come in.
type Entry = Result<Admitted, String>;

/// Someone who may come in.
struct Admitted {
    id: ConnId,
    welcome: Welcome,
    /// What to send later.
    outbox: Receiver<FromController>,
    /// Answers in it that may be long.
    long: Arc<AtomicUsize>,
}

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
    pub fn start(config: &PoolConfig) -> Result<ControllerDaemon, DaemonError> {
        forebay_net::stream::raise_descriptor_limit();
        let home = &config.controller_directory;
        create_private_directory(home, 0o700)?;
        let lock = lock_directory(home)?;
        let identity = config.identity()?;
        let secret = secret(home)?;
        let records = Database::open(&home.join("controller.redb")).map_err(DaemonError::new)?;
        let rows = records.load_records().map_err(DaemonError::new)?;
        let controller =
            Controller::restore(settings(config, secret), rows).map_err(DaemonError::new)?;
        let id = keyed_block(&secret, u128::MAX);
        let pool = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut server = Server::new(controller, records, pool, froms(config), lock);
        server.furnish(config)?;
        let listeners = vec![
            Listener::tcp(config.controller)?,
            Listener::unix(&config.controller_socket)?,
        ];
        let address = listeners.iter().find_map(Listener::address);
        let (events, inbox) = sync_channel(INBOX);
        let doors = Doors::new(Limits::USUAL);
        for listener in &listeners {
            let (events, identity) = (events.clone(), identity.clone());
            listener.serve(doors.clone(), move |stream, ticket| {
                serve(stream, ticket, &events, &identity);
            })?;
        }
        let thread = std::thread::Builder::new()
            .name("forebay-controller".into())
            .spawn(move || server.run(&inbox))
            .map_err(DaemonError::with_context("no thread can be made"))?;
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
    pub fn source(&self) -> StatusSource {
        let events = self.events.clone();
        Box::new(move || {
            let (answer, status) = sync_channel(1);
            let sent = events.try_send(Event::Status(answer));
            sent.map_err(|_| "the controller is busy".to_owned())?;
            let status = status.recv_timeout(PATIENCE);
            status.map_err(|_| "the controller is busy".to_owned())
        })
    }

    /// Whether it has ended by itself, because its database failed.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it; why it had ended, if it had.
    pub fn stop(mut self) -> Result<(), DaemonError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DaemonError> {
        self.listeners.clear();
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let _ = self.events.send(Event::Stop);
        match thread.join() {
            Ok(outcome) => outcome.map_err(DaemonError::new),
            Err(_) => Err(DaemonError::new("the controller's thread has failed")),
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
        max_stages_per_node: config.max_stages_per_node,
        max_nodes: config.max_nodes,
        stripe_bytes: config.stripe.0,
        secret,
        pfs_roots: config.pfs_roots.clone(),
        read_back: config.read_back,
        ..Settings::default()
    }
}

/// The pool's secret; made with the pool.
fn secret(home: &Path) -> Result<[u8; 32], DaemonError> {
    let file = home.join("secret");
    match std::fs::read(&file) {
        Ok(bytes) => bytes
            .try_into()
            .map_err(|_| DaemonError::new(format!("{}: damaged; it has 32 bytes", file.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if home.join("controller.redb").exists() {
                return Err(DaemonError::new(format!(
                    "{}: missing, but there is a controller.redb; restore both together",
                    file.display()
                )));
            }
            let mut secret = [0; 32];
            forebay_protocol::random::fill_random(&mut secret)
                .and_then(|()| write_atomically(&file, &secret, 0o600))
                .map_err(DaemonError::with_context(file.display()))?;
            Ok(secret)
        }
        Err(error) => Err(DaemonError::with_context(file.display())(error)),
    }
}

/// From where each storage node may say that it is that node.
fn froms(config: &PoolConfig) -> BTreeMap<String, AllowedSources> {
    let one = |node: &StorageConfig| (node.name.clone(), node.allowed_sources.clone());
    config.storage.iter().map(one).collect()
}

/// For whom a connection counts: whoever asks through an agent, not the agent.
fn guest(caller: &greet::Caller) -> Guest {
    match &caller.role {
        Role::Client(Some(owner)) if owner.uid != 0 => Some(owner.uid),
        _ => (!caller.peer.trusted).then_some(caller.peer.uid),
    }
}

/// What it costs the controller to carry this out, in requests.
fn cost(message: &ToController) -> f64 {
    match message {
        // It tells all that there is.
        ToController::Query(_, Query::Status) => 5.0,
        _ => 1.0,
    }
}

/// A connection from its beginning to its end, on a thread of its own.
fn serve(stream: Arc<Stream>, mut ticket: Ticket, events: &SyncSender<Event>, identity: &Identity) {
    let mut line = greet::Line::new(stream.clone());
    let answered = line.answer(identity, &mut ticket);
    let answered = answered.map_err(|error| error.to_string());
    let admitted = answered.and_then(|caller| {
        ticket.admit(guest(&caller))?;
        let (entry, decision) = sync_channel(1);
        let came = Event::Came(stream.clone(), caller.clone(), entry);
        let ended = |_| "the controller ends".to_owned();
        events.send(came).map_err(|_| ended(()))?;
        let admitted = decision.recv().map_err(|_| ended(()))?;
        Ok((caller, admitted?))
    });
    let (caller, admitted) = match admitted {
        Ok(admitted) => admitted,
        Err(reason) => {
            tracing::warn!(reason, "a connection is refused");
            return line.refuse(&reason);
        }
    };
    let Admitted {
        id,
        welcome,
        outbox,
        long,
    } = admitted;
    if line.welcome(identity, &caller, welcome).is_ok() {
        let greet::Line { mut out, mut input } = line;
        let write = move || {
            for message in outbox {
                let sent = out.send(&message);
                if let FromController::QueryReply(..) = message {
                    long.fetch_sub(1, Ordering::AcqRel);
                }
                if sent.is_err() {
                    break;
                }
            }
            hang_up(out.stream());
        };
        let writer = std::thread::Builder::new()
            .name("forebay-write".into())
            .spawn(write);
        if writer.is_ok() {
            let most = match caller.role {
                Role::Client(_) => MAX_REQUEST,
                _ => MAX_BODY,
            };
            while let Ok(message) = input.receive(most) {
                std::thread::sleep(ticket.pace(cost(&message)));
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
