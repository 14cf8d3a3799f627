//! How other threads reach the event loop.

use super::counters::Present;
use crate::objects::ObjectId;
use crate::shard::{ConnId, Proven};
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
pub struct Done {
    pub replies: Vec<(ConnId, u64, Reply)>,
    pub sequence: u64,
    pub failed: bool,
}

/// How other threads reach the event loop.
#[derive(Debug)]
pub struct Wake {
    event: OwnedFd,
    pub stop: AtomicBool,
    done: Mutex<Vec<Done>>,
    asked: Mutex<Vec<SyncSender<Present>>>,
    decoded: Mutex<Vec<Decoded>>,
    unsealed: Mutex<Vec<(ObjectId, Result<(), Errno>)>>,
}

/// What a call's MUNGE credential says, as far as it is valid.
pub type Decoded = (ConnId, u64, Option<Proven>);

impl Wake {
    pub fn new() -> io::Result<Wake> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake {
            event,
            stop: AtomicBool::new(false),
            done: Mutex::default(),
            asked: Mutex::default(),
            decoded: Mutex::default(),
            unsealed: Mutex::default(),
        })
    }

    /// Let the loop look around.
    pub fn ring(&self) {
        // It fails only when the counter is full, and then the loop is awake already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    pub fn done(&self, done: Done) {
        self.done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(done);
        self.ring();
    }

    /// Ask the loop what the daemon has at the moment.
    pub fn ask(&self) -> Receiver<Present> {
        let (sender, receiver) = sync_channel(1);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < MAX_ASKED {
            asked.push(sender); // beyond that the answer is that there is none
            self.ring();
        }
        receiver
    }

    /// Who asked since this was called last.
    pub fn asked(&self) -> Vec<SyncSender<Present>> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn decoded(&self, decoded: Decoded) {
        self.decoded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(decoded);
        self.ring();
    }

    /// The credentials decoded since this was asked last.
    pub fn take_decoded(&self) -> Vec<Decoded> {
        std::mem::take(&mut *self.decoded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An object's checksums were taken off, or could not be.
    pub fn unsealed(&self, object: ObjectId, result: Result<(), Errno>) {
        self.unsealed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((object, result));
        self.ring();
    }

    /// The objects unsealed since this was asked last.
    pub fn take_unsealed(&self) -> Vec<(ObjectId, Result<(), Errno>)> {
        std::mem::take(&mut *self.unsealed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What has been done since this was asked last; the bell is silent again.
    pub fn take(&self) -> Vec<Done> {
        let mut count = [0; 8];
        // It fails only when nobody rang.
        let _ = rustix::io::read(&self.event, &mut count);
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
