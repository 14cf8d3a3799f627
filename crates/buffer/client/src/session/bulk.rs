//! Data over the socket, on connections of their own that bypass the queue of other requests.

use super::{Session, lock};
use crate::system::Link;
use forebay_wire::{Call, Errno, Reply, Request};
use std::io;

/// A connection carries one request at a time, so that they need not be told apart.
const SEQ: u64 = 1;

impl Session {
    /// Read or write over a bulk connection. Repeated after failures unless `once`.
    pub fn bulk(
        &self,
        request: Request,
        payload: &[u8],
        into: &mut [u8],
        once: bool,
    ) -> Result<(Reply, usize), Errno> {
        let call = bulk_call(request);
        let answer = self.persist(|| {
            let link = lock(&self.pool).bulk.pop();
            let mut link = match link {
                Some(link) => link,
                None => self.connect(0, SEQ, true)?,
            };
            let answer = match link.call(&call, payload, into) {
                Err(error) if once => {
                    tracing::error!(%error, "it is not known whether an append was carried out");
                    return Err(io::Error::other(Errno::EIO));
                }
                other => other?,
            };
            lock(&self.pool).bulk.push(link);
            Ok(answer)
        })?;
        match answer.reply {
            Reply::Failed(errno) => Err(errno),
            reply => Ok((reply, answer.payload)),
        }
    }

    /// Send a request without waiting for what becomes of it. `None`: no connection took it.
    pub fn bulk_send(&self, request: Request, payload: &[u8]) -> Option<Link> {
        let link = lock(&self.pool).bulk.pop();
        let mut link = match link {
            Some(link) => link,
            None => self.connect(0, SEQ, true).ok()?,
        };
        link.send(&bulk_call(request), payload).ok()?;
        Some(link)
    }

    /// What became of a request that was [sent](Session::bulk_send). `None`: it is not known.
    pub fn bulk_receive(&self, mut link: Link, into: &mut [u8]) -> Option<(Reply, usize)> {
        let answer = link.receive(SEQ, into).ok()?;
        lock(&self.pool).bulk.push(link);
        Some((answer.reply, answer.payload))
    }

    /// Forget idle bulk connections: a handle opened since the daemon restarted is unknown there.
    pub fn renew(&self) -> Result<(), Errno> {
        lock(&self.pool).bulk.clear();
        self.call(None, Request::StatFs).map(|_| ())
    }
}

fn bulk_call(request: Request) -> Call {
    Call {
        seq: SEQ,
        caller: None,
        request,
    }
}
