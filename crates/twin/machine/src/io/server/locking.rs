//! Locks that a request needs at a server before it goes to flash: that of its object, and on a parallel
//! file system one of its client on an extent.

use super::request::Request;
use super::servers::{Servers, copy_time};
use crate::event::{RequestKind, ServerEvent};
use crate::io::context::IoContext;
use crate::observe::Stage;
use forebay_units::Bytes;

impl Servers {
    /// A request asks for its object's lock.
    pub(super) fn lock_object(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        let is_write = request.kind == RequestKind::Write;
        let locks = &mut self.servers[request.server as usize].locks;
        if locks.acquire(request.object, index, is_write, io.now()) {
            self.use_lock(index, io);
        }
    }

    /// A request has its object's lock. A read releases it and goes to flash. A write holds it while
    /// its thread copies the data into the page cache: longer after a write of another client, and, to
    /// a shared file, until blocks that it covers partly have been read.
    fn use_lock(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        io.enter_request(request.tag);
        let is_parallel = io.job.storage.is_parallel();
        if request.kind != RequestKind::Write && !is_parallel {
            self.release_lock(index, io);
            return self.access_flash(index, io);
        }
        let make = &io.job.burst_buffer;
        let mut held = match is_parallel {
            // The clients' locks are on extents; nothing else orders writes to an object.
            true => self.wait_for_callback(request, io),
            false => make.lock_hold.0 + copy_time(request.bytes, io.job),
        };
        if io.job.has_shared_file() && request.kind == RequestKind::Write {
            let server = &mut self.servers[request.server as usize];
            if !is_parallel && server.locks.changes_writer(request.object, request.client) {
                let handover = make.handover_time(Bytes(request.bytes)).0;
                held += handover;
                io.waits_of(request.tag, request.client).lock += handover;
            }
            let mut read = io.now();
            for controller in request.extent().partial_blocks(make) {
                let done = server.ssd.submit(controller, make.block.0, false, io.now());
                read = read.max(done.at);
            }
            held += read - io.now();
        }
        let node = self.servers[request.server as usize].node;
        io.stage(node, request.tag, Stage::HoldLock, (io.now(), io.now() + held), 0);
        io.schedule(io.now() + held, ServerEvent::ReleaseLock(index));
    }

    /// The time for which the locks of other clients on a request's extent are called back, ps: a message
    /// to the clients, the rest of the time until their data are on disk, and their answer.
    fn wait_for_callback(&mut self, request: Request, io: &mut IoContext<'_, '_>) -> u64 {
        // Files have numbers of their own, and a server has one object of each.
        let object = (request.file.0, request.server);
        let extent = request.offset..request.offset + request.bytes;
        let is_write = request.kind == RequestKind::Write;
        let flushed = self.extent_locks.enqueue(object, request.client, extent, is_write);
        let Some(flushed) = flushed else { return 0 };
        let messages = io.job.burst_buffer.lock_handover.0;
        let to_clients = messages / 2;
        let callback = to_clients.max(flushed.saturating_sub(io.now())) + (messages - to_clients);
        io.waits_of(request.tag, request.client).lock += callback;
        callback
    }

    /// A request releases its lock; a write is complete if the page cache keeps it, others go to flash.
    ///
    /// On a parallel file system it goes to the disks first: a client that calls the lock back waits for
    /// that.
    pub(super) fn end_lock(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        if io.job.storage.is_parallel() {
            self.access_flash(index, io);
            return self.release_lock(index, io);
        }
        self.release_lock(index, io);
        let Request { server, kind, .. } = self.requests.get(index);
        if kind == RequestKind::Write && self.servers[server as usize].cache.is_write_back() {
            self.end_write_in_cache(index, io);
        } else {
            self.access_flash(index, io);
        }
    }

    /// Releases the lock of a request's object; the requests that get it go on.
    fn release_lock(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        let is_write = request.kind == RequestKind::Write;
        let now = io.now();
        let mut granted = Vec::new();
        let locks = &mut self.servers[request.server as usize].locks;
        locks.release(request.object, is_write, |next, since| {
            granted.push((next, now - since));
        });
        for (next, waited) in granted {
            let next_request = self.requests.get(next);
            io.waits_of(next_request.tag, next_request.client).lock += waited;
            let node = self.servers[next_request.server as usize].node;
            io.stage(node, next_request.tag, Stage::WaitForLock, (now - waited, now), waited);
            self.use_lock(next, io);
        }
    }
}
