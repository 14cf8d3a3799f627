//! Reads whose data arrive while the caller does something else.
//!
//! The requests are on their way, one to a storage node; the nodes send as much as the sockets hold.

use super::parts::Parts;
use super::transfer;
use crate::session::{DataConnection, receive_data_reply};
use forebay_policy::layout::Extent;

/// A range of a file that was requested from its storage nodes and not received yet. If it is
/// dropped, its connections are closed.
#[derive(Debug)]
pub struct PendingRead {
    offset: u64,
    length: usize,
    extents: Vec<(Extent, DataConnection)>,
}

impl PendingRead {
    /// Requests `length` bytes at `offset`. `None`: a node would have to answer more than one request,
    /// an object is on this host, or a node cannot be reached.
    pub fn request(parts: &Parts, offset: u64, length: usize) -> Option<PendingRead> {
        let all: Vec<Extent> = transfer::message_extents(parts, offset, length).collect();
        let is_repeated = |(index, extent): (usize, &Extent)| {
            all[..index].iter().any(|earlier| earlier.node == extent.node)
        };
        if all.iter().enumerate().any(is_repeated) {
            return None;
        }
        let mut extents = Vec::with_capacity(all.len());
        for extent in all {
            let part = parts.part(extent.node).ok().filter(|part| part.object.is_none())?;
            let request = part.read_request(extent.length as usize, extent.object_offset);
            let connection = parts.session(extent.node).ok()?.send_data_call(request, &[])?;
            extents.push((extent, connection.for_read()));
        }
        Some(PendingRead { offset, length, extents })
    }

    /// The requested range: offset and length.
    pub fn range(&self) -> (u64, usize) {
        (self.offset, self.length)
    }

    /// Receives the data into `into`, which has the requested length. Returns the number of bytes, less
    /// than requested only at the end of the file. `None`: the range must be read again; `into` may
    /// contain some of the data.
    pub fn receive(self, parts: &Parts, into: &mut [u8]) -> Option<usize> {
        assert_eq!(into.len(), self.length);
        let mut rest = into;
        for (extent, connection) in self.extents {
            let (memory, others) = rest.split_at_mut(extent.length as usize);
            rest = others;
            let count = receive_data_reply(connection, memory)?.ok()?;
            if (count as u64) < extent.length {
                // On several nodes an object may also be short before a hole.
                let end = (extent.offset - self.offset) as usize + count;
                return parts.is_single_object().then_some(end);
            }
        }
        assert!(rest.is_empty(), "the extents cover the range");
        Some(self.length)
    }
}
