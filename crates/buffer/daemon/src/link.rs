//! A node's connection with the controller, which is made again whenever it breaks. Reports are
//! lost while there is none, as the control protocol allows.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_client::{Backoff, Os};
use forebay_control::messages::Report;

use crate::activity::HostActivity;
use crate::connection::{Connection, Endpoint, Receiver};
use crate::error::DaemonError;
use crate::messages::{FromController, Role, ToController, Welcome};

/// Capacity of the queue of reports. Further ones are dropped.
const QUEUE_CAPACITY: usize = 1024;
/// Backoff of attempts to connect.
const CONNECT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_secs(3), Duration::MAX);

/// A message from the controller to a node.
pub(crate) enum Delivery<C> {
    /// A connection was made.
    Welcome(Welcome),
    /// A command.
    Command(C),
}

#[allow(
    clippy::large_enum_variant,
    reason = "nearly all events are messages; the channel is bounded"
)]
enum Event {
    Send(ToController),
    /// A flag has changed.
    Wake,
}

/// The connection. Dropping it closes it.
pub(crate) struct ControllerLink {
    events: SyncSender<Event>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControllerLink {
    /// Connects as `role` and passes on what comes: `command` extracts the commands for this kind
    /// of node, and returns `None` for messages that do not belong on its connection. `deliver`
    /// must not block for long.
    pub fn start<C: 'static>(
        endpoint: Endpoint,
        role: Role,
        command: fn(FromController) -> Option<C>,
        deliver: impl Fn(Delivery<C>) + Send + Sync + 'static,
    ) -> Result<ControllerLink, DaemonError> {
        let (events, inbox) = sync_channel(QUEUE_CAPACITY);
        let stopped = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            endpoint,
            role,
            command,
            deliver: Arc::new(deliver),
            events: events.clone(),
            inbox,
            stopped: stopped.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-link".into())
            .spawn(move || worker.run())
            .map_err(DaemonError::with_context("cannot start a thread"))?;
        Ok(ControllerLink { events, stopped, thread: Some(thread) })
    }

    /// Sends a report, if the controller is connected.
    pub fn send_report(&self, report: Report) {
        let _ = self.events.try_send(Event::Send(ToController::Report(report)));
    }

    /// Sends the node's counters, if the controller is connected.
    pub fn send_activity(&self, activity: HostActivity) {
        let message = ToController::Activity(Box::new(activity));
        let _ = self.events.try_send(Event::Send(message));
    }
}

impl Drop for ControllerLink {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // A full queue wakes the thread, too.
        let _ = self.events.try_send(Event::Wake);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Deliver<C> = Arc<dyn Fn(Delivery<C>) + Send + Sync>;

/// The link's thread.
struct Worker<C> {
    endpoint: Endpoint,
    role: Role,
    command: fn(FromController) -> Option<C>,
    deliver: Deliver<C>,
    events: SyncSender<Event>,
    inbox: mpsc::Receiver<Event>,
    stopped: Arc<AtomicBool>,
}

impl<C: 'static> Worker<C> {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn run(self) {
        let mut retries = CONNECT_BACKOFF.start(&Os);
        let mut last_error = String::new();
        while !self.is_stopped() {
            let controller = &self.endpoint;
            match self.endpoint.connect(self.role.clone()) {
                Ok(connection) => {
                    tracing::info!(%controller, "connected to the controller");
                    last_error.clear();
                    let error = self.exchange(connection);
                    retries = CONNECT_BACKOFF.start(&Os);
                    if !self.is_stopped() && self.endpoint.can_reconnect() {
                        tracing::warn!(%error, "lost the connection to the controller");
                    }
                }
                Err(error) if error.to_string() == last_error => {}
                Err(error) => {
                    last_error = error.to_string();
                    if error.kind() == io::ErrorKind::PermissionDenied {
                        // Only an operator can change that.
                        tracing::error!(%controller, %error, "the controller refused this daemon");
                    } else {
                        tracing::warn!(%controller, %error, "the controller is unreachable");
                    }
                }
            }
            if !self.endpoint.can_reconnect() {
                return;
            }
            self.pause(retries.next_delay().unwrap_or_default());
        }
    }

    /// Waits, and drops reports: they are outdated by the time there is a connection.
    fn pause(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while !self.is_stopped() {
            let left = end.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Uses a connection until it breaks, and returns the reason.
    fn exchange(&self, connection: Connection) -> io::Error {
        let Connection { mut sender, receiver, welcome } = connection;
        (self.deliver)(Delivery::Welcome(welcome));
        let broken = Arc::new(AtomicBool::new(false));
        let (flag, events) = (broken.clone(), self.events.clone());
        let (command, deliver) = (self.command, self.deliver.clone());
        let read = move || {
            let error = receive_commands(receiver, command, &deliver);
            flag.store(true, Ordering::Release);
            let _ = events.try_send(Event::Wake);
            error
        };
        let reader = std::thread::Builder::new().name("forebay-commands".into());
        let reader = match reader.spawn(read) {
            Ok(reader) => reader,
            Err(error) => return error,
        };
        let mut failed = None;
        while failed.is_none() && !self.is_stopped() && !broken.load(Ordering::Acquire) {
            match self.inbox.recv() {
                Ok(Event::Send(message)) => failed = sender.send(&message).err(),
                Ok(Event::Wake) => {}
                Err(_) => break,
            }
        }
        drop(sender);
        let ended = reader.join();
        failed.unwrap_or_else(|| {
            ended.unwrap_or_else(|_| io::Error::other("the receiving thread panicked"))
        })
    }
}

/// Delivers commands until the connection breaks, and returns the reason.
fn receive_commands<C>(
    mut receiver: Receiver,
    command: fn(FromController) -> Option<C>,
    deliver: &Deliver<C>,
) -> io::Error {
    loop {
        match receiver.receive().map(command) {
            Ok(Some(command)) => deliver(Delivery::Command(command)),
            Ok(None) => {
                let reason = "the controller sent a message that does not belong here";
                return io::Error::new(io::ErrorKind::InvalidData, reason);
            }
            Err(error) => return error,
        }
    }
}
