//! Lanes: a session's bulk connections, by number.
//!
//! Of a write whose connection broke nobody knows whether it is still going to be carried out: it may
//! lie in the daemon's socket. A lane is therefore broken until another connection has been made
//! under its number, for which the daemon ends the old one, and nothing is asked on any lane before
//! that. Else the old write could go over newer ones that were answered. What else must not be undone
//! by it, such as a cut, asks for that first ([`Session::end_old_writes`]).

use super::{Session, lock};
use crate::system::Connection;
use forebay_net::connection::Response;
use forebay_protocol::{Call, Errno};
use std::io;
use std::sync::{Arc, Mutex};

/// A connection carries one request at a time, so that they need not be told apart.
pub const DATA_SEQ: u64 = 1;

#[derive(Debug, Default)]
struct Book {
    idle: Vec<(u32, Connection)>,
    /// Numbers without a connection and without anything that could still be carried out.
    spare: Vec<u32>,
    /// Numbers whose connection broke with a request under way.
    broken: Vec<u32>,
    made: u32,
}

/// A session's lanes.
#[derive(Debug, Default)]
pub struct DataConnections {
    book: Mutex<Book>,
    /// Held while broken ones are mended: others have to wait for that.
    mending: Mutex<()>,
}

impl DataConnections {
    /// Close connections that carry nothing.
    pub fn close_idle(&self) {
        let mut book = lock(&self.book);
        let idle = std::mem::take(&mut book.idle);
        book.spare
            .extend(idle.into_iter().map(|(number, _)| number));
    }
}

/// A lane for one request. It is broken if this is dropped before the [answer](Lane::done) is there.
#[derive(Debug)]
pub struct DataConnection {
    lanes: Arc<DataConnections>,
    number: u32,
    link: Option<Connection>,
}

impl DataConnection {
    /// Send a request, the only one.
    pub fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        match &mut self.link {
            Some(link) => link.send(call, payload),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Wait for the answer. The lane is free again.
    pub fn receive(mut self, into: &mut [u8]) -> io::Result<Response> {
        let Some(mut link) = self.link.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let answer = link.receive(DATA_SEQ, into)?;
        lock(&self.lanes.book).idle.push((self.number, link));
        self.number = u32::MAX;
        Ok(answer)
    }
}

impl Drop for DataConnection {
    fn drop(&mut self) {
        if self.number != u32::MAX {
            lock(&self.lanes.book).broken.push(self.number);
        }
    }
}

impl Session {
    /// A lane for a request.
    pub(super) fn data_connection(&self) -> io::Result<DataConnection> {
        self.mend()?;
        let mut book = lock(&self.lanes.book);
        let (number, link) = match book.idle.pop() {
            Some(idle) => idle,
            None => {
                let number = book.spare.pop().unwrap_or_else(|| {
                    book.made += 1;
                    book.made - 1
                });
                drop(book);
                match self.connect(number, DATA_SEQ, true) {
                    Ok(link) => (number, link),
                    Err(error) => {
                        lock(&self.lanes.book).spare.push(number);
                        return Err(error);
                    }
                }
            }
        };
        Ok(DataConnection {
            lanes: self.lanes.clone(),
            number,
            link: Some(link),
        })
    }

    /// May there be writes left to which [`end_old_writes`](Session::end_old_writes) puts an end?
    pub fn has_unfenced_writes(&self) -> bool {
        !lock(&self.lanes.book).broken.is_empty()
    }

    /// After this nothing is carried out any more that was sent on connections that broke before.
    pub fn fence_writes(&self) -> Result<(), Errno> {
        if self.has_unfenced_writes() {
            self.persist(|| self.mend())?;
        }
        Ok(())
    }

    /// The same if the daemon answers at once.
    pub fn try_fence_writes(&self) {
        if let Err(error) = self.mend() {
            tracing::warn!(address = %self.address, %error,
                "a write that failed may still be carried out");
        }
    }

    /// Make sure that nothing is carried out any more that was sent on connections that broke.
    fn mend(&self) -> io::Result<()> {
        let next = || lock(&self.lanes.book).broken.last().copied();
        if next().is_none() {
            return Ok(());
        }
        let _turn = lock(&self.lanes.mending);
        while let Some(number) = next() {
            let link = self.connect(number, DATA_SEQ, true)?;
            let mut book = lock(&self.lanes.book);
            // Others may have been added meanwhile.
            book.broken.retain(|broken| *broken != number);
            book.idle.push((number, link));
        }
        Ok(())
    }
}
