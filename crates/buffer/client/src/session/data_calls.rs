//! Data over the socket, on connections of their own that bypass the queue of other requests.

use super::Session;
use super::data_connections::{DATA_SEQ, DataConnection};
use forebay_protocol::message::InodeRequest;
use forebay_protocol::{Call, Errno, Reply, Request};
use std::io;

impl Session {
    /// Read or write over a bulk connection. Repeated after failures unless `once`.
    pub fn data_call(
        &self,
        request: Request,
        payload: &[u8],
        into: &mut [u8],
        once: bool,
    ) -> Result<(Reply, usize), Errno> {
        let call = bulk_call(request);
        let answer = self.persist(|| {
            let mut lane = self.data_connection()?;
            let sent = lane.send(&call, payload);
            match sent.and_then(|()| lane.receive(into)) {
                Err(error) if once => {
                    tracing::error!(%error, "it is not known whether an append was carried out");
                    Err(io::Error::other(Errno::EIO))
                }
                other => other,
            }
        })?;
        match answer.reply {
            Reply::Failed(errno) => Err(errno),
            reply => Ok((reply, answer.payload)),
        }
    }

    /// Send a request without waiting for what becomes of it. `None`: no connection took it.
    pub fn send_data_call(&self, request: Request, payload: &[u8]) -> Option<DataConnection> {
        let mut lane = self.data_connection().ok()?;
        lane.send(&bulk_call(request), payload).ok()?;
        Some(lane)
    }

    /// Forget idle bulk connections: a handle opened since the daemon restarted is unknown there.
    pub fn reset_data_connections(&self) -> Result<(), Errno> {
        self.lanes.close_idle();
        self.call(None, Request::Inode(InodeRequest::StatFs))
            .map(|_| ())
    }
}

/// What became of a request that was [sent](Session::bulk_send). `None`: it is not known.
pub fn receive_data_reply(lane: DataConnection, into: &mut [u8]) -> Option<(Reply, usize)> {
    let answer = lane.receive(into).ok()?;
    Some((answer.reply, answer.payload))
}

fn bulk_call(request: Request) -> Call {
    Call {
        seq: DATA_SEQ,
        caller: None,
        request,
    }
}
