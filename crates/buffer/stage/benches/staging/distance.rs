//! A network with a longer way: the reply to a request arrives only after the time of a round trip.

use std::io;
use std::time::{Duration, Instant};

use forebay_client::{Channel, Connection, Os, System};
use forebay_net::auth::Authenticator;
use forebay_net::connection::Response;
use forebay_protocol::Call;
use forebay_protocol::address::Address;

/// Connections with at least this time between a request and its reply.
#[derive(Debug)]
pub struct Distant(pub Duration);

impl System for Distant {
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        let (inner, round_trip) = (Os.connect(address, auth, timeout)?, self.0);
        Ok(Box::new(DistantChannel { inner, round_trip, sent_at: Instant::now() }))
    }
}

#[derive(Debug)]
struct DistantChannel {
    inner: Connection,
    round_trip: Duration,
    sent_at: Instant,
}

impl Channel for DistantChannel {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.sent_at = Instant::now();
        self.inner.send(call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        std::thread::sleep(self.round_trip.saturating_sub(self.sent_at.elapsed()));
        self.inner.receive(seq, into)
    }

    fn await_input(&self, timeout: Duration) -> io::Result<bool> {
        self.inner.await_input(timeout)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.set_timeout(timeout)
    }
}
