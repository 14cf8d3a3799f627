//! Flushing of the servers' page caches, and the writes and fsyncs that wait for it.

use super::page_cache::Flush;
use super::servers::Servers;
use crate::event::ServerEvent;
use crate::io::context::IoContext;
use crate::observe::Stage;

/// A flush of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerFlush {
    server: u32,
    flush: Flush,
}

/// The flushes under way at the servers of one group, by index.
#[derive(Default)]
pub(super) struct Flushes {
    flushes: Vec<ServerFlush>,
    unused: Vec<u32>,
}

impl Flushes {
    fn insert(&mut self, flush: ServerFlush) -> u32 {
        match self.unused.pop() {
            Some(index) => {
                self.flushes[index as usize] = flush;
                index
            }
            None => {
                self.flushes.push(flush);
                (self.flushes.len() - 1) as u32
            }
        }
    }

    fn remove(&mut self, index: u32) -> ServerFlush {
        self.unused.push(index);
        self.flushes[index as usize]
    }
}

impl Servers {
    /// Takes room in the page cache for a write; false if it must wait.
    pub(super) fn take_room(&mut self, index: u32, io: &IoContext<'_, '_>) -> bool {
        let request = self.requests.get(index);
        let cache = &mut self.servers[request.server as usize].cache;
        !cache.is_write_back() || cache.admit(index, request.bytes, io.now())
    }

    /// Begins the flushes that are wanted now.
    pub(super) fn flush(&mut self, server: u32, io: &mut IoContext<'_, '_>) {
        let now = io.now();
        while let Some(flush) = self.servers[server as usize].cache.next_flush(now) {
            let index = self.flushes.insert(ServerFlush { server, flush });
            io.schedule(flush.at, ServerEvent::SubmitFlush(index));
        }
    }

    /// A thread has prepared a flush: it goes to flash.
    pub(super) fn submit_flush(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let ServerFlush { server, flush } = self.flushes.flushes[index as usize];
        let commands = flush.extent.commands(&io.job.burst_buffer);
        let done = self.servers[server as usize].ssd.submit_all(commands, true, io.now());
        io.schedule(done.at, ServerEvent::Flushed(index));
    }

    /// Data are on flash: fsyncs end, and writes that waited for room go on.
    pub(super) fn end_flush(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let ServerFlush { server, flush } = self.flushes.remove(index);
        self.servers[server as usize].cache.end_flush(flush);
        while let Some(sync) = self.servers[server as usize].cache.end_sync() {
            let at = io.now() + io.job.burst_buffer.sync.0;
            io.schedule(at, ServerEvent::Reply(sync));
        }
        while let Some((request, since)) = self.servers[server as usize].cache.admit_waiting() {
            let waited = io.now() - since;
            let waiting = self.requests.get(request);
            io.waits_of(waiting.tag, waiting.client).ssd += waited;
            let node = self.servers[server as usize].node;
            io.stage(node, waiting.tag, Stage::WaitForRoom, (since, io.now()), waited);
            self.lock_object(request, io);
        }
        self.flush(server, io);
    }

    /// The data of a write are in the page cache, where it completes.
    pub(super) fn end_write_in_cache(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        self.servers[request.server as usize].cache.add(request.extent());
        self.end_write(index, io);
        self.flush(request.server, io);
    }
}
