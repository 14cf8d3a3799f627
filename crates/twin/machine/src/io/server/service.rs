//! What servers do with a request: dispatch, a thread, the data path, locks, flash, the answer.

use super::{Request, controller};
use crate::group::{Event, Group, Io};
use crate::io::measure::Waits;
use crate::io::{IoJob, Tag, kind};
use forebay_engine::Context;
use forebay_network::{Message, Packet};
use forebay_units::{Bytes, Rate};

/// Bytes in ps at a rate.
fn transfer_time(rate: Rate, bytes: u64) -> u64 {
    rate.time_for(Bytes(bytes)).0
}

impl Group {
    /// A packet for a server of this group has come.
    pub(crate) fn serve(&mut self, packet: &Packet, context: &mut Context<'_, Self>) {
        let local = self.world.topology.location(packet.dst).local;
        let server = self.servers.of_node[usize::from(local)];
        if packet.kind() == kind::WRITE_DATA {
            self.take_data(packet, context);
            return;
        }
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let mut request = Request {
            tag: packet.tag(),
            client: packet.src,
            server,
            kind: packet.kind(),
            controller: 0,
            object: (0, 0),
            bytes: 0,
            missing: 0,
            since: context.now,
        };
        let state = &mut self.servers.servers[server as usize];
        if packet.kind() == kind::METADATA {
            let cost = 1_000_000_000_000 / u64::from(job.burst_buffer.metadata_rate);
            let start = state.metadata_free.max(context.now);
            state.metadata_free = start + cost;
            state.usage.metadata += cost;
            self.waits_of(packet.src).server += start - context.now;
            let at = start + cost;
            let index = self.servers.insert(request);
            self.later(at, Io::Answer(index), context);
            return;
        }
        let start = state.dispatch_free.max(context.now);
        state.dispatch_free = start + job.burst_buffer.dispatch.0;
        state.usage.dispatch += job.burst_buffer.dispatch.0;
        let at = state.dispatch_free;
        if matches!(packet.kind(), kind::WRITE | kind::READ) {
            self.locate(&mut request, job);
        }
        self.waits_of(packet.src).server += start - context.now;
        let index = self.servers.insert(request);
        self.later(at, Io::Dispatched(index), context);
    }

    /// Which piece of which file a request is about.
    fn locate(&self, request: &mut Request, job: &IoJob) {
        let tag = Tag::unpack(request.tag);
        let (file, piece) = self.clients.piece(tag, job);
        let chunk = piece.offset / job.burst_buffer.substripe.0;
        request.bytes = piece.bytes;
        request.missing = piece.bytes;
        let (card, controller) = controller(file, chunk, &job.burst_buffer);
        request.controller = controller;
        request.object = (file.0, card % job.burst_buffer.objects_per_file.max(1));
    }

    pub(crate) fn dispatched(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let server = self.servers.request(index).server as usize;
        self.servers.request(index).since = context.now;
        if self.servers.servers[server].idle_threads > 0 {
            self.servers.servers[server].idle_threads -= 1;
            self.begin(index, context);
        } else {
            self.servers.servers[server].ready.push_back(index);
        }
    }

    /// A thread takes a request.
    fn begin(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let now = context.now;
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let request = *self.servers.request(index);
        self.waits_of(request.client).server += now - request.since;
        match request.kind {
            kind::WRITE => {
                let server = &mut self.servers.servers[request.server as usize];
                let time = transfer_time(job.burst_buffer.data_rate, request.bytes);
                let at = server.inbound_free.max(now);
                server.inbound_free = at + time;
                server.usage.inbound += time;
                self.waits_of(request.client).server += at - now;
                self.servers.fetching.insert(request.tag, index);
                self.later(at, Io::Fetch(index), context);
            }
            kind::READ => self.lock(index, context),
            _ => self.later(
                now + job.burst_buffer.write_latency.0,
                Io::Answer(index),
                context,
            ),
        }
    }

    /// Asks the client for the data of a write.
    pub(crate) fn fetch(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let request = *self.servers.request(index);
        self.reply(&request, kind::GET, 0, context);
    }

    /// Sends a message to a request's client: `bytes` of data, or 0 for a control message.
    fn reply(&mut self, request: &Request, kind: u8, bytes: u64, context: &mut Context<'_, Self>) {
        let control = self.world.machine.client.control_message.0;
        let node = self.servers.servers[request.server as usize].node;
        let bytes = if bytes == 0 { control } else { bytes };
        let message = Message {
            to: request.client,
            bytes,
            tag: request.tag,
            kind,
            born: context.now,
        };
        self.fabric.send(node, message, context);
    }

    fn take_data(&mut self, packet: &Packet, context: &mut Context<'_, Self>) {
        let Some(&index) = self.servers.fetching.get(&packet.tag()) else {
            unreachable!("data that no server asked for: {packet:?}")
        };
        let request = self.servers.request(index);
        request.missing -= u64::from(packet.bytes);
        if request.missing == 0 {
            let bytes = request.bytes;
            self.servers.fetching.remove(&packet.tag());
            self.count_network(packet, packet.src, bytes, context.now);
            self.lock(index, context);
        }
    }

    /// The waits of the requests of the group that a client is in.
    fn waits_of(&mut self, client: u32) -> &mut Waits {
        let group = self.world.topology.location(client).group;
        &mut self.waits[usize::from(group)]
    }

    /// Notes how much longer than alone the data took of which `last` is the last packet.
    pub(crate) fn count_network(&mut self, last: &Packet, client: u32, bytes: u64, now: u64) {
        let alone = transfer_time(self.world.network.node.rate, bytes);
        self.waits_of(client).network += (now - last.born()).saturating_sub(alone);
    }

    fn lock(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let request = *self.servers.request(index);
        let locks = &mut self.servers.servers[request.server as usize].locks;
        if locks.acquire(
            request.object,
            index,
            request.kind == kind::WRITE,
            context.now,
        ) {
            self.access_flash(index, context);
        }
    }

    fn access_flash(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let request = *self.servers.request(index);
        let write = request.kind == kind::WRITE;
        let ssd = &mut self.servers.servers[request.server as usize].ssd;
        let done = ssd.submit(
            request.controller as usize,
            request.bytes,
            write,
            context.now,
        );
        self.waits_of(request.client).ssd += done.waited;
        let event = if write {
            Io::Stored(index)
        } else {
            Io::Loaded(index)
        };
        self.later(done.at, event, context);
    }

    /// A write is on flash.
    pub(crate) fn stored(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let request = *self.servers.request(index);
        self.reply(&request, kind::DONE, 0, context);
        let hold = self
            .world
            .machine
            .burst_buffer
            .as_ref()
            .map_or(0, |b| b.lock_hold.0);
        self.later(context.now + hold, Io::Unlock(index), context);
        self.free_thread(request.server, context);
    }

    /// A read is off flash.
    pub(crate) fn loaded(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let request = *self.servers.request(index);
        let rate = self
            .world
            .machine
            .burst_buffer
            .as_ref()
            .map_or(Rate(1), |b| b.data_rate);
        let time = transfer_time(rate, request.bytes);
        let server = &mut self.servers.servers[request.server as usize];
        let at = server.outbound_free.max(context.now);
        server.outbound_free = at + time;
        server.usage.outbound += time;
        self.waits_of(request.client).server += at - context.now;
        self.later(at, Io::Send(index), context);
        self.later(at + time, Io::Unlock(index), context);
    }

    pub(crate) fn send_data(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let request = *self.servers.request(index);
        self.reply(&request, kind::READ_DATA, request.bytes, context);
    }

    /// The lock of a request's object is given back; the request is forgotten.
    pub(crate) fn unlock(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let request = *self.servers.request(index);
        let write = request.kind == kind::WRITE;
        let mut granted = Vec::new();
        self.servers.servers[request.server as usize].locks.release(
            request.object,
            write,
            |next, since| granted.push((next, context.now - since)),
        );
        self.servers.unused.push(index);
        for (next, waited) in granted {
            let client = self.servers.request(next).client;
            self.waits_of(client).lock += waited;
            self.access_flash(next, context);
        }
        if !write {
            self.free_thread(request.server, context);
        }
    }

    /// A sync or a metadata operation is through.
    pub(crate) fn answer(&mut self, index: u32, context: &mut Context<'_, Self>) {
        let request = *self.servers.request(index);
        self.reply(&request, kind::DONE, 0, context);
        self.servers.unused.push(index);
        if request.kind == kind::SYNC {
            self.free_thread(request.server, context);
        }
    }

    fn free_thread(&mut self, server: u32, context: &mut Context<'_, Self>) {
        let state = &mut self.servers.servers[server as usize];
        match state.ready.pop_front() {
            Some(next) => self.begin(next, context),
            None => state.idle_threads += 1,
        }
    }

    /// Schedules what a client or server does by itself.
    pub(crate) fn later(&self, at: u64, what: Io, context: &mut Context<'_, Self>) {
        context.queue.push(at, what.key(), Event::Io(what));
    }
}
