//! Network interfaces of nodes: queues of messages waiting to be sent as packets.

use forebay_engine::Picoseconds;
use std::collections::VecDeque;

/// Messages in each queue of an interface before it has no free slots.
pub(crate) const MAX_NIC_MESSAGES: usize = 256;

/// The class of a message. Classes have separate buffers in nodes and routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageClass {
    /// Requests, and data.
    Request,
    /// Acknowledgements and other short answers: they pass the requests' queues.
    Response,
}

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
    /// Class of its packets.
    pub class: MessageClass,
    /// Time of its creation, ps: latencies count from here.
    pub born: Picoseconds,
}

/// Interface of one node. It has a queue for short messages (of one packet) and one for long messages
/// of each class, and takes packets from these queues in turn.
#[derive(Clone, Default)]
#[repr(C, align(64))]
pub(crate) struct Nic {
    /// The queue from which the next packet is taken if it has one.
    turn: u8,
    /// One bit for each queue that is not empty.
    filled: u8,
    /// Short and long messages of the first class, then of the second.
    queues: [VecDeque<Message>; 4],
}

impl Nic {
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Messages that the interface accepts of any kind.
    pub fn free_slots(&self) -> usize {
        let longest = self.queues.iter().map(VecDeque::len).max().unwrap_or(0);
        MAX_NIC_MESSAGES.saturating_sub(longest)
    }

    pub fn push_message(&mut self, message: Message, is_short: bool) {
        let number = 2 * message.class as usize + usize::from(!is_short);
        self.queues[number].push_back(message);
        self.filled |= 1 << number;
    }

    /// Takes the next packet, of at most `max_bytes`, from the first queue in turn whose class has
    /// enough of the `credits`: its message and its length. The first `interleaved` messages of a queue
    /// send their packets in turn.
    pub fn take_packet(
        &mut self,
        max_bytes: u32,
        interleaved: usize,
        credits: [u32; 2],
    ) -> Option<(Message, u32)> {
        for step in 0..4 {
            let number = (self.turn + step) % 4;
            if self.filled & (1 << number) == 0 {
                continue;
            }
            let queue = &mut self.queues[usize::from(number)];
            let Some(message) = queue.front_mut() else { continue };
            let bytes = message.bytes.min(max_bytes.into()) as u32;
            if credits[usize::from(number / 2)] < bytes {
                continue;
            }
            message.bytes -= u64::from(bytes);
            let message = *message;
            if message.bytes == 0 {
                queue.pop_front();
                if queue.is_empty() {
                    self.filled &= !(1 << number);
                }
            } else {
                // The next packet of this queue comes from the next of the interleaved messages.
                let last = queue.len().min(interleaved) - 1;
                for i in 0..last {
                    queue.swap(i, i + 1);
                }
            }
            self.turn = (number + 1) % 4;
            return Some((message, bytes));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u64, bytes: u64, class: MessageClass) -> Message {
        Message { to: 0, bytes, tag, kind: 0, class, born: 0 }
    }

    fn order_of(nic: &mut Nic, interleaved: usize, credits: [u32; 2]) -> Vec<u64> {
        let take = || nic.take_packet(10, interleaved, credits);
        std::iter::from_fn(take).map(|(m, _)| m.tag).collect()
    }

    fn order(nic: &mut Nic, credits: [u32; 2]) -> Vec<u64> {
        order_of(nic, 4, credits)
    }

    #[test]
    fn long_messages_are_interleaved_as_many_at_a_time_as_the_machine_says() {
        for (interleaved, expected) in [
            (4, [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 4, 5]),
            (2, [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5]),
            (1, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        ] {
            let mut nic = Nic::default();
            for tag in 0..6 {
                nic.push_message(message(tag, 20, MessageClass::Request), false);
            }
            assert_eq!(order_of(&mut nic, interleaved, [10, 10]), expected);
        }
    }

    #[test]
    fn short_and_long_messages_take_turns() {
        let mut nic = Nic::default();
        nic.push_message(message(9, 40, MessageClass::Request), false);
        for tag in 0..3 {
            nic.push_message(message(tag, 5, MessageClass::Request), true);
        }
        assert_eq!(order(&mut nic, [10, 10]), [0, 9, 1, 9, 2, 9, 9]);
    }

    #[test]
    fn response_is_sent_while_requests_have_no_credits() {
        let mut nic = Nic::default();
        nic.push_message(message(1, 40, MessageClass::Request), false);
        nic.push_message(message(2, 5, MessageClass::Request), true);
        nic.push_message(message(3, 5, MessageClass::Response), true);
        assert_eq!(order(&mut nic, [4, 5]), [3]);
    }
}
