//! The thread of the event loop, which waits only in `epoll`, and calls that clients in this process carry
//! out on their own threads.

use super::connections::{MAX_EVENTS, wait_for_events};
use super::event_loop::EventLoop;
use super::mailbox::Mailbox;
use crate::node::ConnId;
use forebay_net::in_process::{ConnectionNumber, Delivery, InProcessService};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which a thread waits until others have done with the event loop. Then its call goes through
/// the socket, where the client's timeouts apply: a disk may hang.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// The outcome of acting on the event loop.
enum Acted<T> {
    /// It is done.
    Done(T),
    /// Another thread has the event loop for long.
    Busy,
    /// The daemon does not serve, or has just ended.
    Ended,
}

/// The event loop, as long as the daemon serves.
struct State {
    event_loop: EventLoop,
    /// Time until which the thread waits at most; `None`: without limit.
    waits_until: Option<Instant>,
}

impl State {
    /// Whether something is due before the thread looks for it.
    fn is_due_earlier(&self) -> bool {
        let Some(timeout) = self.event_loop.wait_timeout() else {
            return false;
        };
        // A millisecond is the precision of timers.
        let due = Instant::now() + timeout + Duration::from_millis(1);
        self.waits_until.is_none_or(|until| due < until)
    }
}

/// The event loop and its thread. Other threads may carry out calls while that waits.
pub struct EventLoopThread {
    /// `None`: the daemon does not serve any more.
    state: Mutex<Option<State>>,
    /// The reason for which another thread has ended the service.
    failure: Mutex<Option<io::Error>>,
    epoll: Arc<OwnedFd>,
    mailbox: Arc<Mailbox>,
    /// User and group of the daemon on file systems.
    identity: (u32, u32),
}

impl EventLoopThread {
    /// Of an event loop that has not begun.
    pub fn new(event_loop: EventLoop) -> EventLoopThread {
        EventLoopThread {
            epoll: event_loop.connections.epoll(),
            mailbox: event_loop.mailbox.clone(),
            state: Mutex::new(Some(State { event_loop, waits_until: None })),
            failure: Mutex::new(None),
            identity: file_system_identity(),
        }
    }

    /// Serve until stopped or until the storage fails.
    pub fn run(&self) -> io::Result<()> {
        if let Err(error) = forebay_net::time_slice::shorten_time_slice() {
            tracing::debug!(%error, "the event loop has the time slices of other threads");
        }
        // Also after a panic nobody uses the event loop any more.
        let end = EndOfService(self);
        let served = self.serve();
        if let Err(error) = &served {
            tracing::error!(%error, "storage daemon stops");
        }
        match end.take() {
            Some(State { event_loop, .. }) => event_loop.end(served),
            None => served,
        }
    }

    fn serve(&self) -> io::Result<()> {
        self.act(|state| state.event_loop.begin())?;
        let mut events = Vec::with_capacity(MAX_EVENTS);
        while !self.mailbox.is_stop_requested() {
            let timeout = self.act(|state| {
                let timeout = state.event_loop.wait_timeout();
                state.waits_until = timeout.map(|timeout| Instant::now() + timeout);
                Ok(timeout)
            })?;
            wait_for_events(&self.epoll, timeout, &mut events)?;
            self.act(|state| state.event_loop.process_events(&events))?;
        }
        Ok(())
    }

    /// Acts on the event loop on its own thread.
    ///
    /// # Errors
    /// Those of `act`, and that with which another thread has ended the service.
    fn act<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut guard = self.state.lock();
        if let Some(failure) = self.failure.lock().take() {
            return Err(failure);
        }
        match &mut *guard {
            Some(state) => act(state),
            None => unreachable!("the event loop is taken away with a reason, or by this thread"),
        }
    }

    /// Whether the calling thread may act on the event loop: one with the identity of another user cannot
    /// create data objects, for example.
    fn may_act(&self) -> bool {
        file_system_identity() == self.identity
    }

    /// Has another thread than that of the event loop act on it.
    fn act_for_client<T>(&self, act: impl FnOnce(&mut EventLoop) -> io::Result<T>) -> Acted<T> {
        let Some(mut guard) = self.state.try_lock_for(LOCK_TIMEOUT) else {
            return Acted::Busy;
        };
        let Some(state) = guard.as_mut() else {
            return Acted::Ended;
        };
        if self.mailbox.is_stop_requested() || self.failure.lock().is_some() {
            return Acted::Ended;
        }
        let error = match catch_unwind(AssertUnwindSafe(|| act(&mut state.event_loop))) {
            Ok(Ok(value)) => {
                if state.is_due_earlier() {
                    self.mailbox.wake();
                }
                return Acted::Done(value);
            }
            // The thread of the event loop ends the service.
            Ok(Err(error)) => error,
            Err(_) => {
                // Nobody may use the event loop any more, as when its own thread panics.
                drop(guard.take());
                io::Error::other("the storage daemon panicked in a call of this process")
            }
        };
        *self.failure.lock() = Some(error);
        self.mailbox.wake();
        Acted::Ended
    }
}

impl InProcessService for EventLoopThread {
    fn accept(&self, socket: UnixStream) -> io::Result<Option<ConnectionNumber>> {
        if !self.may_act() {
            return Ok(None);
        }
        match self.act_for_client(|event_loop| event_loop.accept_in_process(socket)) {
            Acted::Done(Some(id)) => Ok(Some(id.0)),
            Acted::Done(None) | Acted::Ended => Err(io::ErrorKind::ConnectionRefused.into()),
            Acted::Busy => Ok(None),
        }
    }

    fn deliver(&self, connection: ConnectionNumber, frame: &[u8]) -> Delivery {
        if !self.may_act() {
            return Delivery::NeedsSocket;
        }
        let id = ConnId(connection);
        let process = |event_loop: &mut EventLoop| event_loop.process_call_in_process(id, frame);
        match self.act_for_client(process) {
            Acted::Done(true) => Delivery::Accepted,
            Acted::Busy => Delivery::NeedsSocket,
            Acted::Done(false) | Acted::Ended => Delivery::NotServed,
        }
    }
}

impl fmt::Debug for EventLoopThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoopThread").finish_non_exhaustive()
    }
}

/// Takes the event loop away from other threads when it is dropped.
struct EndOfService<'a>(&'a EventLoopThread);

impl EndOfService<'_> {
    fn take(&self) -> Option<State> {
        self.0.state.lock().take()
    }
}

impl Drop for EndOfService<'_> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// User and group with which this thread uses file systems.
fn file_system_identity() -> (u32, u32) {
    // SAFETY: the calls take no pointers; with an invalid id they change nothing.
    let (user, group) = unsafe { (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX)) };
    (user.cast_unsigned(), group.cast_unsigned())
}
