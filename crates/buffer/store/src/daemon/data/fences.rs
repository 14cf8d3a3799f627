//! Fences of data connections, one slot per connection of a session.
//!
//! A client whose connection breaks does not know the outcome of its last write: the write may
//! still be in this daemon's socket, or half done. So the client connects again with the same slot
//! ([`Attach::slot`](forebay_protocol::message::Attach::slot)) and waits for the reply. By then the
//! old connection is fenced: it has written for the last time. Otherwise it could overwrite data
//! that were acknowledged over another connection since.
//!
//! Other clients do not wait for that. A client closes its connection before it reports a failed
//! write. Once this daemon notices
//! ([`Stream::is_peer_gone`](forebay_net::stream::Stream::is_peer_gone)), it writes no further
//! chunk of that connection, even if all of them have arrived. Only a chunk that was being written
//! at that moment remains.

use forebay_protocol::SessionId;
use parking_lot::{Condvar, Mutex};
use rustix::net::{Shutdown, shutdown};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shuts a data connection down and waits until its thread has ended.
#[derive(Debug)]
pub struct Fence {
    socket: OwnedFd,
    is_shut_down: AtomicBool,
    /// The thread that serves the connection has ended and writes no more.
    ended: Mutex<bool>,
    has_ended: Condvar,
    /// The previous connection in this slot, until it has ended.
    predecessor: Mutex<Option<Arc<Fence>>>,
}

impl Fence {
    /// For a connection with this socket.
    pub fn new(socket: OwnedFd) -> Arc<Fence> {
        Arc::new(Fence {
            socket,
            is_shut_down: AtomicBool::new(false),
            ended: Mutex::new(false),
            has_ended: Condvar::new(),
            predecessor: Mutex::new(None),
        })
    }

    /// Shut the connection down. Requests that have not begun will not be carried out.
    pub fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::SeqCst);
        // Wakes a thread that waits for input. Data that arrived before can still be received.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Whether the connection was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::SeqCst)
    }

    /// Wait until this connection and its predecessors have ended.
    fn wait_until_ended(&self) {
        let mut ended = self.ended.lock();
        self.has_ended.wait_while(&mut ended, |ended| !*ended);
        drop(ended);
        let predecessor = self.predecessor.lock().take();
        if let Some(predecessor) = predecessor {
            predecessor.wait_until_ended();
        }
    }
}

type SlotKey = (SessionId, u32);

/// Slots of the data connections of all sessions.
#[derive(Clone, Debug, Default)]
pub struct DataSlots(Arc<Mutex<HashMap<SlotKey, Arc<Fence>>>>);

impl DataSlots {
    /// Whether a connection uses this slot.
    pub fn is_slot_in_use(&self, session: SessionId, slot: u32) -> bool {
        self.0.lock().contains_key(&(session, slot))
    }

    /// Shut down the connection in a slot, if there is one.
    pub fn shut_down_slot(&self, session: SessionId, slot: u32) {
        if let Some(fence) = self.0.lock().get(&(session, slot)) {
            fence.shut_down();
        }
    }

    /// Shut down all connections of a session.
    pub fn shut_down_session(&self, session: SessionId) {
        for (_, fence) in self.0.lock().iter().filter(|((of, _), _)| *of == session) {
            fence.shut_down();
        }
    }

    /// Shut down all connections and wait until their threads have ended: nothing is written after this
    /// returns.
    pub fn end_all(&self) {
        let fences: Vec<Arc<Fence>> = self.0.lock().values().cloned().collect();
        fences.iter().for_each(|fence| fence.shut_down());
        fences.iter().for_each(|fence| fence.wait_until_ended());
        assert!(self.0.lock().is_empty(), "no connection begins meanwhile");
    }

    /// Claim a slot for a connection. The connection that uses it is shut down.
    pub fn claim_slot(&self, session: SessionId, slot: u32, socket: OwnedFd) -> FenceEpoch {
        let fence = Fence::new(socket);
        let key = (session, slot);
        let predecessor = self.0.lock().insert(key, fence.clone());
        if let Some(predecessor) = &predecessor {
            predecessor.shut_down();
        }
        *fence.predecessor.lock() = predecessor;
        FenceEpoch { slots: self.clone(), key, fence }
    }
}

/// Use of a slot by one connection, which ends when this is dropped.
#[derive(Debug)]
pub struct FenceEpoch {
    slots: DataSlots,
    key: SlotKey,
    fence: Arc<Fence>,
}

impl FenceEpoch {
    pub fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }

    /// Wait until the previous connection in the slot has ended. Returns false if this connection
    /// was shut down meanwhile.
    pub fn wait_for_predecessor(&self) -> bool {
        let predecessor = self.fence.predecessor.lock().clone();
        if let Some(predecessor) = predecessor {
            predecessor.wait_until_ended();
            *self.fence.predecessor.lock() = None;
        }
        !self.fence.is_shut_down()
    }
}

impl Drop for FenceEpoch {
    fn drop(&mut self) {
        let mut slots = self.slots.0.lock();
        if slots.get(&self.key).is_some_and(|fence| Arc::ptr_eq(fence, &self.fence)) {
            // If this connection never waited for its predecessor, its successor has to.
            let predecessor = self.fence.predecessor.lock().clone();
            match predecessor.filter(|predecessor| !*predecessor.ended.lock()) {
                Some(predecessor) => slots.insert(self.key, predecessor),
                None => slots.remove(&self.key),
            };
        }
        let has_ended = std::mem::replace(&mut *self.fence.ended.lock(), true);
        assert!(!has_ended, "a connection ends once");
        self.fence.has_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    const SESSION: SessionId = SessionId(1);

    fn socket() -> (UnixStream, OwnedFd) {
        let (near, far) = UnixStream::pair().unwrap();
        (near, OwnedFd::from(far))
    }

    #[test]
    fn claiming_a_slot_shuts_down_and_waits_for_all_predecessors() {
        let slots = DataSlots::default();
        let (mut near, far) = socket();
        let first = slots.claim_slot(SESSION, 3, far);
        assert!(first.wait_for_predecessor() && slots.is_slot_in_use(SESSION, 3));
        let other = slots.claim_slot(SESSION, 4, socket().1);
        assert!(other.wait_for_predecessor(), "slots are independent");
        let second = slots.claim_slot(SESSION, 3, socket().1);
        assert!(first.fence().is_shut_down() && !other.fence().is_shut_down());
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "the socket is closed");
        // A third connection arrives while the second waits, which ends without being served.
        let third = slots.claim_slot(SESSION, 3, socket().1);
        let (outcome_of_second, outcomes) = channel();
        let outcome_of_third = outcome_of_second.clone();
        let threads = [
            std::thread::spawn(move || {
                let outcome = (2, second.wait_for_predecessor());
                outcome_of_second.send(outcome).unwrap()
            }),
            std::thread::spawn(move || {
                let outcome = (3, third.wait_for_predecessor());
                outcome_of_third.send(outcome).unwrap()
            }),
        ];
        let early = outcomes.recv_timeout(Duration::from_millis(50));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        drop(first);
        let mut received: Vec<_> = outcomes.iter().take(2).collect();
        received.sort_unstable();
        assert_eq!(received, [(2, false), (3, true)]);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!slots.is_slot_in_use(SESSION, 3) && slots.is_slot_in_use(SESSION, 4));
    }

    #[test]
    fn connection_that_never_waited_returns_the_slot_to_its_predecessor() {
        let slots = DataSlots::default();
        let first = slots.claim_slot(SESSION, 0, socket().1);
        drop(slots.claim_slot(SESSION, 0, socket().1));
        let third = slots.claim_slot(SESSION, 0, socket().1);
        let (sender, outcome) = channel();
        let thread = std::thread::spawn(move || {
            let waited = third.wait_for_predecessor();
            sender.send(waited).unwrap()
        });
        let early = outcome.recv_timeout(Duration::from_millis(50));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        drop(first);
        assert_eq!(outcome.recv(), Ok(true));
        thread.join().unwrap();
    }
}
