//! Events that other threads post to the event loop.

use super::report::StoreGauges;
use crate::node::ConnId;
use crate::objects::ObjectId;
use forebay_net::handshake::{Authenticated, Refusal};
use forebay_protocol::{Errno, Reply};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Requests for gauges that may be pending; further ones get no answer.
const MAX_GAUGE_REQUESTS: usize = 64;

/// An event for the event loop.
#[derive(Debug)]
pub enum LoopEvent {
    /// The log is durable up to this record.
    LogSynced(u64),
    /// The existence of an object is durable.
    ObjectDurable(ObjectId),
    /// The log could not be synced.
    LogFailed,
    /// The thread with this name panicked.
    ThreadPanicked(String),
    /// A worker carried out a call.
    Reply { conn: ConnId, seq: u64, reply: Reply },
    /// The MUNGE credential of a connection was verified.
    CredentialVerified { conn: ConnId, outcome: Result<Authenticated, Refusal> },
    /// The checksums of an object were invalidated durably, or could not be.
    ChecksumsInvalidated(ObjectId, Result<(), Errno>),
    /// An object was made durable, or could not be.
    ObjectSynced(ObjectId, Result<(), Errno>),
    /// The gauges of the daemon are read.
    GaugesRequested(SyncSender<StoreGauges>),
}

#[derive(Debug, Default)]
struct Inbox {
    events: Vec<LoopEvent>,
    gauge_requests: usize,
}

/// The inbox of the event loop, with a descriptor that wakes it.
#[derive(Debug)]
pub struct Mailbox {
    wake_fd: OwnedFd,
    stop: AtomicBool,
    inbox: Mutex<Inbox>,
}

impl Mailbox {
    pub fn new() -> io::Result<Mailbox> {
        Ok(Mailbox {
            wake_fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            stop: AtomicBool::new(false),
            inbox: Mutex::default(),
        })
    }

    /// Makes the event loop look at its events and timeouts again.
    pub fn wake(&self) {
        // Fails only if the counter is full, in which case the loop is awake.
        let _ = rustix::io::write(&self.wake_fd, &1u64.to_ne_bytes());
    }

    /// Make the event loop and long-running workers stop.
    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub fn is_stop_requested(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The flag behind [`is_stop_requested`](Mailbox::is_stop_requested).
    pub fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    pub fn post(&self, event: LoopEvent) {
        self.post_all([event]);
    }

    /// Post several events, which are processed in this order.
    pub fn post_all(&self, events: impl IntoIterator<Item = LoopEvent>) {
        self.inbox.lock().events.extend(events);
        self.wake();
    }

    /// Ask the event loop for its gauges.
    pub fn request_gauges(&self) -> Receiver<StoreGauges> {
        let (sender, receiver) = sync_channel(1);
        let mut inbox = self.inbox.lock();
        if inbox.gauge_requests < MAX_GAUGE_REQUESTS {
            inbox.gauge_requests += 1;
            inbox.events.push(LoopEvent::GaugesRequested(sender));
            drop(inbox);
            self.wake();
        }
        receiver
    }

    /// Take all events, in the order of their posting.
    pub fn take_events(&self) -> Vec<LoopEvent> {
        let mut count = [0; 8];
        // Fails only if nothing was posted.
        let _ = rustix::io::read(&self.wake_fd, &mut count);
        let mut inbox = self.inbox.lock();
        assert!(inbox.gauge_requests <= MAX_GAUGE_REQUESTS);
        inbox.gauge_requests = 0;
        std::mem::take(&mut inbox.events)
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_fd.as_fd()
    }
}
