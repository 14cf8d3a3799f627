//! One group of the machine: a partition of the simulation.

use crate::collective_job::CollectiveNodes;
use crate::event::{Event, GroupContext, GroupMessage, IoEvent, MpiEvent, PacketKind};
use crate::io::Io;
use crate::mpi::TeamId;
use crate::traffic::{Traffic, TrafficJob};
use forebay_engine::{Ahead, Partition, Picoseconds, Queue};
use forebay_network::{Delivery, Fabric};

/// Routers, links and nodes of a group, and the jobs on them.
pub(crate) struct Group {
    pub fabric: Fabric,
    /// By number of the job.
    pub traffic: Vec<Traffic>,
    pub io: Option<Io>,
    pub collective: Option<CollectiveNodes>,
}

impl Group {
    /// A copy of a group that has traffic only.
    pub fn copy_with_traffic(&self) -> Group {
        assert!(self.io.is_none() && self.collective.is_none(), "a group with other jobs");
        Group {
            fabric: self.fabric.clone(),
            traffic: self.traffic.clone(),
            io: None,
            collective: None,
        }
    }

    fn deliver(&mut self, delivery: &Delivery, context: &mut GroupContext<'_>) {
        let packet = &delivery.packet;
        let traffic = self.traffic.get_mut(TrafficJob::number_of(packet));
        match (PacketKind::of_packet(packet), traffic, &mut self.io) {
            (PacketKind::Traffic, Some(traffic), _) => traffic.receive(packet, delivery.at),
            (
                kind @ (PacketKind::Request(_)
                | PacketKind::WriteData
                | PacketKind::Reply(_)
                | PacketKind::Exchange(_)),
                _,
                Some(io),
            ) => io.receive(kind, packet, &mut self.fabric, context),
            (kind @ PacketKind::Mpi(TeamId::Io), _, Some(io)) => {
                io.receive(kind, packet, &mut self.fabric, context);
            }
            (PacketKind::Mpi(TeamId::Collective), _, _) => match &mut self.collective {
                Some(nodes) => nodes.receive(packet, &self.fabric, context),
                None => unreachable!("a packet of collective operations without their job"),
            },
            (kind, _, _) => unreachable!("a packet of kind {kind:?} without a job: {packet:?}"),
        }
    }

    fn handle_io(&mut self, event: IoEvent, context: &mut GroupContext<'_>) {
        let Some(io) = &mut self.io else { unreachable!("{event:?} without an I/O job") };
        io.handle(event, &mut self.fabric, context);
        self.end_traffic_with_io(context.now);
    }

    fn handle_mpi(&mut self, event: MpiEvent, context: &mut GroupContext<'_>) {
        match (event.team, &mut self.io, &mut self.collective) {
            (TeamId::Io, Some(io), _) => {
                io.handle_mpi(event, &mut self.fabric, context);
                self.end_traffic_with_io(context.now);
            }
            (TeamId::Collective, _, Some(nodes)) => {
                if nodes.handle(event, &mut self.fabric, context) {
                    self.end_traffic(context.now);
                }
            }
            (team, _, _) => unreachable!("an event of {team:?} without its job"),
        }
    }

    /// Ends traffic that runs together with another job.
    fn end_traffic(&mut self, now: u64) {
        self.traffic.iter_mut().for_each(|traffic| traffic.stop(now));
    }

    fn end_traffic_with_io(&mut self, now: u64) {
        if self.io.as_ref().is_some_and(Io::has_ended) {
            self.end_traffic(now);
        }
    }
}

/// The job with traffic that has a node of the group.
#[inline]
fn sender(jobs: &mut [Traffic], local: u16) -> Option<&mut Traffic> {
    match jobs {
        [] => None,
        [only] => Some(only),
        several => several.iter_mut().find(|job| job.has(local)),
    }
}

impl Partition for Group {
    type Event = Event;
    type Message = GroupMessage;

    #[inline]
    fn handle(&mut self, event: Event, context: &mut GroupContext<'_>) {
        match event {
            Event::Net(event) => {
                if let Some(delivery) = self.fabric.handle(event, context) {
                    self.deliver(&delivery, context);
                }
            }
            Event::Io(event) => self.handle_io(event, context),
            Event::Mpi(event) => self.handle_mpi(event, context),
            Event::CollectiveEnded => self.end_traffic(context.now),
            Event::GenerateTraffic(local) => {
                if let Some(traffic) = sender(&mut self.traffic, local) {
                    traffic.generate(local, &mut self.fabric, context);
                }
            }
        }
        while let Some(local) = self.fabric.drained.pop() {
            if let Some(traffic) = sender(&mut self.traffic, local) {
                traffic.unblock(local, &mut self.fabric, context);
            }
        }
    }

    #[inline]
    fn receive(&mut self, at: Picoseconds, message: GroupMessage, queue: &mut Queue<Event>) {
        match message {
            GroupMessage::Net(message) => self.fabric.receive(at, message, queue),
            GroupMessage::Passed(barrier) => {
                let event = IoEvent::Passed(barrier);
                queue.push(at, event.key(), Event::Io(event));
            }
            GroupMessage::CollectiveEnded => {
                queue.push(at, Event::COLLECTIVE_ENDED_KEY, Event::CollectiveEnded);
            }
        }
    }

    #[inline]
    fn prefetch(&self, event: &Event, ahead: Ahead) {
        match event {
            Event::Net(event) => self.fabric.prefetch(event, ahead),
            Event::GenerateTraffic(local) => {
                self.fabric.prefetch_sender(*local);
                if let [traffic] = self.traffic.as_slice() {
                    traffic.prefetch(*local);
                }
            }
            Event::Io(_) | Event::Mpi(_) | Event::CollectiveEnded => {}
        }
    }
}
