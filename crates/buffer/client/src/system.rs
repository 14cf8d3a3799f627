//! The services of the operating system that a client uses: clock and connections to storage
//! daemons. A simulation implements them, too, with virtual time and a network that fails.

use forebay_net::auth::Authenticator;
use forebay_net::connection::{self, Response};
use forebay_protocol::Call;
use forebay_protocol::address::Address;
use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

/// Clock and network.
pub trait System: Debug + Send + Sync {
    /// The time on a monotonic clock.
    fn now(&self) -> Instant {
        Instant::now()
    }
    /// Sleeps.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
    /// Connects to a daemon. On another host both sides authenticate, and the timeout applies.
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection>;
}

/// One connection to a storage daemon, with one call in flight.
pub trait Channel: Debug + Send {
    /// Sends `call` with `payload`. Its response must be received before the next call is sent, or
    /// the connection be dropped.
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()>;
    /// Sends `call`, whose response is received next. A daemon of this process may have this thread
    /// carry it out.
    fn carry_out(&mut self, call: &Call) -> io::Result<()> {
        self.send(call, &[])
    }
    /// Receives the response to call `seq`, with its payload in `into`.
    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response>;
    /// Waits until something has arrived, or the daemon has closed the connection. `false`: nothing has
    /// within `timeout`. A network whose connections never hang need not wait here.
    fn await_input(&self, _timeout: Duration) -> io::Result<bool> {
        Ok(true)
    }
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
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        let connection = connection::Connection::connect_in_process(address, auth, timeout)?;
        Ok(Box::new(connection))
    }
}

impl Channel for connection::Connection {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        connection::Connection::send(self, call, payload)
    }

    fn carry_out(&mut self, call: &Call) -> io::Result<()> {
        connection::Connection::carry_out(self, call)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        connection::Connection::receive(self, seq, into)
    }

    fn await_input(&self, timeout: Duration) -> io::Result<bool> {
        connection::Connection::await_input(self, timeout)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream().set_timeout(timeout)
    }
}
