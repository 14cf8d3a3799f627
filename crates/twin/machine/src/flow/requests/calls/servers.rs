//! The way of requests through their servers: dispatch, a thread, data paths, locks, flash.

use super::{Calls, Step};
use crate::flow::fabric::Resource;
use crate::flow::requests::request::way_of;
use crate::io::{Path, copy_time};
use crate::storage::PathKind;
use forebay_units::Bytes;
use forebay_workload::ior::Access;

impl Calls<'_> {
    /// A server takes a request off the wire.
    pub(super) fn dispatch(&mut self, number: usize, now: u64) {
        let (request, job) = (&self.requests.all[number], self.job);
        let server = &mut self.servers[request.server as usize];
        let begins = server.dispatch.reserve(now, job.burst_buffer.dispatch.0);
        let mut end = begins + job.burst_buffer.dispatch.0 + job.storage.latency.0;
        if let Some(limit) = job.rate_limit {
            end = end.max(server.permit(job.number, limit, request.extent.bytes, now));
        }
        self.wait(number, Resource::Server, begins - now);
        self.at(end, number, Step::Dispatched);
    }

    /// A thread begins a request.
    pub(super) fn start(&mut self, number: usize, now: u64) {
        match self.access {
            Access::Write => {
                let begins = self.reserve_paths(number, now, Path::request);
                let request = &self.requests.all[number];
                let way = way_of(self.job, request) + self.job.storage.latency.0;
                self.at(begins + way, number, Step::Fetch);
            }
            Access::Read => {
                let done = self.access_flash(number, now);
                let copied = done + copy_time(self.requests.all[number].extent.bytes, self.job);
                self.at(copied, number, Step::Read);
            }
        }
    }

    /// Reserves the data paths of a request's server for its data; returns the latest begin.
    fn reserve_paths(
        &mut self,
        number: usize,
        now: u64,
        reserve: impl Fn(&mut Path, u64, u64) -> u64,
    ) -> u64 {
        let request = &self.requests.all[number];
        let mut latest = (now, Resource::Server);
        for &path in &self.job.storage.servers()[request.server as usize].paths {
            let at = reserve(&mut self.paths[path as usize], now, request.extent.bytes);
            if at > latest.0 {
                latest = (at, self.resource_of_path(path));
            }
        }
        self.wait(number, latest.1, latest.0 - now);
        latest.0
    }

    fn resource_of_path(&self, path: u32) -> Resource {
        match self.job.storage.paths()[path as usize].kind {
            PathKind::Router => Resource::Router,
            PathKind::ObjectServer(_) | PathKind::Node => Resource::Server,
        }
    }

    /// The data of a write are at their node.
    pub(super) fn take_in(&mut self, number: usize, now: u64) {
        let at = self.reserve_paths(number, now, Path::take_in);
        self.at(at + self.job.storage.latency.0, number, Step::TakenIn);
    }

    /// A write asks for the lock of its object.
    pub(super) fn lock(&mut self, number: usize, now: u64) {
        let request = &self.requests.all[number];
        let object = (request.extent.file.0, self.job.object_of(request.extent.offset));
        let locks = &mut self.servers[request.server as usize].locks;
        if locks.acquire(object, number as u32, true, now) {
            self.hold_lock(number, now);
        }
    }

    /// A write has the lock of its object.
    fn hold_lock(&mut self, number: usize, now: u64) {
        let (request, job) = (&self.requests.all[number], self.job);
        let client = job.nodes[request.node as usize];
        let (extent, make) = (request.extent, &job.burst_buffer);
        let server = &mut self.servers[request.server as usize];
        let is_parallel = job.storage.is_parallel();
        let mut waited = 0;
        let mut held = 0;
        if is_parallel {
            let object = (extent.file.0, request.server);
            let bytes = extent.offset..extent.offset + extent.bytes;
            if let Some(flushed) = self.extent_locks.enqueue(object, client, bytes, true) {
                let to_clients = make.lock_handover.0 / 2;
                let back = make.lock_handover.0 - to_clients;
                waited = to_clients.max(flushed.saturating_sub(now)) + back;
            }
        } else {
            held = make.lock_hold.0 + copy_time(extent.bytes, job);
        }
        if job.has_shared_file() {
            let object = (extent.file.0, job.object_of(extent.offset));
            if !is_parallel && server.locks.changes_writer(object, client) {
                waited += make.handover_time(Bytes(extent.bytes)).0;
            }
            let mut read = now;
            for controller in extent.partial_blocks(make) {
                read = read.max(server.ssd.submit(controller, make.block.0, false, now).at);
            }
            held += read - now;
        }
        self.wait(number, Resource::Lock, waited);
        self.at(now + held + waited, number, Step::ReleaseLock);
    }

    /// A write releases the lock of its object, on a parallel file system after it has gone to the disks.
    pub(super) fn end_lock(&mut self, number: usize, now: u64) {
        let (request, job) = (&self.requests.all[number], self.job);
        let in_cache = !job.storage.is_parallel() && job.burst_buffer.dirty_limit.0 > 0;
        if job.storage.is_parallel() {
            self.write_flash(number, now);
        }
        let object = (request.extent.file.0, job.object_of(request.extent.offset));
        let mut granted = Vec::new();
        let locks = &mut self.servers[request.server as usize].locks;
        locks.release(object, true, |next, since| granted.push((next as usize, now - since)));
        for (next, waited) in granted {
            self.wait(next, Resource::Lock, waited);
            self.hold_lock(next, now);
        }
        match (job.storage.is_parallel(), in_cache) {
            (true, _) => {}
            (false, true) => self.at(now, number, Step::Written),
            (false, false) => self.write_flash(number, now),
        }
    }

    /// A write goes to the flash of its server.
    fn write_flash(&mut self, number: usize, now: u64) {
        let done = self.access_flash(number, now);
        let (request, job) = (&self.requests.all[number], self.job);
        if job.storage.is_parallel() {
            let object = (request.extent.file.0, request.server);
            let client = job.nodes[request.node as usize];
            self.extent_locks.note_flush(object, client, request.extent.offset, done);
        }
        self.at(done + job.storage.latency.0, number, Step::Written);
    }

    /// Gives the commands of a request to the flash of its server; returns the end.
    fn access_flash(&mut self, number: usize, now: u64) -> u64 {
        let request = &self.requests.all[number];
        let commands = request.extent.commands(&self.job.burst_buffer);
        let ssd = &mut self.servers[request.server as usize].ssd;
        let done = ssd.submit_all(commands, self.access == Access::Write, now);
        self.wait(number, Resource::Ssd, done.waited);
        done.at
    }

    /// The data of a read are in the server's memory.
    pub(super) fn send(&mut self, number: usize, now: u64) {
        let begins = self.reserve_paths(number, now, Path::send) + self.job.storage.latency.0;
        let request = &self.requests.all[number];
        let paths = &self.job.storage.servers()[request.server as usize].paths;
        let time = |path: &u32| self.paths[*path as usize].time(request.extent.bytes);
        let longest = paths.iter().map(time).max().unwrap_or(0);
        self.at(begins, number, Step::Send);
        self.at(begins + longest, number, Step::Sent);
    }

    /// A request leaves its thread, which the next one takes.
    pub(super) fn release_thread(&mut self, number: usize, now: u64) {
        let server = self.requests.all[number].server as usize;
        if let Some(next) = self.servers[server].release_thread() {
            self.start(next as usize, now);
        }
    }
}
