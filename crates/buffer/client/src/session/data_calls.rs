//! Reads and writes over data connections, which bypass the queue of other requests.

use super::Session;
use super::data_connections::{DATA_SEQ, DataConnection};
use crate::system::Connection;
use forebay_protocol::message::InodeRequest;
use forebay_protocol::{Call, Errno, Reply, Request};
use std::io;

impl Session {
    /// Reads or writes over a data connection. Repeated after failures unless `once`.
    pub fn data_call(
        &self,
        request: Request,
        payload: &[u8],
        into: &mut [u8],
        once: bool,
    ) -> Result<(Reply, usize), Errno> {
        let call = data_request(request);
        let response = self.with_retries(|| {
            let mut connection = self.data_connection()?;
            let sent = connection.send(&call, payload);
            match sent.and_then(|()| connection.receive(into)) {
                Err(error) if once => {
                    tracing::error!(%error, address = %self.address,
                        "connection lost: whether an append was carried out is unknown");
                    Err(io::Error::other(Errno::EIO))
                }
                other => other,
            }
        })?;
        match response.reply {
            Reply::Failed(errno) => Err(errno),
            reply => Ok((reply, response.payload)),
        }
    }

    /// Sends a request without waiting for the reply. `None` if it could not be sent.
    pub fn send_data_call(&self, request: Request, payload: &[u8]) -> Option<DataConnection> {
        let mut connection = self.data_connection().ok()?;
        connection.send(&data_request(request), payload).ok()?;
        Some(connection)
    }

    /// Closes idle data connections: they do not know handles that were opened since the daemon
    /// restarted.
    pub fn reset_data_connections(&self) -> Result<(), Errno> {
        self.data_connections.close_idle();
        self.call(None, Request::Inode(InodeRequest::StatFs)).map(|_| ())
    }

    /// Whether [`fence_writes`](Session::fence_writes) has something to do.
    pub fn has_unfenced_writes(&self) -> bool {
        self.data_connections.has_broken()
    }

    /// After this no write is carried out whose connection broke before.
    pub fn fence_writes(&self) -> Result<(), Errno> {
        if self.has_unfenced_writes() {
            self.with_retries(|| self.replace_broken_connections())?;
        }
        Ok(())
    }

    /// As [`fence_writes`](Session::fence_writes), if the daemon replies at once.
    pub fn try_fence_writes(&self) {
        if let Err(error) = self.replace_broken_connections() {
            tracing::warn!(address = %self.address, %error,
                "storage daemon unreachable: a failed write may still be carried out");
        }
    }

    fn replace_broken_connections(&self) -> io::Result<()> {
        self.data_connections.replace_broken(|number| self.connect_data(number))
    }

    fn data_connection(&self) -> io::Result<DataConnection> {
        self.replace_broken_connections()?;
        self.data_connections.acquire(|number| self.connect_data(number))
    }

    fn connect_data(&self, number: u32) -> io::Result<Connection> {
        self.connect(number, DATA_SEQ, true)
    }
}

/// Receives the reply to a request that was [sent](Session::send_data_call), and the bytes of its
/// payload. `None` if its outcome is unknown.
pub fn receive_data_reply(connection: DataConnection, into: &mut [u8]) -> Option<(Reply, usize)> {
    let response = connection.receive(into).ok()?;
    Some((response.reply, response.payload))
}

fn data_request(request: Request) -> Call {
    Call { seq: DATA_SEQ, caller: None, request }
}
