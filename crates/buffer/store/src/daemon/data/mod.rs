//! Bulk connections: data of clients on other hosts, one thread each, past the event loop.
//!
//! # Past the page cache
//!
//! Large requests may go past the page cache ([`Direct`]), while others, and clients of this host
//! who have the object's descriptor, go through it. They see each other's data as they should:
//!
//! - A direct read first has the kernel write out what is dirty in its range, also by memory maps.
//! - A direct write throws its range out of the page cache before and again after it, and ends
//!   after that: whoever reads through the cache when the write was answered reads the new data.
//!   Writes through system calls are kept apart from it by the file system's lock of the inode.
//! - A memory map takes no such lock. If it makes a page dirty between a direct write's two looks
//!   at the cache, the old bytes around its own stay there and are written over the new ones. So an
//!   object is not written to directly while a client of this host has a descriptor to write to
//!   it; and if one was passed meanwhile, which is looked up when the direct write has ended, the
//!   same data are written once more through the cache before anything is answered. What remains
//!   is a program that keeps a map after it has closed the file with the library; the mount keeps
//!   its file open as long as the kernel has a map.
//! - A request's first and last bytes may lie in the middle of pages. Chunks end at multiples of
//!   256 KiB of the object, so only the first and the last can be unaligned; those go through the
//!   cache, and no page gets data both ways.

mod fences;
mod open_objects;
mod path;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use fences::{DataSlots, Fence};
pub use open_objects::OpenObjects;
pub use path::{DataPath, Direct, probe};

use super::counters::{RequestKind, StoreCounters};
use super::flights::{Aligned, Engine};
use crate::objects::DiskObjects;
use forebay_net::chunk::ChunkSource;
use forebay_net::frame::{self, Direction, Flags, FrameError, HEADER_BYTES};
use forebay_net::stream::Stream;
use forebay_protocol::message::DataRequest;
use forebay_protocol::message::MAX_DATA;
use forebay_protocol::{Call, Errno, Reply, Request, SessionId};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// What all bulk connections share.
#[derive(Clone, Copy)]
pub struct DataContext<'a> {
    pub opens: &'a OpenObjects,
    pub objects: &'a DiskObjects,
    pub counters: &'a StoreCounters,
    pub path: DataPath,
    /// The connection's own.
    pub end: &'a Arc<Fence>,
}

/// One bulk connection.
struct DataConnection<'a> {
    stream: &'a Stream,
    opens: &'a OpenObjects,
    objects: &'a DiskObjects,
    counters: &'a StoreCounters,
    path: DataPath,
    end: &'a Arc<Fence>,
    /// Room for one request's data.
    memory: Aligned,
    /// Made when it is needed first.
    engine: Option<Engine>,
}

fn engine(path: DataPath) -> Engine {
    Engine::new(path.uring)
}

fn put_failure(out: &mut Vec<u8>, seq: u64, errno: Errno) -> Result<(), FrameError> {
    out.clear();
    frame::encode_reply(out, seq, Flags::default(), &Reply::Failed(errno), 0)
}

/// Serve a bulk connection until the peer closes it. `received` has arrived already.
pub fn serve_data_connection(
    stream: &Stream,
    received: &[u8],
    session: SessionId,
    shared: DataContext<'_>,
) -> io::Result<()> {
    let DataContext {
        opens,
        objects,
        counters,
        path,
        end,
    } = shared;
    stream.set_nonblocking(false)?;
    let mut input = DataInput {
        stream,
        end,
        pending: received.to_vec(),
        taken: 0,
    };
    let mut lane = DataConnection {
        stream,
        opens,
        objects,
        counters,
        path,
        end,
        memory: Aligned::new(MAX_DATA)?,
        engine: None,
    };
    let mut body = Vec::new();
    let mut out = Vec::new();
    while let Some(asked) = input.call(&mut body)? {
        counters.received.add(asked.received);
        let kind = RequestKind::of(&asked.call.request);
        let IncomingCall {
            call,
            payload,
            begun,
            ..
        } = asked;
        let open = |handle| opens.get_handle(session, handle);
        let reply = match call.request {
            Request::Data(DataRequest::Read {
                handle,
                offset,
                length,
            }) => {
                let length = (length as usize).min(MAX_DATA);
                let open = open(handle);
                let open = open.as_deref().map_err(|errno| *errno);
                let (sent, failed) = lane.read(call.seq, open, offset, length)?;
                counters.sent.add(sent);
                counters.count_request(kind, begun.elapsed(), failed);
                continue;
            }
            Request::Data(DataRequest::Write {
                handle,
                offset,
                append,
            }) => {
                let open = open(handle);
                let open = open.as_deref().map_err(|errno| *errno);
                lane.write(&mut input, open, offset, append, payload)?
            }
            Request::Session(_)
            | Request::Admin(_)
            | Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Peer(_) => Err(Errno::EOPNOTSUPP),
        };
        let reply = reply.unwrap_or_else(Reply::Failed);
        out.clear();
        frame::encode_reply(&mut out, call.seq, Flags::default(), &reply, 0)?;
        stream.send_all(&out, &[], None)?;
        counters.sent.add(out.len() as u64);
        counters.count_request(kind, begun.elapsed(), matches!(reply, Reply::Failed(_)));
    }
    Ok(())
}

/// A request, but for its data, which follow.
struct IncomingCall {
    call: Call,
    /// Bytes of data that follow.
    payload: usize,
    /// Bytes of all of it.
    received: u64,
    /// When it began to arrive.
    begun: Instant,
}

struct DataInput<'a> {
    stream: &'a Stream,
    end: &'a Fence,
    pending: Vec<u8>,
    taken: usize,
}

impl DataInput<'_> {
    /// What has arrived already, at the front of `into`. Returns how much.
    fn ready(&mut self, into: &mut [u8]) -> usize {
        let ready = (self.pending.len() - self.taken).min(into.len());
        into[..ready].copy_from_slice(&self.pending[self.taken..self.taken + ready]);
        self.taken += ready;
        ready
    }

    /// The next request, read by way of `body`; `None` if the peer has closed.
    fn call(&mut self, body: &mut Vec<u8>) -> io::Result<Option<IncomingCall>> {
        let Some(head) = self.header()? else {
            return Ok(None);
        };
        let begun = Instant::now();
        let header = frame::parse_header(&head)?;
        if header.direction != Direction::Call {
            return Err(FrameError::Kind.into());
        }
        body.resize(header.body, 0);
        self.fill(body)?;
        let call: Call = frame::decode_body(&head, &header, body)?;
        let is_write = matches!(call.request, Request::Data(DataRequest::Write { .. }));
        if header.payload > 0 && !is_write {
            return Err(FrameError::Kind.into());
        }
        Ok(Some(IncomingCall {
            call,
            payload: header.payload,
            received: (HEADER_BYTES + header.body + header.payload) as u64,
            begun,
        }))
    }

    /// The header of the next request; `None` if the peer has closed.
    fn header(&mut self) -> io::Result<Option<[u8; HEADER_BYTES]>> {
        let mut head = [0; HEADER_BYTES];
        let mut have = self.ready(&mut head);
        if have == 0 {
            have = self.stream.receive(&mut head, &mut VecDeque::new())?;
        }
        if have == 0 {
            return Ok(None);
        }
        self.fill(&mut head[have..])?;
        Ok(Some(head))
    }
}

impl ChunkSource for DataInput<'_> {
    fn fill(&mut self, into: &mut [u8]) -> io::Result<()> {
        let have = self.ready(into);
        self.stream
            .receive_all(&mut into[have..], &mut VecDeque::new())
    }
}
