//! Many requests to several nodes, in batches.

use super::{MAX_IN_FLIGHT, Sessions};
use crate::session::{PendingBatch, Session, SessionReply};
use forebay_protocol::message::{BatchRequest, MAX_BATCH_REPLY_BYTES, MAX_BATCH_REQUESTS};
use forebay_protocol::{Credentials, Errno, NodeIndex};
use std::collections::{BTreeMap, VecDeque};

/// Longest batch in bytes, except of a single request; a message is at most 256 KiB long.
const MAX_BATCH_BYTES: usize = 192 << 10;

/// Requests for one node that are sent in one message, by their positions in a list.
type Batch = (NodeIndex, Vec<usize>);

/// Divides requests into batches by node, the first ones of all nodes before the second ones. `contents`
/// are the bytes of contents that the reply to each is expected to have; without any it is empty.
fn divide(requests: &[(NodeIndex, BatchRequest)], contents: &[usize]) -> Vec<Batch> {
    let mut by_node: BTreeMap<NodeIndex, Vec<Vec<usize>>> = BTreeMap::new();
    // The bytes for which the last batch has room, and the replies to it.
    let mut room: BTreeMap<NodeIndex, [usize; 2]> = BTreeMap::new();
    for (position, (node, request)) in requests.iter().enumerate() {
        let batches = by_node.entry(*node).or_default();
        let room = room.entry(*node).or_default();
        let bytes =
            [request.max_encoded_bytes(), contents.get(position).copied().unwrap_or_default()];
        match batches.last_mut() {
            Some(batch)
                if batch.len() < MAX_BATCH_REQUESTS
                    && bytes.iter().zip(&*room).all(|(bytes, room)| bytes <= room) =>
            {
                batch.push(position);
            }
            _ => {
                batches.push(vec![position]);
                *room = [MAX_BATCH_BYTES, MAX_BATCH_REPLY_BYTES];
            }
        }
        room.iter_mut().zip(bytes).for_each(|(room, bytes)| *room = room.saturating_sub(bytes));
    }
    let longest = by_node.values().map(Vec::len).max().unwrap_or(0);
    let mut divided = Vec::new();
    for round in 0..longest {
        for (node, batches) in &mut by_node {
            if let Some(batch) = batches.get_mut(round) {
                divided.push((*node, std::mem::take(batch)));
            }
        }
    }
    divided
}

impl Sessions {
    /// Sends independent requests to their nodes, in batches, of which each node gets several at the same
    /// time if there are many. Returns the replies in the order of the requests; a refusal is a reply, too.
    /// `contents` are the bytes of contents that each reply is expected to have; without any it is empty.
    /// A daemon of an earlier release gets the requests one by one.
    pub fn exchange_all(
        &self,
        caller: Option<&Credentials>,
        requests: &[(NodeIndex, BatchRequest)],
        contents: &[usize],
    ) -> Vec<Result<SessionReply, Errno>> {
        self.delegation.finish();
        self.pending_writes.finish();
        let mut exchange = BatchExchange {
            sessions: self,
            recalls: self.cache_recalls.count(),
            in_flight: VecDeque::new(),
            replies: requests.iter().map(|_| Err(Errno::EPROTO)).collect(),
        };
        let mut single = Vec::new();
        for (node, positions) in divide(requests, contents) {
            self.send_heartbeat_if_due(node);
            match self.session(node) {
                Ok(session) if session.takes_batches() && positions.len() > 1 => {
                    exchange.send(session, caller, requests, (node, positions));
                }
                Ok(_) => single.extend(positions),
                Err(errno) => exchange.fail(&positions, errno),
            }
        }
        while exchange.receive_first() {}
        let mut replies = exchange.replies;
        for position in single {
            if let (Some((node, request)), Some(reply)) =
                (requests.get(position), replies.get_mut(position))
            {
                *reply = self.exchange(*node, caller, request.clone().into());
            }
        }
        replies
    }
}

/// Batches in flight, and the replies so far.
struct BatchExchange<'s> {
    sessions: &'s Sessions,
    /// Recalls of the lease on names and attributes before the first batch was sent.
    recalls: u64,
    in_flight: VecDeque<(Batch, &'s Session, PendingBatch)>,
    replies: Vec<Result<SessionReply, Errno>>,
}

impl<'s> BatchExchange<'s> {
    /// Sends a batch. While no connection is idle, receives replies to those before.
    fn send(
        &mut self,
        session: &'s Session,
        caller: Option<&Credentials>,
        requests: &[(NodeIndex, BatchRequest)],
        batch: Batch,
    ) {
        let at = |position: &usize| Some(&requests.get(*position)?.1);
        let sent: Vec<&BatchRequest> = batch.1.iter().filter_map(at).collect();
        loop {
            // A thread waits for a connection only while it has none, or two could wait for each other.
            match session.send_batch(caller, &sent, self.in_flight.is_empty()) {
                Ok(Some(pending)) => {
                    self.in_flight.push_back((batch, session, pending));
                    break;
                }
                Ok(None) => {
                    self.receive_first();
                }
                Err(errno) => return self.fail(&batch.1, errno),
            }
        }
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.receive_first();
        }
    }

    /// Receives the replies to the first batch in flight. `false`: there is none.
    fn receive_first(&mut self) -> bool {
        let Some(((node, positions), session, pending)) = self.in_flight.pop_front() else {
            return false;
        };
        match session.receive_batch(pending) {
            Ok(received) => {
                assert_eq!(received.len(), positions.len());
                for (position, reply) in positions.into_iter().zip(received) {
                    let ttl = self.sessions.limit_ttl(node, reply.ttl, self.recalls);
                    self.replies[position] = Ok(SessionReply { ttl, ..reply });
                }
            }
            Err(errno) => self.fail(&positions, errno),
        }
        true
    }

    fn fail(&mut self, positions: &[usize], errno: Errno) {
        positions.iter().for_each(|position| self.replies[*position] = Err(errno));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::Ino;
    use forebay_protocol::message::{InodeRequest, NameRequest, SetAttr};

    #[test]
    fn batches_have_at_most_the_permitted_requests_and_bytes() {
        let get =
            |node| (NodeIndex(node), BatchRequest::Inode(InodeRequest::GetAttr { ino: Ino::ROOT }));
        let requests: Vec<_> = (0..100).map(|position| get(position % 2)).collect();
        let divided = divide(&requests, &[]);
        let shape: Vec<_> = divided.iter().map(|(node, batch)| (node.0, batch.len())).collect();
        assert_eq!(shape, [(0, 32), (1, 32), (0, 18), (1, 18)]);
        let mut all: Vec<usize> = divided.into_iter().flat_map(|(_, batch)| batch).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..100));

        let put = |bytes: usize| {
            let (set, data) = (Box::new(SetAttr::default()), vec![0; bytes]);
            let (parent, name) = (Ino::ROOT, b"file".to_vec());
            (NodeIndex(0), BatchRequest::Name(NameRequest::PutFile { parent, name, set, data }))
        };
        let requests = [put(64 << 10), put(64 << 10), put(63 << 10), put(1 << 10), put(500 << 10)];
        let lengths = divide(&requests, &[]).into_iter().map(|(_, batch)| batch.len());
        assert_eq!(lengths.collect::<Vec<_>>(), [3, 1, 1]);

        let requests: Vec<_> = (0..40).map(|_| get(0)).collect();
        let contents = [vec![6 << 10; 34], vec![64 << 10; 5], vec![500 << 10]].concat();
        let lengths = divide(&requests, &contents).into_iter().map(|(_, batch)| batch.len());
        assert_eq!(lengths.collect::<Vec<_>>(), [32, 4, 3, 1]);
    }
}
