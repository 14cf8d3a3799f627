//! Network interfaces of nodes: queues of messages waiting to be sent as packets.

use forebay_engine::Picoseconds;
use std::collections::VecDeque;

/// Messages of each kind that an interface holds before it has no free slots.
const MAX_NIC_MESSAGES: usize = 256;

/// A message for a node's interface to send.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Receiving node.
    pub to: u32,
    /// Length.
    pub bytes: u64,
    /// Copied to each of its packets.
    pub tag: u64,
    /// Kind of message, 0 to 15; copied to each of its packets.
    pub kind: u8,
    /// Time of its creation, ps: latencies count from here.
    pub born: Picoseconds,
}

/// Interface of one node. Messages of one packet (control) go before longer ones (bulk).
#[derive(Default)]
pub(crate) struct Nic {
    control: VecDeque<Message>,
    bulk: VecDeque<Message>,
}

impl Nic {
    pub fn is_empty(&self) -> bool {
        self.control.is_empty() && self.bulk.is_empty()
    }

    /// Messages that the interface accepts of either kind.
    pub fn free_slots(&self) -> usize {
        MAX_NIC_MESSAGES.saturating_sub(self.control.len().max(self.bulk.len()))
    }

    pub fn push_message(&mut self, message: Message, is_control: bool) {
        let queue = if is_control { &mut self.control } else { &mut self.bulk };
        queue.push_back(message);
    }

    /// Takes the next packet, of at most `max_bytes`, if it has at most `credits` bytes: its
    /// message and its length.
    pub fn take_packet(&mut self, max_bytes: u32, credits: u32) -> Option<(Message, u32)> {
        let queue = if self.control.is_empty() { &mut self.bulk } else { &mut self.control };
        let message = queue.front_mut()?;
        let bytes = message.bytes.min(max_bytes.into()) as u32;
        if credits < bytes {
            return None;
        }
        message.bytes -= u64::from(bytes);
        let message = *message;
        if message.bytes == 0 {
            queue.pop_front();
        }
        Some((message, bytes))
    }
}
