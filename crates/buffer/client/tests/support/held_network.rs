//! The network of a client that can hold a write back, and lose everything else.

use forebay_client::{Channel, Connection, Os, System};
use forebay_net::auth::Authenticator;
use forebay_net::connection::Response;
use forebay_protocol::address::Address;
use forebay_protocol::message::DataRequest;
use forebay_protocol::{Call, Request};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug, Default)]
struct Link {
    holds: AtomicBool,
    /// Writes that were held back.
    held: AtomicU64,
}

#[derive(Clone, Debug, Default)]
pub struct HeldNetwork(Arc<Link>);

impl HeldNetwork {
    /// Holds back the writes that are sent from now on, and loses all other messages; or lets the former
    /// arrive, and all later ones.
    pub fn hold(&self, holds: bool) {
        self.0.holds.store(holds, Ordering::Release);
    }

    /// The number of writes that were held back.
    pub fn held(&self) -> u64 {
        self.0.held.load(Ordering::Acquire)
    }
}

impl Link {
    fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }

    fn pass(&self) -> io::Result<()> {
        if self.holds() { Err(ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl System for HeldNetwork {
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        self.0.pass()?;
        let connection = Os.connect(address, auth, timeout)?;
        Ok(Box::new(HeldChannel { connection, link: self.0.clone(), held: None }))
    }
}

#[derive(Debug)]
struct HeldChannel {
    connection: Connection,
    link: Arc<Link>,
    /// The write that is on its way, with its data.
    held: Option<(Call, Vec<u8>)>,
}

impl Channel for HeldChannel {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        if self.link.holds() && matches!(call.request, Request::Data(DataRequest::Write { .. })) {
            self.held = Some((call.clone(), payload.to_vec()));
            self.link.held.fetch_add(1, Ordering::AcqRel);
            return Ok(());
        }
        self.link.pass()?;
        self.connection.send(call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        if let Some((call, payload)) = self.held.take() {
            while self.link.holds() {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.connection.send(&call, &payload)?;
        }
        let response = self.connection.receive(seq, into)?;
        self.link.pass()?;
        Ok(response)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.connection.set_timeout(timeout)
    }
}
