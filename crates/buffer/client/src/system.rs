//! What a client uses of the system it runs on: time, and connections to storage daemons. A
//! simulation takes the place of it, so that the same client runs in virtual time over a network
//! that fails.

use forebay_net::connection::{self, Response};
use forebay_net::stream::Stream;
use forebay_protocol::Call;
use forebay_protocol::address::Address;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time, and the way to storage daemons.
pub trait System: Debug + Send + Sync {
    /// The time on a clock that is never set.
    fn now(&self) -> Instant;
    /// Wait so long.
    fn sleep(&self, time: Duration);
    /// Connect to a daemon, waiting at most `patience` for another host.
    fn connect(&self, address: &Address, patience: Duration) -> io::Result<Connection>;
}

/// One connection to a storage daemon, with one call outstanding at a time.
pub trait Channel: Debug + Send {
    /// Send `call` with `payload`. Its reply must be received before the next call is sent, or the
    /// connection be dropped.
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()>;
    /// Wait for the reply to call `seq`; the reply's payload goes into `into`.
    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response>;
    /// Where the daemon is, if on another host, so that it has to prove who it is.
    fn remote_address(&self) -> io::Result<Option<SocketAddr>>;
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

    fn connect(&self, address: &Address, patience: Duration) -> io::Result<Connection> {
        let stream = Stream::connect(address, patience)?;
        Ok(Box::new(connection::Connection::new(stream)))
    }
}

impl Channel for connection::Connection {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        connection::Connection::send(self, call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        connection::Connection::receive(self, seq, into)
    }

    fn remote_address(&self) -> io::Result<Option<SocketAddr>> {
        connection::Connection::remote_address(self)
    }

    fn set_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream().set_timeout(patience)
    }
}
