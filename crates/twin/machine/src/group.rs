//! One group of the machine: a partition of the simulation.

use crate::event::{Event, GroupContext, GroupMessage, IoEvent, PacketKind};
use crate::io::Io;
use crate::traffic::Traffic;
use forebay_engine::{Partition, Picoseconds, Queue};
use forebay_network::{Fabric, Packet};

/// Routers, links and nodes of a group, and the jobs on them.
pub(crate) struct Group {
    pub fabric: Fabric,
    pub traffic: Option<Traffic>,
    pub io: Option<Io>,
}

impl Group {
    fn deliver(&mut self, packet: &Packet, context: &mut GroupContext<'_>) {
        match (PacketKind::of_packet(packet), &mut self.traffic, &mut self.io) {
            (PacketKind::Traffic, Some(traffic), _) => traffic.receive(packet, context.now),
            (
                kind @ (PacketKind::Request(_)
                | PacketKind::WriteData
                | PacketKind::Reply(_)
                | PacketKind::Exchange(_)),
                _,
                Some(io),
            ) => io.receive(kind, packet, &mut self.fabric, context),
            (kind, _, _) => unreachable!("a packet of kind {kind:?} without a job: {packet:?}"),
        }
    }

    fn handle_io(&mut self, event: IoEvent, context: &mut GroupContext<'_>) {
        let Some(io) = &mut self.io else { unreachable!("{event:?} without an I/O job") };
        io.handle(event, &mut self.fabric, context);
        // Traffic that runs together with IOR ends with it.
        if io.has_ended()
            && let Some(traffic) = &mut self.traffic
        {
            traffic.stop(context.now);
        }
    }
}

impl Partition for Group {
    type Event = Event;
    type Message = GroupMessage;

    #[inline]
    fn handle(&mut self, event: Event, context: &mut GroupContext<'_>) {
        match event {
            Event::Net(event) => {
                if let Some(packet) = self.fabric.handle(event, context) {
                    self.deliver(&packet, context);
                }
            }
            Event::Io(event) => self.handle_io(event, context),
            Event::GenerateTraffic(local) => {
                if let Some(traffic) = &mut self.traffic {
                    traffic.generate(local, &mut self.fabric, context);
                }
            }
        }
        while let Some(local) = self.fabric.drained.pop() {
            if let Some(traffic) = &mut self.traffic {
                traffic.unblock(local, &mut self.fabric, context);
            }
        }
    }

    #[inline]
    fn receive(&mut self, at: Picoseconds, message: GroupMessage, queue: &mut Queue<Event>) {
        match message {
            GroupMessage::Net(message) => self.fabric.receive(at, message, queue),
            GroupMessage::Barrier(event) => {
                let event = IoEvent::Barrier(event);
                queue.push(at, event.key(), Event::Io(event));
            }
        }
    }

    #[inline]
    fn prefetch(&self, event: &Event) {
        match event {
            Event::Net(event) => self.fabric.prefetch(event),
            Event::GenerateTraffic(local) => {
                self.fabric.prefetch_sender(*local);
                if let Some(traffic) = &self.traffic {
                    traffic.prefetch(*local);
                }
            }
            Event::Io(_) => {}
        }
    }
}
