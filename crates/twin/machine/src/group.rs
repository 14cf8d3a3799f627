//! One group of the machine: a partition of the simulation.

use crate::io::client::Clients;
use crate::io::kind;
use crate::io::measure::{PhaseCounts, Waits};
use crate::io::server::Servers;
use crate::scenario::Scenario;
use crate::traffic::{self, TrafficSources};
use forebay_engine::{Context, Partition, Picoseconds, Queue};
use forebay_network::{Fabric, NetEvent, NetMessage, Packet, Topology};
use std::sync::Arc;

/// What happens in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Net(NetEvent),
    /// The next message of a node (number within the group) is ready.
    Generate(u16),
    Io(Io),
}

/// What clients and servers do by themselves; numbers are of a rank's slot, a request's index,
/// or a tag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Io {
    /// A process goes on with its steps.
    Resume(u32),
    /// A process's call has come to sending its requests.
    Issue(u32),
    /// A client has time to send data.
    Feed(u64),
    /// A client has taken data in.
    Through(u64),
    /// An aggregator has copied what processes of its own node have of its window.
    Copied(u32),
    /// A server has taken a request off the wire.
    Dispatched(u32),
    /// A server has time to fetch data.
    Fetch(u32),
    /// Data are on flash.
    Stored(u32),
    /// Data are off flash.
    Loaded(u32),
    /// A server has time to send data.
    Send(u32),
    /// A lock is given back.
    Unlock(u32),
    /// A server is through with a request that moves no data.
    Answer(u32),
    /// All processes of a group have come to a barrier.
    Reported { step: u32, value: u64 },
    /// All processes have.
    Released { step: u32, value: u64 },
}

impl Io {
    /// Event key: the kinds in a fixed order, and within each by number.
    pub fn key(&self) -> u32 {
        let (kind, number) = match *self {
            Io::Resume(slot) => (1, slot),
            Io::Issue(slot) => (2, slot),
            Io::Feed(tag) => (3, tag as u32),
            Io::Through(tag) => (4, tag as u32),
            Io::Dispatched(index) => (5, index),
            Io::Fetch(index) => (6, index),
            Io::Stored(index) => (7, index),
            Io::Loaded(index) => (8, index),
            Io::Send(index) => (9, index),
            Io::Unlock(index) => (10, index),
            Io::Answer(index) => (11, index),
            Io::Reported { .. } => (12, 0),
            Io::Released { .. } => (13, 0),
            Io::Copied(slot) => (14, slot),
        };
        Topology::FIRST_FREE_KEY + (kind << 24) + (number & 0xff_ffff)
    }
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
    /// All processes of the sending group have come to a barrier.
    Reported {
        step: u32,
        value: u64,
    },
    /// All processes of all groups have.
    Released {
        step: u32,
        value: u64,
    },
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
    pub world: Arc<Scenario>,
    pub sources: TrafficSources,
    pub clients: Clients,
    pub servers: Servers,
    /// Waits of the requests of each group's processes, as far as this group sees them: at its
    /// servers, and at its clients when data come in.
    pub waits: Vec<Waits>,
    /// Phases that have ended.
    pub phases: Vec<PhaseCounts>,
}

impl Group {
    fn take(&mut self, packet: &Packet, context: &mut Context<'_, Self>) {
        match packet.kind() {
            traffic::KIND => self.take_traffic(packet, context.now),
            kind::GET | kind::READ_DATA | kind::DONE => self.answer_client(packet, context),
            kind::ASK | kind::SHARE | kind::DELIVER => self.exchange(packet, context),
            _ => self.serve(packet, context),
        }
    }

    fn handle_io(&mut self, event: Io, context: &mut Context<'_, Self>) {
        match event {
            Io::Resume(slot) => self.advance(slot, context),
            Io::Issue(slot) => self.issue(slot, context),
            Io::Feed(tag) => self.feed(tag, context),
            Io::Through(tag) => self.request_done(tag, context),
            Io::Copied(slot) => self.copied(slot, context),
            Io::Dispatched(index) => self.dispatched(index, context),
            Io::Fetch(index) => self.fetch(index, context),
            Io::Stored(index) => self.stored(index, context),
            Io::Loaded(index) => self.loaded(index, context),
            Io::Send(index) => self.send_data(index, context),
            Io::Unlock(index) => self.unlock(index, context),
            Io::Answer(index) => self.answer(index, context),
            Io::Reported { step, value } => self.reported(step, value, context),
            Io::Released { step, value } => self.released(step, value, context),
        }
    }
}

impl Partition for Group {
    type Event = Event;
    type Message = Letter;

    #[inline]
    fn handle(&mut self, event: Event, context: &mut Context<'_, Self>) {
        match event {
            Event::Net(event) => {
                if let Some(packet) = self.fabric.handle(event, context) {
                    self.take(&packet, context);
                }
            }
            Event::Io(event) => self.handle_io(event, context),
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
            Letter::Reported { step, value } => {
                let event = Io::Reported { step, value };
                queue.push(at, event.key(), Event::Io(event));
            }
            Letter::Released { step, value } => {
                let event = Io::Released { step, value };
                queue.push(at, event.key(), Event::Io(event));
            }
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
