//! A batch of requests whose replies are collected.

use super::counters::{RequestKind, StoreCounters};
use forebay_protocol::message::{BatchReply, BatchRequest};
use forebay_protocol::{Errno, Reply};
use std::time::Instant;

/// The replies to the requests of a batch, at most
/// [`MAX_BATCH_REQUESTS`](forebay_protocol::message::MAX_BATCH_REQUESTS).
#[derive(Debug)]
pub struct BatchInProgress {
    kinds: Vec<RequestKind>,
    replies: Vec<BatchReply>,
    /// Positions without a reply.
    missing: Vec<bool>,
    missing_count: usize,
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
        if reply.reply.is_too_long_for_batch() {
            reply = BatchReply { reply: Reply::Failed(Errno::EUNBATCHED), cacheable: false };
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
    use forebay_protocol::message::{InodeRequest, NameRequest};

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
        let long = Reply::Bytes(vec![0; 5000]);
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
