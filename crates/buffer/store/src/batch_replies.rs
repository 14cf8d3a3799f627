//! The replies to the requests of a batch, which a driver sends together.

use forebay_protocol::message::{BatchReply, MAX_BATCH_REPLY_BYTES};
use forebay_protocol::{Errno, Reply};

/// The replies to the requests of a batch so far: each of its calls has one, in any order.
#[derive(Debug)]
pub struct BatchReplies {
    replies: Vec<BatchReply>,
    /// Positions without a reply.
    missing: Vec<bool>,
    missing_count: usize,
    /// Bytes of contents, paths and targets of links that further replies may have.
    room: usize,
}

impl BatchReplies {
    /// For a batch of `requests` requests.
    pub fn new(requests: usize) -> BatchReplies {
        let none = BatchReply { reply: Reply::Done, cacheable: false };
        BatchReplies {
            replies: vec![none; requests],
            missing: vec![true; requests],
            missing_count: requests,
            room: MAX_BATCH_REPLY_BYTES,
        }
    }

    /// Add the reply to the request at `position`. Returns all replies, in the order of the requests, when
    /// none is missing. Panics if the request has one.
    pub fn add(&mut self, position: usize, mut reply: BatchReply) -> Option<Vec<BatchReply>> {
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

    #[test]
    fn replies_are_complete_in_the_order_of_the_requests() {
        let mut batch = BatchReplies::new(3);
        let reply = |reply| BatchReply { reply, cacheable: false };
        let long = Reply::Bytes(vec![0; MAX_BATCH_REPLY_BYTES + 1]);
        assert_eq!(batch.add(2, reply(long)), None);
        assert_eq!(batch.add(0, reply(Reply::Failed(Errno::ESTALE))), None);
        let all = batch.add(1, reply(Reply::Done));
        let expected =
            [Reply::Failed(Errno::ESTALE), Reply::Done, Reply::Failed(Errno::EUNBATCHED)];
        assert_eq!(all, Some(expected.map(reply).to_vec()));
    }
}
