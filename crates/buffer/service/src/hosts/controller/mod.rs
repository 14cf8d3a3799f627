//! The controller as a daemon: one thread steps the state machine, others read and write.

mod steps;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_wire::auth::keyed_block;
use forebay_wire::stream::Stream;

use super::config::{Identity, PoolConfig};
use super::frame::{self, MAX_BODY};
use super::message::{Downward, Role, Upward, Welcome};
use super::server::{Listener, hang_up};
use super::{ServeError, directory, greet, lock, write_whole};
use crate::activity::Source;
use crate::controller::{Controller, Settings, Status};
use crate::database::Database;
use steps::Server;

/// Messages from all connections that wait for the controller; whoever has more to say waits.
const INBOX: usize = 4096;

/// Longest message of those who only ask, in bytes: a job script and what goes with it.
const MAX_REQUEST: usize = 1 << 20;
/// How long the controller may take to say what there is.
const PATIENCE: Duration = Duration::from_secs(1);

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
        let pool = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut server = Server::new(controller, records, pool, lock);
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
            let status = status.recv_timeout(PATIENCE);
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
        read_back: config.read_back,
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
            let most = match caller.role {
                Role::Client(_) => MAX_REQUEST,
                _ => MAX_BODY,
            };
            while let Ok(message) = frame::receive(&stream, most) {
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
