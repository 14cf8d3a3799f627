//! The network interfaces of nodes.

use super::Fabric;
use crate::nic::{MAX_NIC_MESSAGES, Message};
use forebay_engine::prefetch;

impl Fabric {
    /// Messages that each interface of a node (number within the group) accepts of either kind.
    #[inline]
    pub fn free_message_slots(&self, local: u16) -> usize {
        if !self.topology.has_several_interfaces() {
            return self.free_slots(local);
        }
        let (first, count) = self.interfaces_of_local(local);
        (first..first + count).map(|interface| self.free_slots(interface)).min().unwrap_or(0)
    }

    /// The same for one interface (number within the group).
    #[inline]
    fn free_slots(&self, interface: u16) -> usize {
        match self.ports[self.ports.nic_port(interface)].sender_waits {
            true => self.nics[usize::from(interface)].free_slots(),
            false => MAX_NIC_MESSAGES,
        }
    }

    /// First interface of a node, both by their numbers within the group, and the number of its
    /// interfaces.
    fn interfaces_of_local(&self, local: u16) -> (u16, u16) {
        let node = self.topology.nodes_of_group(self.group)[usize::from(local)];
        let (first, count) = self.topology.interfaces_of(node);
        (self.topology.interface(first).local, count as u16)
    }

    /// The node of an interface, both by their numbers within the group.
    pub(super) fn node_of_local(&self, interface: u16) -> u16 {
        match self.topology.has_several_interfaces() {
            false => interface,
            true => self.topology.location(self.topology.sender(self.group, interface)).local,
        }
    }

    /// Prefetches the data that sending from a node (number within the group) will touch.
    #[inline]
    pub fn prefetch_sender(&self, local: u16) {
        let interface = match self.topology.has_several_interfaces() {
            false => local,
            true => self.interfaces_of_local(local).0,
        };
        prefetch(&self.ports[self.ports.nic_port(interface)]);
    }

    /// The interface (number within the group) for the next message of a node, and the message to the
    /// interface that receives it.
    pub(super) fn choose_interfaces(&mut self, node: u32, message: Message) -> (u16, Message) {
        let turns = &mut self.turns[usize::from(self.topology.location(node).local)];
        let turn = turns[message.class as usize];
        turns[message.class as usize] = turn.wrapping_add(1);
        let in_turn = |node: u32, turn: u32| {
            let (first, count) = self.topology.interfaces_of(node);
            first + turn % count
        };
        let from = in_turn(node, turn);
        // Senders begin with different interfaces of a common receiver.
        let to = in_turn(message.to, turn.wrapping_add(node));
        (self.topology.interface(from).local, Message { to, ..message })
    }
}
