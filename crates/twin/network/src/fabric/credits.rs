//! Credits on their way back, and the packets that wait for them.

use super::{Fabric, KEY_CREDITS, NetEvent, NetMessage};
use crate::packet::Packet;
use crate::port::{NONE, Passage, PortEnd, Upstream, WaitingPacket};
use forebay_engine::{Context, Partition, Queue, prefetch};
use forebay_machine_file::machine::LinkClass;

/// Credits are handed over at multiples of 2^15 ps.
const BATCH_BITS: u32 = 15;
/// Batches that can be open at a time: credits due within 17 us.
pub(super) const MAX_OPEN_BATCHES: usize = 512;

/// Credits that are handed over at one moment.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) credits: Vec<(u32, u32)>,
}

impl Fabric {
    /// Sends the credit back for the place that a packet leaves at time `left`.
    pub(super) fn send_credit<P>(
        &mut self,
        packet: &Packet,
        left: u64,
        context: &mut Context<'_, P>,
    ) where
        P: Partition,
        P::Event: From<NetEvent>,
        P::Message: From<NetMessage>,
    {
        let upstream = Upstream(packet.credit_to);
        let at = left + self.costs[upstream.class()].latency;
        if upstream.is_far() {
            let (router, port) = self.router_and_port(upstream.port());
            let Some((group, far_router, far_port)) =
                self.topology.far_end(self.group, router, port)
            else {
                unreachable!("a packet came from a socket without a cable")
            };
            let far =
                usize::from(far_router) * usize::from(self.topology.ports) + usize::from(far_port);
            let place = Upstream::near(far, LinkClass::Global, upstream.channel() as u8);
            context.send(
                group.into(),
                at,
                NetMessage::Credit(place.0, packet.bytes).into(),
            );
        } else {
            self.batch_credit(at, upstream, packet.bytes, context.queue);
        }
    }

    /// Puts a credit into the batch that is handed over at `at` or shortly after.
    #[inline]
    pub(super) fn batch_credit<E: Copy + From<NetEvent>>(
        &mut self,
        at: u64,
        place: Upstream,
        bytes: u32,
        queue: &mut Queue<E>,
    ) {
        let number = at.div_ceil(1 << BATCH_BITS);
        let slot = (number % MAX_OPEN_BATCHES as u64) as usize;
        let batch = &mut self.batches[slot];
        if batch.credits.is_empty() {
            batch.number = number;
            batch.credits = self.spare.pop().unwrap_or_default();
            queue.push(
                number << BATCH_BITS,
                KEY_CREDITS,
                NetEvent::Credits(slot as u16).into(),
            );
        } else if batch.number != number {
            let late = NetEvent::LateCredit(place.0, bytes);
            queue.push(number << BATCH_BITS, KEY_CREDITS + 1, late.into());
            return;
        }
        batch.credits.push((place.0, bytes));
    }

    pub(super) fn return_batch<P>(&mut self, slot: u16, context: &mut Context<'_, P>)
    where
        P: Partition,
        P::Event: From<NetEvent>,
        P::Message: From<NetMessage>,
    {
        let mut credits = std::mem::take(&mut self.batches[usize::from(slot)].credits);
        for (i, &(place, bytes)) in credits.iter().enumerate() {
            if let Some(&(ahead, _)) = credits.get(i + 8) {
                prefetch(&self.ports[Upstream(ahead).port()]);
            }
            self.return_credit(Upstream(place), bytes, context);
        }
        credits.clear();
        self.spare.push(credits);
    }

    /// Gives credits back to a port, and the link to those who waited for them.
    #[inline]
    pub(super) fn return_credit<P>(
        &mut self,
        place: Upstream,
        bytes: u32,
        context: &mut Context<'_, P>,
    ) where
        P: Partition,
        P::Event: From<NetEvent>,
        P::Message: From<NetMessage>,
    {
        let (index, channel) = (place.port(), place.channel());
        let port = &mut self.ports[index];
        port.occupied -= bytes;
        port.channels[channel].credits += bytes;
        if port.end == PortEnd::Inward {
            let local = port.peer as u16;
            let nic = &self.nics[usize::from(local)];
            if !nic.control.is_empty() || !nic.bulk.is_empty() {
                self.inject_packets(local, context);
            }
        } else if port.channels[channel].tail != NONE {
            self.wake(index, channel, context);
        }
    }

    pub(super) fn queue_for_credits(
        &mut self,
        index: usize,
        packet: Packet,
        passage: Passage,
        now: u64,
    ) {
        let waiting = WaitingPacket {
            packet,
            next: NONE,
            passage,
        };
        let node = if self.unused_waiting == NONE {
            self.waiting.push(waiting);
            (self.waiting.len() - 1) as u32
        } else {
            let node = self.unused_waiting;
            self.unused_waiting = self.waiting[node as usize].next;
            self.waiting[node as usize] = waiting;
            node
        };
        let port = &mut self.ports[index];
        let channel = &mut port.channels[usize::from(packet.leg)];
        if channel.tail == NONE {
            self.waiting[node as usize].next = node;
            if port.blocked == 0 {
                self.stalls[index].since = now;
            }
            port.blocked += 1;
        } else {
            let tail = channel.tail as usize;
            self.waiting[node as usize].next = self.waiting[tail].next;
            self.waiting[tail].next = node;
        }
        channel.tail = node;
    }

    fn wake<P>(&mut self, index: usize, channel: usize, context: &mut Context<'_, P>)
    where
        P: Partition,
        P::Event: From<NetEvent>,
        P::Message: From<NetMessage>,
    {
        loop {
            let port = &mut self.ports[index];
            let tail = port.channels[channel].tail;
            let head = self.waiting[tail as usize].next;
            let WaitingPacket {
                packet,
                next,
                mut passage,
            } = self.waiting[head as usize];
            if port.channels[channel].credits < packet.bytes {
                return;
            }
            self.waiting[head as usize].next = self.unused_waiting;
            self.unused_waiting = head;
            let last = head == tail;
            if last {
                port.channels[channel].tail = NONE;
                port.blocked -= 1;
                if port.blocked == 0 {
                    let stall = &mut self.stalls[index];
                    stall.total += context.now - stall.since;
                }
            } else {
                self.waiting[tail as usize].next = next;
            }
            passage.head = passage.head.max(context.now);
            self.depart(index, packet, passage, context);
            if last {
                return;
            }
        }
    }
}
