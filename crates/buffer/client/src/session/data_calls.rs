//! Reads and writes over data connections, which bypass the queue of other requests.

use super::Session;
use super::data_connections::{DATA_SEQ, DataConnection};
use crate::system::Connection;
use forebay_net::connection::Response;
use forebay_protocol::message::{DataRequest, InodeRequest, StatFs};
use forebay_protocol::{Call, Errno};
use std::io;

/// Whether data may be sent over a connection that has been made.
pub type SendCheck<'a> = &'a dyn Fn() -> Result<(), Errno>;

impl Session {
    /// Reads or writes over a data connection. Repeated after failures unless `once`. Returns the
    /// bytes transferred.
    pub fn data_call(
        &self,
        request: DataRequest,
        payload: &[u8],
        into: &mut [u8],
        once: bool,
    ) -> Result<usize, Errno> {
        self.data_call_if(request, payload, into, once, &|| Ok(()))
    }

    /// As [`data_call`](Session::data_call), but fails with the error of `check`, which is made in each attempt
    /// when there is a connection.
    pub fn data_call_if(
        &self,
        request: DataRequest,
        payload: &[u8],
        into: &mut [u8],
        once: bool,
        check: SendCheck<'_>,
    ) -> Result<usize, Errno> {
        let call = Call::new(DATA_SEQ, request);
        let response = self.with_retries(|| {
            let mut connection = self.data_connection()?;
            if let Err(errno) = check() {
                connection.release();
                return Err(io::Error::other(errno));
            }
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
        transferred_bytes(response)
    }

    /// Sends a request without waiting for the reply. `None` if it could not be sent.
    pub fn send_data_call(&self, request: DataRequest, payload: &[u8]) -> Option<DataConnection> {
        let mut connection = self.data_connection().ok()?;
        connection.send(&Call::new(DATA_SEQ, request), payload).ok()?;
        Some(connection)
    }

    /// Closes idle data connections: they do not know handles that were opened since the daemon
    /// restarted.
    pub fn reset_data_connections(&self) -> Result<(), Errno> {
        self.data_connections.close_idle();
        self.call(InodeRequest::StatFs).map(|_: StatFs| ())
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

/// Receives the reply to a request that was [sent](Session::send_data_call). Returns the bytes
/// transferred, or `None` if its outcome is unknown.
pub fn receive_data_reply(
    connection: DataConnection,
    into: &mut [u8],
) -> Option<Result<usize, Errno>> {
    connection.receive(into).ok().map(transferred_bytes)
}

fn transferred_bytes(response: Response) -> Result<usize, Errno> {
    let written: Option<u32> = response.reply.try_into()?;
    Ok(written.map_or(response.payload, |count| count as usize))
}
