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
pub struct End {
    socket: OwnedFd,
    cut: AtomicBool,
    /// The thread that serves it is done, and writes nothing any more.
    over: Mutex<bool>,
    told: Condvar,
    /// The connection before it in its lane, until that is over.
    before: Mutex<Option<Arc<End>>>,
}

impl End {
    /// That of a connection with this socket.
    pub fn new(socket: OwnedFd) -> Arc<End> {
        Arc::new(End {
            socket,
            cut: AtomicBool::new(false),
            over: Mutex::new(false),
            told: Condvar::new(),
            before: Mutex::new(None),
        })
    }

    /// Nothing that comes over it is carried out any more, except what has been begun.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        // Whoever waits for more wakes up. What has arrived can still be received.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Was it cut?
    pub fn is_cut(&self) -> bool {
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
pub struct Lanes(Arc<Mutex<HashMap<Key, Arc<End>>>>);

impl Lanes {
    /// Is there a connection in this lane?
    pub fn is_taken(&self, session: SessionId, number: u32) -> bool {
        lock(&self.0).contains_key(&(session, number))
    }

    /// Cut the connection in a lane, if there is one.
    pub fn cut(&self, session: SessionId, number: u32) {
        if let Some(end) = lock(&self.0).get(&(session, number)) {
            end.cut();
        }
    }

    /// A connection takes a lane, and that of whoever has it is cut.
    pub fn take(&self, session: SessionId, number: u32, socket: OwnedFd) -> Tenure {
        let end = End::new(socket);
        let key = (session, number);
        let before = lock(&self.0).insert(key, end.clone());
        if let Some(before) = &before {
            before.cut();
        }
        *lock(&end.before) = before;
        Tenure {
            lanes: self.clone(),
            key,
            end,
        }
    }
}

/// A connection has a lane, until this is dropped.
#[derive(Debug)]
pub struct Tenure {
    lanes: Lanes,
    key: Key,
    end: Arc<End>,
}

impl Tenure {
    /// The connection's end.
    pub fn end(&self) -> &Arc<End> {
        &self.end
    }

    /// Wait until the connection before this one is over. `false`: another one has come meanwhile.
    pub fn begin(&self) -> bool {
        let before = lock(&self.end.before).clone();
        if let Some(before) = before {
            before.wait();
            *lock(&self.end.before) = None;
        }
        !self.end.is_cut()
    }
}

impl Drop for Tenure {
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
        let lanes = Lanes::default();
        let (mut near, far) = socket();
        let first = lanes.take(SESSION, 3, far);
        assert!(first.begin() && lanes.is_taken(SESSION, 3));
        let other = lanes.take(SESSION, 4, socket().1);
        assert!(other.begin(), "another lane is none of its business");
        let second = lanes.take(SESSION, 3, socket().1);
        assert!(first.end().is_cut() && !other.end().is_cut());
        assert_eq!(near.read(&mut [0]).unwrap(), 0, "it is closed");
        // A third one comes while the second waits, which ends without having begun.
        let third = lanes.take(SESSION, 3, socket().1);
        let (tell, told) = channel();
        let tell_too = tell.clone();
        let threads = [
            std::thread::spawn(move || tell.send((2, second.begin())).unwrap()),
            std::thread::spawn(move || tell_too.send((3, third.begin())).unwrap()),
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
        assert!(!lanes.is_taken(SESSION, 3) && lanes.is_taken(SESSION, 4));
    }

    #[test]
    fn one_that_never_began_leaves_the_lane_to_the_one_before() {
        let lanes = Lanes::default();
        let first = lanes.take(SESSION, 0, socket().1);
        drop(lanes.take(SESSION, 0, socket().1));
        let third = lanes.take(SESSION, 0, socket().1);
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || tell.send(third.begin()).unwrap());
        let early = told.recv_timeout(Duration::from_millis(50));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        drop(first);
        assert_eq!(told.recv(), Ok(true));
        thread.join().unwrap();
    }
}
