//! Batches of requests: their calls, which are carried out by turns with those of other batches, and their
//! replies, which are collected.

use super::counters::{RequestKind, StoreCounters};
use crate::node::{BatchReplies, ConnId};
use forebay_protocol::message::{BatchReply, BatchRequest};
use forebay_protocol::{Call, Reply};
use std::collections::VecDeque;
use std::time::Instant;

/// Batches whose calls are not all carried out. A connection has one in progress, so there are never more of
/// them than connections.
#[derive(Debug, Default)]
pub struct BatchQueue(VecDeque<std::vec::IntoIter<(ConnId, Call)>>);

impl BatchQueue {
    /// Add the calls of a batch, which is not empty.
    pub fn push(&mut self, calls: Vec<(ConnId, Call)>) {
        assert!(!calls.is_empty());
        self.0.push_back(calls.into_iter());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next call of the first batch.
    pub fn next_call(&mut self) -> Option<(ConnId, Call)> {
        let calls = self.0.front_mut()?;
        let next = calls.next();
        if calls.len() == 0 {
            self.0.pop_front();
        }
        next
    }

    /// The turn of the first batch is over.
    pub fn rotate(&mut self) {
        if let Some(calls) = self.0.pop_front() {
            self.0.push_back(calls);
        }
    }

    /// Drop the calls of a connection that is closed.
    pub fn remove(&mut self, conn: ConnId) {
        let is_other = |(of, _): &(ConnId, Call)| of.connection() != conn;
        self.0.retain(|calls| calls.as_slice().first().is_some_and(is_other));
    }
}

/// A batch in progress: its replies so far, of which each is counted as that to a request of its kind.
#[derive(Debug)]
pub struct BatchInProgress {
    kinds: Vec<RequestKind>,
    replies: BatchReplies,
    since: Instant,
}

impl BatchInProgress {
    /// A batch that arrived at `since`.
    pub fn new(requests: &[BatchRequest], since: Instant) -> BatchInProgress {
        BatchInProgress {
            kinds: requests.iter().map(RequestKind::of_batched).collect(),
            replies: BatchReplies::new(requests.len()),
            since,
        }
    }

    /// Add the reply to the request at `position`. Returns all replies when none is missing.
    pub fn add(
        &mut self,
        position: usize,
        reply: BatchReply,
        counters: &StoreCounters,
    ) -> Option<Vec<BatchReply>> {
        let failed = matches!(reply.reply, Reply::Failed(_));
        counters.count_request(self.kinds[position], self.since.elapsed(), failed);
        self.replies.add(position, reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::message::{InodeRequest, NameRequest};
    use forebay_protocol::{Errno, Ino, Request};

    #[test]
    fn batches_take_turns_and_those_of_closed_connections_are_dropped() {
        let calls = |conn: u64, count: usize| {
            let call = |position| {
                let request = Request::Inode(InodeRequest::StatFs);
                (ConnId(conn).at_position(position), Call::new(conn, request))
            };
            (0..count).map(call).collect::<Vec<_>>()
        };
        let mut queue = BatchQueue::default();
        queue.push(calls(1, 3));
        queue.push(calls(2, 1));
        queue.push(calls(3, 9));
        let mut next = |rotates: bool| {
            let (conn, _) = queue.next_call()?;
            if rotates {
                queue.rotate();
            }
            if conn.connection() == ConnId(3) {
                queue.remove(ConnId(3));
            }
            Some((conn.connection().0, conn.position()?))
        };
        assert_eq!([next(false), next(true)], [Some((1, 0)), Some((1, 1))]);
        assert_eq!([next(false), next(false)], [Some((2, 0)), Some((3, 0))]);
        assert_eq!([next(false), next(false)], [Some((1, 2)), None]);
        assert!(queue.is_empty());
    }

    #[test]
    fn replies_are_counted_by_the_kinds_of_their_requests() {
        let requests = [
            BatchRequest::Inode(InodeRequest::GetAttr { ino: Ino(2) }),
            BatchRequest::Name(NameRequest::Unlink { parent: Ino::ROOT, name: b"a".to_vec() }),
            BatchRequest::Name(NameRequest::ReadLink { ino: Ino(3) }),
        ];
        let counters = StoreCounters::default();
        let mut batch = BatchInProgress::new(&requests, Instant::now());
        let reply = |reply| BatchReply { reply, cacheable: false };
        assert_eq!(batch.add(2, reply(Reply::Bytes(b"target".to_vec())), &counters), None);
        assert_eq!(batch.add(0, reply(Reply::Failed(Errno::ESTALE)), &counters), None);
        assert!(batch.add(1, reply(Reply::Done), &counters).is_some());
        let stats = counters.request_stats();
        let counted = ["getattr", "unlink", "readlink"].map(|kind| stats[kind].latency.count());
        assert_eq!(counted, [1, 1, 1]);
        assert_eq!((stats["getattr"].failed, stats["readlink"].failed), (1, 0));
    }
}
