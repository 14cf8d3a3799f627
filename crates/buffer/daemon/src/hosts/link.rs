//! A daemon's connection to the controller: made again whenever it breaks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_protocol::address::Address;

use super::config::Identity;
use super::frame::{Incoming, MAX_BODY, Outgoing};
use super::messages::{FromController, Role, ToController, Welcome};
use super::server::hang_up;
use super::{DaemonError, greet};
use crate::activity::HostActivity;
use forebay_control::messages::{ComputeCommand, Report, StampedCommand, StorageCommand};

/// Reports that wait to be sent; more are dropped, as the protocol allows.
const WAITING: usize = 1024;
/// Time between looks at whether to stop.
const LOOK: Duration = Duration::from_millis(200);
/// Pause after the first failed attempt to connect, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// What comes from the controller.
pub enum Delivery {
    /// A connection has been made.
    Welcome(Welcome),
    /// A command to a storage node.
    StorageCommand(StampedCommand<StorageCommand>),
    /// A command to a compute node.
    ComputeCommand(StampedCommand<ComputeCommand>),
}

/// The connection.
pub struct ControllerLink {
    reports: SyncSender<ToController>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControllerLink {
    /// Connects to the controller, again and again, and hands over what comes from it. If
    /// `deliver` returns false, the connection is ended for good.
    pub fn start(
        address: Address,
        role: Role,
        identity: Identity,
        deliver: impl Fn(Delivery) -> bool + Send + Sync + 'static,
    ) -> Result<ControllerLink, DaemonError> {
        let (reports, outbox) = sync_channel(WAITING);
        let stop = Arc::new(AtomicBool::new(false));
        let line = Line {
            address,
            role,
            identity,
            deliver: Arc::new(deliver),
            outbox,
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-link".into())
            .spawn(move || line.run())
            .map_err(DaemonError::with_context("no thread can be made"))?;
        Ok(ControllerLink {
            reports,
            stop,
            thread: Some(thread),
        })
    }

    /// Tells the controller something, if it can be reached.
    pub fn send_report(&self, report: Report) {
        let _ = self.reports.try_send(ToController::Report(report));
    }

    /// Tells the controller what was done, if it can be reached.
    pub fn send_activity(&self, activity: HostActivity) {
        let _ = self
            .reports
            .try_send(ToController::Activity(Box::new(activity)));
    }
}

impl Drop for ControllerLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Deliver = Arc<dyn Fn(Delivery) -> bool + Send + Sync>;

struct Line {
    address: Address,
    role: Role,
    identity: Identity,
    deliver: Deliver,
    outbox: Receiver<ToController>,
    stop: Arc<AtomicBool>,
}

impl Line {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn run(self) {
        let mut pause = PAUSES.0;
        let mut told = String::new();
        while !self.stopped() {
            match greet::dial(&self.address, self.role.clone(), &self.identity) {
                Ok((out, input, welcome)) => {
                    tracing::info!(controller = %self.address, "connected to the controller");
                    (pause, told) = (PAUSES.0, String::new());
                    let error = self.talk(out, input, welcome);
                    if !self.stopped() {
                        tracing::warn!(%error, "the connection to the controller is lost");
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != told {
                        told = text;
                        let controller = &self.address;
                        if error.kind() == io::ErrorKind::PermissionDenied {
                            // That does not go away by itself.
                            tracing::error!(%controller, %error, "the controller does not let this daemon in");
                        } else {
                            tracing::warn!(%controller, %error, "the controller cannot be reached");
                        }
                    }
                }
            }
            let begun = Instant::now();
            while !self.stopped() && begun.elapsed() < pause {
                // What is reported meanwhile is old news once there is a connection.
                let _ = self.outbox.recv_timeout(pause.min(LOOK));
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Uses a connection until it breaks.
    fn talk(&self, mut out: Outgoing, input: Incoming, welcome: Welcome) -> io::Error {
        if !(self.deliver)(Delivery::Welcome(welcome)) {
            self.stop.store(true, Ordering::Release);
            return io::ErrorKind::Interrupted.into();
        }
        let broken = Arc::new(AtomicBool::new(false));
        let (gone, deliver) = (broken.clone(), self.deliver.clone());
        let read = move || {
            let error = listen(input, &deliver);
            gone.store(true, Ordering::Release);
            error
        };
        let reader = std::thread::Builder::new().name("forebay-orders".into());
        let reader = match reader.spawn(read) {
            Ok(reader) => reader,
            Err(error) => return error,
        };
        let mut failed = None;
        while failed.is_none() && !self.stopped() && !broken.load(Ordering::Acquire) {
            match self.outbox.recv_timeout(LOOK) {
                Ok(message) => failed = out.send(&message).err(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        hang_up(out.stream());
        let ended = reader.join();
        failed.unwrap_or_else(|| {
            ended.unwrap_or_else(|_| io::Error::other("the reading thread has failed"))
        })
    }
}

/// Hands over what comes until the connection breaks; why it did.
fn listen(mut input: Incoming, deliver: &Deliver) -> io::Error {
    loop {
        match input.receive(MAX_BODY) {
            Ok(FromController::StorageCommand(command)) => {
                if !deliver(Delivery::StorageCommand(*command)) {
                    return io::ErrorKind::Interrupted.into();
                }
            }
            Ok(FromController::ComputeCommand(command)) => {
                if !deliver(Delivery::ComputeCommand(*command)) {
                    return io::ErrorKind::Interrupted.into();
                }
            }
            Ok(FromController::Refused(reason)) => return io::Error::other(reason),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}
