//! The data connections of a session, by number.
//!
//! The outcome of a write whose connection broke is unknown: it may be in the socket of the daemon,
//! and be carried out later. Its number is therefore broken until a new connection has been made
//! under it, for which the daemon ends the old one, and no data connection is used before that.
//! Otherwise the old write could overwrite newer ones that were acknowledged. Other requests that
//! an old write must not undo, such as a truncation, call
//! [`Session::fence_writes`](super::Session::fence_writes) first.

use crate::system::Connection;
use forebay_net::admission::MAX_IDLE;
use forebay_net::connection::Response;
use forebay_protocol::Call;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Sequence number of all calls: a connection carries one at a time.
pub const DATA_SEQ: u64 = 1;

#[derive(Debug, Default)]
struct State {
    /// With the time of the last response; the last one was used last.
    idle: Vec<(u32, Connection, Instant)>,
    /// Numbers without a connection that nothing can be carried out on.
    unused: Vec<u32>,
    /// Numbers whose connection broke with a request in flight.
    broken: Vec<u32>,
    created: u32,
}

impl State {
    fn check(&self) {
        let known = self.idle.len() + self.unused.len() + self.broken.len();
        assert!(known <= self.created as usize, "a number is in one state");
    }
}

/// The data connections of a session.
#[derive(Debug, Default)]
pub struct DataConnections {
    state: Mutex<State>,
    /// Whether there are broken ones.
    any_broken: AtomicBool,
    /// Held while broken ones are replaced: other requests have to wait for that.
    replacing: Mutex<()>,
}

impl DataConnections {
    /// Closes idle connections.
    pub fn close_idle(&self) {
        let mut state = self.state.lock();
        let idle = std::mem::take(&mut state.idle);
        state.unused.extend(idle.into_iter().map(|(number, ..)| number));
        state.check();
    }

    pub fn has_broken(&self) -> bool {
        self.any_broken.load(Ordering::Acquire)
    }

    /// Replaces all broken connections by those that `connect` makes.
    pub fn replace_broken(
        &self,
        connect: impl Fn(u32) -> io::Result<Connection>,
    ) -> io::Result<()> {
        if !self.has_broken() {
            return Ok(());
        }
        let next = || self.state.lock().broken.last().copied();
        let _replacing = self.replacing.lock();
        while let Some(number) = next() {
            let connection = connect(number)?;
            let mut state = self.state.lock();
            // More may have broken meanwhile.
            state.broken.retain(|broken| *broken != number);
            self.any_broken.store(!state.broken.is_empty(), Ordering::Release);
            state.idle.push((number, connection, Instant::now()));
            state.check();
        }
        Ok(())
    }

    /// An idle connection, or one that `connect` makes.
    pub fn acquire(
        self: &Arc<DataConnections>,
        connect: impl Fn(u32) -> io::Result<Connection>,
    ) -> io::Result<DataConnection> {
        let mut state = self.state.lock();
        let recent = state.idle.pop().and_then(|(number, connection, used)| {
            if used.elapsed() < MAX_IDLE {
                return Some((number, connection));
            }
            // The others have been idle for longer. The daemon closes them soon.
            let older = std::mem::take(&mut state.idle);
            let numbers = older.into_iter().map(|(number, ..)| number);
            state.unused.extend(numbers.chain([number]));
            None
        });
        let (number, connection) = match recent {
            Some(idle) => idle,
            None => {
                let number = state.unused.pop().unwrap_or_else(|| {
                    state.created += 1;
                    state.created - 1
                });
                drop(state);
                match connect(number) {
                    Ok(connection) => (number, connection),
                    Err(error) => {
                        self.state.lock().unused.push(number);
                        return Err(error);
                    }
                }
            }
        };
        let connection = Some(connection);
        Ok(DataConnection { all: self.clone(), number, is_read: false, connection })
    }
}

/// A connection for one request. It is broken if this is dropped before the response was
/// [received](DataConnection::receive), and closed if the request was a [read](DataConnection::for_read).
#[derive(Debug)]
pub struct DataConnection {
    all: Arc<DataConnections>,
    number: u32,
    /// The request changes nothing.
    is_read: bool,
    /// `None` after the response was received.
    connection: Option<Connection>,
}

impl DataConnection {
    /// Sends the request.
    pub fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        assert_eq!(call.seq, DATA_SEQ);
        match &mut self.connection {
            Some(connection) => connection.send(call, payload),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Its request is a read, which may be abandoned.
    pub fn for_read(mut self) -> DataConnection {
        self.is_read = true;
        self
    }

    /// No request is sent. The connection is idle again.
    pub fn release(mut self) {
        self.make_idle();
    }

    fn make_idle(&mut self) {
        if let Some(connection) = self.connection.take() {
            let mut state = self.all.state.lock();
            state.idle.push((self.number, connection, Instant::now()));
            state.check();
        }
    }

    /// Waits for the response. The connection is idle again.
    pub fn receive(mut self, into: &mut [u8]) -> io::Result<Response> {
        let Some(connection) = &mut self.connection else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let response = connection.receive(DATA_SEQ, into)?;
        self.make_idle();
        Ok(response)
    }
}

impl Drop for DataConnection {
    fn drop(&mut self) {
        if self.connection.take().is_some() {
            let mut state = self.all.state.lock();
            let numbers = if self.is_read { &mut state.unused } else { &mut state.broken };
            numbers.push(self.number);
            self.all.any_broken.store(!state.broken.is_empty(), Ordering::Release);
            state.check();
        }
    }
}
