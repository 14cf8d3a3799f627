//! Batches of requests: their calls, which are carried out by turns with those of other batches, and their
//! replies, which are collected.

use super::counters::{RequestKind, StoreCounters};
use crate::node::ConnId;
use forebay_protocol::message::{BatchReply, BatchRequest, MAX_BATCH_REPLY_BYTES};
use forebay_protocol::{Call, Errno, Reply};
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

/// The replies to the requests of a batch, at most
/// [`MAX_BATCH_REQUESTS`](forebay_protocol::message::MAX_BATCH_REQUESTS).
#[derive(Debug)]
pub struct BatchInProgress {
    kinds: Vec<RequestKind>,
    replies: Vec<BatchReply>,
    /// Positions without a reply.
    missing: Vec<bool>,
    missing_count: usize,
    /// Bytes of contents, paths and targets of links that further replies may have.
    room: usize,
    since: Instant,
}

impl BatchInProgress {
    /// A batch that arrived at `since`.
    pub fn new(requests: &[BatchRequest], since: Instant) -> BatchInProgress {
        let none = BatchReply { reply: Reply::Done, cacheable: false };
        BatchInProgress {
            kinds: requests.iter().map(RequestKind::of_batched).collect(),
            replies: vec![none; requests.len()],
            missing: vec![true; requests.len()],
            missing_count: requests.len(),
            room: MAX_BATCH_REPLY_BYTES,
            since,
        }
    }

    /// Add the reply to the request at `position`. Returns all replies when none is missing.
    pub fn add(
        &mut self,
        position: usize,
        mut reply: BatchReply,
        counters: &StoreCounters,
    ) -> Option<Vec<BatchReply>> {
        let failed = matches!(reply.reply, Reply::Failed(_));
        counters.count_request(self.kinds[position], self.since.elapsed(), failed);
        match self.room.checked_sub(reply.reply.variable_bytes()) {
            Some(room) => self.room = room,
            None => {
                reply = BatchReply { reply: Reply::Failed(Errno::EUNBATCHED), cacheable: false };
            }
        }
        let was_missing = std::mem::take(&mut self.missing[position]);
        assert!(was_missing, "a request has one reply");
        self.replies[position] = reply;
        self.missing_count -= 1;
        (self.missing_count == 0).then(|| std::mem::take(&mut self.replies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::Ino;
    use forebay_protocol::Request;
    use forebay_protocol::message::{InodeRequest, NameRequest};

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
    fn replies_are_complete_in_the_order_of_the_requests() {
        let requests = [
            BatchRequest::Inode(InodeRequest::GetAttr { ino: Ino(2) }),
            BatchRequest::Name(NameRequest::Unlink { parent: Ino::ROOT, name: b"a".to_vec() }),
            BatchRequest::Name(NameRequest::ReadLink { ino: Ino(3) }),
        ];
        let counters = StoreCounters::default();
        let mut batch = BatchInProgress::new(&requests, Instant::now());
        let reply = |reply| BatchReply { reply, cacheable: false };
        let long = Reply::Bytes(vec![0; MAX_BATCH_REPLY_BYTES + 1]);
        assert_eq!(batch.add(2, reply(long), &counters), None);
        assert_eq!(batch.add(0, reply(Reply::Failed(Errno::ESTALE)), &counters), None);
        let all = batch.add(1, reply(Reply::Done), &counters);
        let expected =
            [Reply::Failed(Errno::ESTALE), Reply::Done, Reply::Failed(Errno::EUNBATCHED)];
        assert_eq!(all, Some(expected.map(reply).to_vec()));
        let stats = counters.request_stats();
        let counted = ["getattr", "unlink", "readlink"].map(|kind| stats[kind].latency.count());
        assert_eq!(counted, [1, 1, 1]);
        assert_eq!((stats["getattr"].failed, stats["readlink"].failed), (1, 0));
    }
}
