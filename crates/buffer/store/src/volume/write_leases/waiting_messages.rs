//! Messages of other nodes that wait until clients have given back leases.

use forebay_protocol::peer::{PeerPayload, TxId};
use forebay_protocol::{Ino, NodeIndex};
use std::collections::BTreeMap;

/// Messages that wait. Others are lost, and are sent again.
const MAX_MESSAGES: usize = 4096;
/// Time for which a message waits. Its sender repeats it more often as long as it needs the answer.
const MAX_AGE_NS: u64 = 1_000_000_000;

#[derive(Debug, PartialEq, Eq)]
struct Message {
    from: NodeIndex,
    payload: PeerPayload,
    arrived_ns: u64,
}

/// Leases for which a message waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    /// The write lease on a data object.
    WriteLease(Ino),
    /// Leases on names and attributes.
    Caches,
}

/// The messages.
#[derive(Debug, Default)]
pub struct WaitingMessages {
    messages: BTreeMap<Awaited, Vec<Message>>,
    count: usize,
}

impl WaitingMessages {
    /// A message waits from now on.
    pub fn add(&mut self, awaited: Awaited, from: NodeIndex, payload: PeerPayload, now_ns: u64) {
        let messages = self.messages.entry(awaited).or_default();
        let mut known = messages.iter_mut();
        let message = Message { from, payload, arrived_ns: now_ns };
        match known.find(|known| (known.from, &known.payload) == (from, &message.payload)) {
            Some(known) => known.arrived_ns = now_ns,
            None if self.count < MAX_MESSAGES => {
                messages.push(message);
                self.count += 1;
            }
            None => {}
        }
    }

    /// The messages that wait for this, in the order of their arrival, except old ones.
    pub fn take(&mut self, awaited: Awaited, now_ns: u64) -> Vec<(NodeIndex, PeerPayload)> {
        let messages = self.messages.remove(&awaited).unwrap_or_default();
        self.count -= messages.len();
        let recent = |message: &Message| message.arrived_ns.saturating_add(MAX_AGE_NS) >= now_ns;
        let recent = messages.into_iter().filter(recent);
        recent.map(|message| (message.from, message.payload)).collect()
    }

    /// A transaction is prepared or over: messages that would prepare it have no meaning any more.
    pub fn drop_prepares(&mut self, of: TxId) {
        let Some(messages) = self.messages.get_mut(&Awaited::Caches) else {
            return;
        };
        let before = messages.len();
        messages.retain(
            |message| !matches!(message.payload, PeerPayload::Prepare { tx, .. } if tx == of),
        );
        self.count -= before - messages.len();
    }

    /// A node has started again: its earlier messages have no meaning any more.
    pub fn drop_from(&mut self, node: NodeIndex) {
        for messages in self.messages.values_mut() {
            messages.retain(|message| message.from != node);
        }
        self.messages.retain(|_, messages| !messages.is_empty());
        self.count = self.messages.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Awaited = Awaited::WriteLease(Ino(2));
    const ONE: NodeIndex = NodeIndex(1);

    fn query(task: u64) -> PeerPayload {
        PeerPayload::StatObjects(vec![(task, Ino(2))])
    }

    #[test]
    fn repeated_message_waits_once_and_an_old_one_is_forgotten() {
        let mut waiting = WaitingMessages::default();
        waiting.add(FILE, ONE, query(1), 0);
        waiting.add(FILE, ONE, query(2), MAX_AGE_NS);
        waiting.add(FILE, ONE, query(2), MAX_AGE_NS + 1);
        assert_eq!(waiting.take(FILE, MAX_AGE_NS + 1), [(ONE, query(2))]);
        assert_eq!((waiting.take(FILE, 0), waiting.count), (Vec::new(), 0));
    }

    #[test]
    fn messages_from_before_a_restart_of_their_sender_are_dropped() {
        let mut waiting = WaitingMessages::default();
        waiting.add(FILE, ONE, query(1), 0);
        waiting.add(FILE, NodeIndex(2), query(2), 0);
        waiting.drop_from(ONE);
        assert_eq!(waiting.take(FILE, 0), [(NodeIndex(2), query(2))]);
        assert_eq!(waiting.count, 0);
    }

    #[test]
    fn number_of_messages_is_limited() {
        let mut waiting = WaitingMessages::default();
        (0..=MAX_MESSAGES as u64).for_each(|task| waiting.add(FILE, ONE, query(task), 0));
        assert_eq!(waiting.take(FILE, 0).len(), MAX_MESSAGES);
    }
}
