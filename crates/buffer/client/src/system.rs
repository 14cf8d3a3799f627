//! The services of the operating system that a client uses: clock and connections to storage
//! daemons. A simulation implements them, too, with virtual time and a network that fails.

use forebay_net::connection::{self, Response};
use forebay_net::stream::Stream;
use forebay_protocol::Call;
use forebay_protocol::address::Address;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Clock and network.
pub trait System: Debug + Send + Sync {
    /// The time on a monotonic clock.
    fn now(&self) -> Instant;
    /// Sleeps.
    fn sleep(&self, time: Duration);
    /// Connects to a daemon. The timeout applies to other hosts.
    fn connect(&self, address: &Address, timeout: Duration) -> io::Result<Connection>;
}

/// One connection to a storage daemon, with one call in flight.
pub trait Channel: Debug + Send {
    /// Sends `call` with `payload`. Its response must be received before the next call is sent, or
    /// the connection be dropped.
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()>;
    /// Receives the response to call `seq`, with its payload in `into`.
    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response>;
    /// The address of a daemon on another host, which has to authenticate itself.
    fn remote_address(&self) -> io::Result<Option<SocketAddr>>;
    /// Sets the timeout of sending and receiving.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    /// Sends `call` with `payload` and receives its response.
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

    fn connect(&self, address: &Address, timeout: Duration) -> io::Result<Connection> {
        let stream = Stream::connect(address, timeout)?;
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

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream().set_timeout(timeout)
    }
}
