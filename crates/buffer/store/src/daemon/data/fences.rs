//! Lanes: a session's bulk connections, by number.
//!
//! A client whose connection breaks does not know what becomes of the write that it sent last: it may
//! still lie in this daemon's socket, or be half done. So it connects again under the same number
//! ([`Hello::slot`](forebay_protocol::message::Hello::slot)) and asks for nothing else until it is
//! welcome. By then the old connection has written the last it ever will. Otherwise it could write
//! over what was written, and answered, over another connection since.
//!
//! Other clients do not wait for that. Of a connection that its client has closed, as it does before
//! it says that a write has failed, no chunk is written once that is known here
//! ([`Stream::is_peer_gone`](forebay_net::stream::Stream::is_peer_gone)), even if all of them have
//! arrived. What is left is a chunk that was being written when the client gave up.

use forebay_protocol::SessionId;
use rustix::net::{Shutdown, shutdown};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The daemon's end of a bulk connection, as others see it.
#[derive(Debug)]
pub struct Fence {
    socket: OwnedFd,
    cut: AtomicBool,
    /// The thread that serves it is done, and writes nothing any more.
    over: Mutex<bool>,
    told: Condvar,
    /// The connection before it in its lane, until that is over.
    before: Mutex<Option<Arc<Fence>>>,
}

impl Fence {
    /// That of a connection with this socket.
    pub fn new(socket: OwnedFd) -> Arc<Fence> {
        Arc::new(Fence {
            socket,
            cut: AtomicBool::new(false),
            over: Mutex::new(false),
            told: Condvar::new(),
            before: Mutex::new(None),
        })
    }

    /// Nothing that comes over it is carried out any more, except what has been begun.
    pub fn shut_down(&self) {
        self.cut.store(true, Ordering::SeqCst);
        // Whoever waits for more wakes up. What has arrived can still be received.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Was it cut?
    pub fn is_shut_down(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Wait until it is over, and those before it are.
    fn wait(&self) {
        let mut over = lock(&self.over);
        while !*over {
            over = self.told.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
        drop(over);
        let before = lock(&self.before).take();
        if let Some(before) = before {
            before.wait();
        }
    }
}

type Key = (SessionId, u32);

/// The lanes of all sessions.
#[derive(Clone, Debug, Default)]
pub struct DataSlots(Arc<Mutex<HashMap<Key, Arc<Fence>>>>);

impl DataSlots {
    /// Is there a connection in this lane?
    pub fn is_slot_in_use(&self, session: SessionId, number: u32) -> bool {
        lock(&self.0).contains_key(&(session, number))
    }

    /// Cut the connection in a lane, if there is one.
    pub fn shut_down_slot(&self, session: SessionId, number: u32) {
        if let Some(end) = lock(&self.0).get(&(session, number)) {
            end.shut_down();
        }
    }

    /// A connection takes a lane, and that of whoever has it is cut.
    pub fn claim_slot(&self, session: SessionId, number: u32, socket: OwnedFd) -> FenceEpoch {
        let end = Fence::new(socket);
        let key = (session, number);
        let before = lock(&self.0).insert(key, end.clone());
        if let Some(before) = &before {
            before.shut_down();
        }
        *lock(&end.before) = before;
        FenceEpoch {
            lanes: self.clone(),
            key,
            end,
        }
    }
}

/// A connection has a lane, until this is dropped.
#[derive(Debug)]
pub struct FenceEpoch {
    lanes: DataSlots,
    key: Key,
    end: Arc<Fence>,
}

impl FenceEpoch {
    /// The connection's end.
    pub fn fence(&self) -> &Arc<Fence> {
        &self.end
    }

    /// Wait until the connection before this one is over. `false`: another one has come meanwhile.
    pub fn wait_for_predecessor(&self) -> bool {
        let before = lock(&self.end.before).clone();
        if let Some(before) = before {
            before.wait();
            *lock(&self.end.before) = None;
        }
        !self.end.is_shut_down()
    }
}

impl Drop for FenceEpoch {
    fn drop(&mut self) {
        let mut lanes = lock(&self.lanes.0);
        if lanes
            .get(&self.key)
            .is_some_and(|end| Arc::ptr_eq(end, &self.end))
        {
            // It never began: whoever comes next must wait for the one before it.
            let before = lock(&self.end.before).clone();
            match before.filter(|before| !*lock(&before.over)) {
                Some(before) => lanes.insert(self.key, before),
                None => lanes.remove(&self.key),
            };
        }
        *lock(&self.end.over) = true;
        self.end.told.notify_all();
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
    fn who_takes_a_lane_waits_for_all_before_and_cuts_them() {
        let lanes = DataSlots::default();
        let (mut near, far) = socket();
        let first = lanes.claim_slot(SESSION, 3, far);
        assert!(first.wait_for_predecessor() && lanes.is_slot_in_use(SESSION, 3));
        let other = lanes.claim_slot(SESSION, 4, socket().1);
        assert!(
            other.wait_for_predecessor(),
            "another lane is none of its business"
        );
        let second = lanes.claim_slot(SESSION, 3, socket().1);
        assert!(first.fence().is_shut_down() && !other.fence().is_shut_down());
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "it is closed");
        // A third one comes while the second waits, which ends without having begun.
        let third = lanes.claim_slot(SESSION, 3, socket().1);
        let (tell, told) = channel();
        let tell_too = tell.clone();
        let threads = [
            std::thread::spawn(move || tell.send((2, second.wait_for_predecessor())).unwrap()),
            std::thread::spawn(move || tell_too.send((3, third.wait_for_predecessor())).unwrap()),
        ];
        let early = told.recv_timeout(Duration::from_millis(50));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        drop(first);
        let mut outcomes: Vec<_> = told.iter().take(2).collect();
        outcomes.sort_unstable();
        assert_eq!(outcomes, [(2, false), (3, true)]);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!lanes.is_slot_in_use(SESSION, 3) && lanes.is_slot_in_use(SESSION, 4));
    }

    #[test]
    fn one_that_never_began_leaves_the_lane_to_the_one_before() {
        let lanes = DataSlots::default();
        let first = lanes.claim_slot(SESSION, 0, socket().1);
        drop(lanes.claim_slot(SESSION, 0, socket().1));
        let third = lanes.claim_slot(SESSION, 0, socket().1);
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || tell.send(third.wait_for_predecessor()).unwrap());
        let early = told.recv_timeout(Duration::from_millis(50));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        drop(first);
        assert_eq!(told.recv(), Ok(true));
        thread.join().unwrap();
    }
}
