//! The channel into the controller's driver, and the channels out of it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use forebay_net::stream::Stream;

use super::Reload;
use super::refused::RefusedHosts;
use crate::activity::Status;
use crate::messages::{FromController, Role, ToController, Welcome};

/// Capacity of the driver's inbox. Connections with more to say wait.
const INBOX_CAPACITY: usize = 4096;

/// A connection's number; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(super) u64);

/// An authenticated process that asks for a connection.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub uid: u32,
    pub gid: u32,
    /// Whether it is root, or of the user that runs this process.
    pub trusted: bool,
    pub role: Role,
    /// The address it has connected from, on TCP.
    pub source: Option<IpAddr>,
    /// The host on which its MUNGE credential was made.
    pub munge_origin: Option<Ipv4Addr>,
    /// Its socket; `None` within this process.
    pub stream: Option<Arc<Stream>>,
}

/// An accepted connection.
pub(crate) struct Admitted {
    pub id: ConnectionId,
    pub welcome: Welcome,
    pub outbox: Outbox,
}

/// Messages from the controller to one connection.
pub(crate) struct Outbox {
    pub(super) messages: Receiver<FromController>,
    /// Replies to queries in it; each may be long.
    pub(super) query_replies: Arc<AtomicUsize>,
}

impl Outbox {
    /// Blocks for the next message; `None` once the controller has closed the connection.
    pub fn next_message(&self) -> Option<FromController> {
        let message = self.messages.recv().ok()?;
        if let FromController::QueryReply(..) = message {
            let before = self.query_replies.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "more replies than the driver counted");
        }
        Some(message)
    }
}

/// An input of the driver's loop.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all events are messages; the channel is bounded"
)]
pub(super) enum Event {
    Connect(Box<Candidate>, SyncSender<Result<Admitted, String>>),
    Message(ConnectionId, ToController),
    Disconnected(ConnectionId),
    Status(SyncSender<Status>),
    /// A changed configuration; the first reason for which a part of it is refused is sent back.
    Reload(Box<Reload>, SyncSender<Result<(), String>>),
    Stop,
}

/// The way into a controller's driver, for any thread.
#[derive(Clone)]
pub(crate) struct ControllerPort {
    events: SyncSender<Event>,
    /// The hosts that failed to authenticate.
    pub(super) refused: RefusedHosts,
}

impl ControllerPort {
    /// A port and the driver's end of it.
    pub(super) fn new(refused: RefusedHosts) -> (ControllerPort, Receiver<Event>) {
        let (events, inbox) = sync_channel(INBOX_CAPACITY);
        (ControllerPort { events, refused }, inbox)
    }

    /// Opens a connection for an authenticated process, or returns the reason for refusing it.
    pub fn connect(&self, candidate: Candidate) -> Result<Admitted, String> {
        let stopping = || "the controller is shutting down".to_owned();
        let (decision, decided) = sync_channel(1);
        let event = Event::Connect(Box::new(candidate), decision);
        self.events.send(event).map_err(|_| stopping())?;
        decided.recv().unwrap_or_else(|_| Err(stopping()))
    }

    /// Hands over a message from a connection. Returns whether the controller still runs.
    pub fn deliver(&self, id: ConnectionId, message: ToController) -> bool {
        self.events.send(Event::Message(id, message)).is_ok()
    }

    /// Closes a connection.
    pub fn disconnect(&self, id: ConnectionId) {
        // The driver may have ended before.
        let _ = self.events.send(Event::Disconnected(id));
    }

    /// The pool's status, if the driver replies within `timeout`.
    pub fn status(&self, timeout: Duration) -> Result<Status, String> {
        let busy = || "the controller is busy".to_owned();
        let (answer, status) = sync_channel(1);
        let sent = self.events.try_send(Event::Status(answer));
        sent.map_err(|_| busy())?;
        status.recv_timeout(timeout).map_err(|_| busy())
    }

    /// Applies a changed configuration. The error is the first reason for which a part of it is
    /// refused; the other parts apply.
    pub fn reload(&self, reload: Reload) -> Result<(), String> {
        let stopping = || "the controller is shutting down".to_owned();
        let (answer, outcome) = sync_channel(1);
        self.events.send(Event::Reload(Box::new(reload), answer)).map_err(|_| stopping())?;
        outcome.recv().unwrap_or_else(|_| Err(stopping()))
    }

    /// Stops the driver.
    pub fn stop(&self) {
        let _ = self.events.send(Event::Stop);
    }
}
