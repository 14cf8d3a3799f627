//! One group of the machine: a partition of the simulation.

use crate::traffic::{self, Sources};
use crate::world::World;
use forebay_engine::{Context, Partition, Picoseconds, Queue};
use forebay_network::{Fabric, NetEvent, NetMessage, Topology};
use std::sync::Arc;

/// What happens in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Net(NetEvent),
    /// The next message of a node (number within the group) is ready.
    Generate(u16),
}

impl From<NetEvent> for Event {
    #[inline]
    fn from(event: NetEvent) -> Self {
        Event::Net(event)
    }
}

/// What groups send each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Letter {
    Net(NetMessage),
}

impl From<NetMessage> for Letter {
    #[inline]
    fn from(message: NetMessage) -> Self {
        Letter::Net(message)
    }
}

/// Event key of what a node does by itself.
pub(crate) fn key(local: u16) -> u32 {
    Topology::FIRST_FREE_KEY + u32::from(local)
}

/// Routers, links and nodes of a group.
pub(crate) struct Group {
    pub fabric: Fabric,
    pub world: Arc<World>,
    pub sources: Sources,
}

impl Partition for Group {
    type Event = Event;
    type Message = Letter;

    #[inline]
    fn handle(&mut self, event: Event, context: &mut Context<'_, Self>) {
        match event {
            Event::Net(event) => {
                if let Some(packet) = self.fabric.handle(event, context)
                    && packet.kind() == traffic::KIND
                {
                    self.take_traffic(&packet, context.now);
                }
            }
            Event::Generate(local) => self.generate(local, context),
        }
        while let Some(local) = self.fabric.drained.pop() {
            self.unblock(local, context);
        }
    }

    #[inline]
    fn receive(&mut self, at: Picoseconds, letter: Letter, queue: &mut Queue<Event>) {
        match letter {
            Letter::Net(message) => self.fabric.receive(at, message, queue),
        }
    }

    #[inline]
    fn prefetch(&self, event: &Event) {
        if let Event::Net(event) = event {
            self.fabric.prefetch(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_leaves_room_for_time_and_key_in_a_cache_line() {
        assert!(size_of::<Event>() <= 48, "{}", size_of::<Event>());
    }
}
