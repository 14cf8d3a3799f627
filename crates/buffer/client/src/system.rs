//! What a client uses of the system it runs on: time, and connections to storage daemons. A
//! simulation takes the place of it, so that the same client runs in virtual time over a network
//! that fails.

use forebay_net::auth::Authenticator;
use forebay_net::connection::{self, Response};
use forebay_protocol::Call;
use forebay_protocol::address::Address;
use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

/// Time, and the way to storage daemons.
pub trait System: Debug + Send + Sync {
    /// The time on a clock that is never set.
    fn now(&self) -> Instant;
    /// Wait so long.
    fn sleep(&self, time: Duration);
    /// Connects to a daemon, on another host for at most `timeout`, and authenticates both sides
    /// there.
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection>;
}

/// One connection to a storage daemon, with one call outstanding at a time.
pub trait Channel: Debug + Send {
    /// Send `call` with `payload`. Its reply must be received before the next call is sent, or the
    /// connection be dropped.
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()>;
    /// Wait for the reply to call `seq`; the reply's payload goes into `into`.
    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response>;
    /// How long sending or receiving may take.
    fn set_timeout(&self, patience: Option<Duration>) -> io::Result<()>;
    /// Send `call` with `payload` and wait for its reply.
    fn call(&mut self, call: &Call, payload: &[u8], into: &mut [u8]) -> io::Result<Response> {
        self.send(call, payload)?;
        self.receive(call.seq, into)
    }
}

/// A connection.
pub type Connection = Box<dyn Channel>;

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

impl System for Os {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        let connection = connection::Connection::connect(address, auth, timeout)?;
        Ok(Box::new(connection))
    }
}

impl Channel for connection::Connection {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        connection::Connection::send(self, call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        connection::Connection::receive(self, seq, into)
    }

    fn set_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream().set_timeout(patience)
    }
}
