//! How other threads reach the event loop.

use super::counters::StoreGauges;
use crate::node::{ConnId, MungeAuthentication};
use crate::objects::ObjectId;
use forebay_protocol::{Errno, Reply};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Questions that may wait for the loop.
const MAX_ASKED: usize = 64;

/// What the syncing thread has done.
#[derive(Debug)]
pub struct Completion {
    pub replies: Vec<(ConnId, u64, Reply)>,
    pub sequence: u64,
    pub failed: bool,
}

/// How other threads reach the event loop.
#[derive(Debug)]
pub struct Mailbox {
    event: OwnedFd,
    pub stop: AtomicBool,
    done: Mutex<Vec<Completion>>,
    asked: Mutex<Vec<SyncSender<StoreGauges>>>,
    decoded: Mutex<Vec<MungeResult>>,
    unsealed: Mutex<Vec<(ObjectId, Result<(), Errno>)>>,
}

/// What a call's MUNGE credential says, as far as it is valid.
pub type MungeResult = (ConnId, u64, Option<MungeAuthentication>);

impl Mailbox {
    pub fn new() -> io::Result<Mailbox> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox {
            event,
            stop: AtomicBool::new(false),
            done: Mutex::default(),
            asked: Mutex::default(),
            decoded: Mutex::default(),
            unsealed: Mutex::default(),
        })
    }

    /// Let the loop look around.
    pub fn wake(&self) {
        // It fails only when the counter is full, and then the loop is awake already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    pub fn post_completion(&self, done: Completion) {
        self.done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(done);
        self.wake();
    }

    /// Ask the loop what the daemon has at the moment.
    pub fn request_gauges(&self) -> Receiver<StoreGauges> {
        let (sender, receiver) = sync_channel(1);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < MAX_ASKED {
            asked.push(sender); // beyond that the answer is that there is none
            self.wake();
        }
        receiver
    }

    /// Who asked since this was called last.
    pub fn take_gauge_requests(&self) -> Vec<SyncSender<StoreGauges>> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn post_decoded(&self, decoded: MungeResult) {
        self.decoded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(decoded);
        self.wake();
    }

    /// The credentials decoded since this was asked last.
    pub fn take_decoded_credentials(&self) -> Vec<MungeResult> {
        std::mem::take(&mut *self.decoded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An object's checksums were taken off, or could not be.
    pub fn post_invalidated(&self, object: ObjectId, result: Result<(), Errno>) {
        self.unsealed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((object, result));
        self.wake();
    }

    /// The objects unsealed since this was asked last.
    pub fn take_invalidated(&self) -> Vec<(ObjectId, Result<(), Errno>)> {
        std::mem::take(&mut *self.unsealed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What has been done since this was asked last; the bell is silent again.
    pub fn take_completions(&self) -> Vec<Completion> {
        let mut count = [0; 8];
        // It fails only when nobody rang.
        let _ = rustix::io::read(&self.event, &mut count);
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
