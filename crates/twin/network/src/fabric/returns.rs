//! Credits that return, and the packets that waited for them.

use super::Fabric;
use crate::event::NetContext;
use crate::port::Upstream;
use forebay_engine::prefetch;

/// Credits of a batch between the one returned and the one whose port is prefetched.
const PORT_DISTANCE: usize = 18;
/// The same for the queue of packets that wait for the credit, or the interface.
const QUEUE_DISTANCE: usize = 12;
/// The same for the first of these packets.
const PACKET_DISTANCE: usize = 6;

impl Fabric {
    /// Returns the credits of a batch.
    pub(super) fn return_batch(&mut self, slot: u16, context: &mut impl NetContext) {
        let credits = self.batches.close_batch(slot);
        for (i, &(place, bytes)) in credits.iter().enumerate() {
            if let Some(&(ahead, _)) = credits.get(i + PORT_DISTANCE) {
                prefetch(&self.ports[ahead.port()]);
            }
            if let Some(&(ahead, _)) = credits.get(i + QUEUE_DISTANCE) {
                self.prefetch_queue(ahead);
            }
            if let Some(&(ahead, _)) = credits.get(i + PACKET_DISTANCE)
                && self.ports[ahead.port()].has_waiting(ahead.channel())
            {
                let queue = self.ports.queue(ahead.port(), ahead.channel());
                self.packets.prefetch_first(queue);
            }
            self.return_credit(place, bytes, context);
        }
        self.batches.recycle(credits);
    }

    /// Prefetches what the return of a credit will touch besides its port.
    #[inline]
    fn prefetch_queue(&self, place: Upstream) {
        let port = &self.ports[place.port()];
        if port.has_waiting(place.channel()) {
            self.ports.prefetch_queues(place.port());
        } else if port.sender_waits {
            prefetch(&self.nics[usize::from(port.peer)]);
        }
    }

    /// Returns credits to a port, and sends the packets that waited for them.
    #[inline]
    pub(super) fn return_credit(
        &mut self,
        place: Upstream,
        bytes: u32,
        context: &mut impl NetContext,
    ) {
        let (index, channel) = (place.port(), place.channel());
        let bytes = match &mut self.probe {
            Some(probe) => probe.unmark_credit(place, bytes),
            None => bytes,
        };
        let capacity = self.costs[self.ports[index].class as usize].buffer;
        self.ports.return_credit(index, channel, bytes, capacity);
        let port = &self.ports[index];
        if port.has_waiting(channel) {
            self.send_waiting(index, channel, context);
        } else if port.sender_waits {
            self.inject_packets(port.peer, context);
        }
    }

    /// Sends packets that wait at a port's channel as far as there are credits.
    fn send_waiting(&mut self, index: usize, channel: usize, context: &mut impl NetContext) {
        loop {
            let credits = self.ports.credits(index, channel);
            let queue = self.ports.queue_mut(index, channel);
            let (id, mut ready) = self.packets.first(queue);
            let bytes = self.packets[id].bytes;
            if credits < bytes {
                return;
            }
            let was_last = self.packets.pop_front(queue);
            if was_last {
                self.ports.unblock_channel(index, channel, context.now());
            }
            ready.head = ready.head.max(context.now());
            if let Some(probe) = &mut self.probe {
                probe.leave_queue(index, channel as u8, bytes);
            }
            let buffer = self.inputs.is_some().then(|| Upstream(self.packets[id].credit_to));
            self.depart(index, channel, id, ready, context);
            if let Some(buffer) = buffer {
                self.forward_next(buffer, context);
            }
            if was_last {
                return;
            }
        }
    }
}
