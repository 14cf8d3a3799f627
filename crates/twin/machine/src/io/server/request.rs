//! Requests at the servers of one group.

use super::layout::Extent;
use crate::event::RequestKind;
use crate::io::locks::Object;
use forebay_workload::ior::FileId;

/// A request at a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub tag: u64,
    /// Node of the client.
    pub client: u32,
    /// Index of the server.
    pub server: u32,
    pub kind: RequestKind,
    /// The file and the first byte in it.
    pub file: FileId,
    pub offset: u64,
    pub object: Object,
    pub bytes: u64,
    /// Bytes of data missing from the client.
    pub missing: u64,
    /// Time of its arrival, ps.
    pub arrived_at: u64,
    /// Time of its dispatch, and then of the request for its data, ps.
    pub dispatched_at: u64,
}

impl Request {
    /// The bytes that a write or a read accesses.
    pub fn extent(&self) -> Extent {
        Extent { file: self.file, offset: self.offset, bytes: self.bytes }
    }
}

/// The requests at the servers of one group, by index.
#[derive(Default)]
pub(super) struct RequestTable {
    requests: Vec<Request>,
    unused: Vec<u32>,
}

impl RequestTable {
    pub fn insert(&mut self, request: Request) -> u32 {
        match self.unused.pop() {
            Some(index) => {
                self.requests[index as usize] = request;
                index
            }
            None => {
                self.requests.push(request);
                (self.requests.len() - 1) as u32
            }
        }
    }

    pub fn get(&self, index: u32) -> Request {
        self.requests[index as usize]
    }

    pub fn get_mut(&mut self, index: u32) -> &mut Request {
        &mut self.requests[index as usize]
    }

    pub fn remove(&mut self, index: u32) {
        debug_assert!(!self.unused.contains(&index), "request {index} removed twice");
        self.unused.push(index);
    }
}
