//! The network of a client, which delays, loses and cuts.

use forebay_client::{Channel, Connection, Os, System};
use forebay_net::auth::Authenticator;
use forebay_net::connection::Response;
use forebay_protocol::Call;
use forebay_protocol::address::Address;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug, Default)]
struct Faults {
    /// No request and no reply arrives.
    is_cut: AtomicBool,
    /// Longest delay of a request and of a reply, in microseconds.
    delay_us: u64,
    /// Of as many replies one is lost with its connection; 0: none.
    losses: u64,
    count: AtomicU64,
}

#[derive(Clone, Debug, Default)]
pub struct FaultyNetwork(Arc<Faults>);

impl FaultyNetwork {
    pub fn new(delay_us: u64, losses: u64) -> FaultyNetwork {
        FaultyNetwork(Arc::new(Faults { delay_us, losses, ..Faults::default() }))
    }

    pub fn cut(&self, is_cut: bool) {
        self.0.is_cut.store(is_cut, Ordering::Release);
    }
}

impl Faults {
    /// Before a request or after a reply: whether it is lost.
    fn pass(&self, is_reply: bool) -> io::Result<()> {
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        if self.delay_us > 0 {
            std::thread::sleep(Duration::from_micros(count * 7919 % self.delay_us));
        }
        let is_lost = is_reply && self.losses > 0 && count.is_multiple_of(self.losses);
        if is_lost || self.is_cut.load(Ordering::Acquire) {
            return Err(ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl System for FaultyNetwork {
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        if self.0.is_cut.load(Ordering::Acquire) {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let connection = Os.connect(address, auth, timeout)?;
        Ok(Box::new(FaultyChannel { connection, faults: self.0.clone() }))
    }
}

#[derive(Debug)]
struct FaultyChannel {
    connection: Connection,
    faults: Arc<Faults>,
}

impl Channel for FaultyChannel {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.faults.pass(false)?;
        self.connection.send(call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        let response = self.connection.receive(seq, into)?;
        self.faults.pass(true)?;
        Ok(response)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.connection.set_timeout(timeout)
    }
}
