//! The servers of one group, and the life of a request at them: dispatch, a thread, the data path,
//! locks (`locking.rs`), flash, the reply.

use super::flusher::Flushes;
use super::node::{Path, Server};
use super::request::{Request, RequestTable};
use crate::event::{PacketKind, ReplyKind, RequestKind, ServerEvent};
use crate::io::context::IoContext;
use crate::io::extent_locks::ExtentLocks;
use crate::io::job::{IoJob, PS_PER_SECOND, RequestTag};
use crate::io::ssd::Completion;
use crate::observe::Stage;
use forebay_network::Packet;
use forebay_units::Bytes;
use forebay_workload::ior::FileId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// In place of a server's index: the node is no server.
pub(super) const NO_SERVER: u32 = u32::MAX;

/// The servers of one group.
pub(crate) struct Servers {
    pub(super) servers: Vec<Server>,
    /// Index here of each server of the storage, or [`NO_SERVER`].
    pub(super) index_of_server: Vec<u32>,
    /// The only server of each node of a burst buffer, by the node's number within the group.
    pub(super) server_of_node: Vec<u32>,
    /// The data paths of the group's nodes.
    pub(super) paths: Vec<Path>,
    /// Number in the storage of each of them.
    pub(super) path_numbers: Vec<u32>,
    /// Locks of the clients of a parallel file system.
    pub(super) extent_locks: ExtentLocks,
    pub(super) requests: RequestTable,
    pub(super) flushes: Flushes,
    /// Writes whose data are in flight, by tag.
    fetching: FxHashMap<u64, u32>,
}

impl Servers {
    /// The servers of all jobs in a group. The jobs are on one file system: several instances may
    /// have a node in common, and all targets are those of the one parallel file system.
    pub fn new(jobs: &[Arc<IoJob>], group: u16) -> Self {
        let [job, others @ ..] = jobs else { unreachable!("no I/O job") };
        let nodes = job.topology.nodes_of_group(group).len();
        let mut servers = Servers {
            servers: Vec::new(),
            index_of_server: vec![NO_SERVER; job.storage.servers().len()],
            server_of_node: vec![NO_SERVER; nodes],
            paths: Vec::new(),
            path_numbers: Vec::new(),
            extent_locks: ExtentLocks::default(),
            requests: RequestTable::default(),
            flushes: Flushes::default(),
            fetching: FxHashMap::default(),
        };
        let mut index_of_path = vec![u32::MAX; job.storage.paths().len()];
        for (number, path) in (0..).zip(job.storage.paths()) {
            if job.topology.location(path.node).group == group {
                index_of_path[number as usize] = servers.paths.len() as u32;
                servers.paths.push(Path::new(path.rate));
                servers.path_numbers.push(number);
            }
        }
        for (number, place) in job.storage.servers().iter().enumerate() {
            let location = job.topology.location(place.node);
            if location.group == group {
                let index = servers.servers.len() as u32;
                servers.index_of_server[number] = index;
                servers.server_of_node[usize::from(location.local)] = index;
                let paths = place.paths.iter().map(|path| index_of_path[*path as usize]).collect();
                servers.servers.push(Server::new(
                    place.node,
                    paths,
                    &job.burst_buffer,
                    job.server_queues,
                ));
            }
        }
        for other in others {
            assert_eq!(other.storage.is_parallel(), job.storage.is_parallel(), "file systems");
            if !other.storage.is_parallel() {
                servers.add_instance(other, group);
            }
        }
        servers
    }

    /// Adds the burst-buffer nodes of a job's instance that no job before has.
    fn add_instance(&mut self, job: &IoJob, group: u16) {
        for place in job.storage.servers() {
            let location = job.topology.location(place.node);
            // A group of core routers has no nodes.
            if location.group != group {
                continue;
            }
            let known = &mut self.server_of_node[usize::from(location.local)];
            if *known == NO_SERVER {
                *known = self.servers.len() as u32;
                let path = self.paths.len() as u32;
                self.paths.push(Path::new(job.burst_buffer.data_rate));
                self.path_numbers.push(path);
                self.servers.push(Server::new(
                    place.node,
                    vec![path],
                    &job.burst_buffer,
                    job.server_queues,
                ));
            }
        }
    }

    /// Runs an event.
    pub fn handle(&mut self, event: ServerEvent, io: &mut IoContext<'_, '_>) {
        match event {
            ServerEvent::Dispatched(index) => self.start_or_queue(index, io),
            ServerEvent::FetchData(index) => self.reply(index, ReplyKind::FetchData, 0, io),
            ServerEvent::DataTakenIn(index) => self.write_when_room(index, io),
            ServerEvent::FlashWritten(index) => self.end_write(index, io),
            ServerEvent::FlashRead(index) => self.send_when_free(index, io),
            ServerEvent::SendReadData(index) => {
                let bytes = self.requests.get(index).bytes;
                self.reply(index, ReplyKind::ReadData, bytes, io);
            }
            ServerEvent::ReleaseLock(index) => self.end_lock(index, io),
            ServerEvent::ReadSent(index) => self.end_read(index, io),
            ServerEvent::Reply(index) => self.end_without_data(index, io),
            ServerEvent::SubmitFlush(index) => self.submit_flush(index, io),
            ServerEvent::Flushed(index) => self.end_flush(index, io),
        }
    }

    /// Accepts a request.
    pub fn receive_request(
        &mut self,
        kind: RequestKind,
        packet: &Packet,
        io: &mut IoContext<'_, '_>,
    ) {
        let server = self.server_of_request(kind, packet, io);
        let mut request = Request {
            tag: packet.tag(),
            client: packet.src,
            server,
            kind,
            file: FileId(0),
            offset: 0,
            object: (0, 0),
            bytes: 0,
            missing: 0,
            arrived_at: io.now(),
            dispatched_at: io.now(),
        };
        if matches!(kind, RequestKind::Write | RequestKind::Read) {
            locate(&mut request, io);
        }
        let state = &mut self.servers[server as usize];
        let (start, mut end, event): (_, _, fn(u32) -> ServerEvent) =
            if kind == RequestKind::Metadata {
                let cost = PS_PER_SECOND / u64::from(io.job.burst_buffer.metadata_rate);
                let start = state.metadata.reserve(io.now(), cost);
                // There and back.
                (start, start + cost + 2 * io.job.storage.latency.0, ServerEvent::Reply)
            } else {
                let cost = io.job.burst_buffer.dispatch.0;
                let start = state.dispatch.reserve(io.now(), cost);
                (start, start + cost + io.job.storage.latency.0, ServerEvent::Dispatched)
            };
        let mut waited = start - io.now();
        if let (Some(limit), 1..) = (io.job.rate_limit, request.bytes) {
            let permitted = state.permit(io.job.number, limit, request.bytes, io.now());
            waited += permitted.saturating_sub(end);
            end = end.max(permitted);
        }
        // The waits explain the duration of transfers, and metadata operations are not part of one.
        if kind != RequestKind::Metadata {
            io.waits_of(packet.tag(), packet.src).server += waited;
        }
        let node = self.servers[server as usize].node;
        if let Some(observer) = io.observer {
            observer.enter_server(node, io.context.now);
        }
        let stage = match kind {
            RequestKind::Metadata => Stage::Service,
            RequestKind::Write | RequestKind::Read | RequestKind::Sync => Stage::Dispatch,
        };
        io.stage(node, request.tag, stage, (io.now(), end), waited);
        let index = self.requests.insert(request);
        io.schedule(end, event(index));
    }

    /// Accepts data of a write.
    pub fn receive_data(&mut self, packet: &Packet, io: &mut IoContext<'_, '_>) {
        let Some(&index) = self.fetching.get(&packet.tag()) else {
            unreachable!("data that no server requested: {packet:?}")
        };
        let request = self.requests.get_mut(index);
        assert!(request.missing >= u64::from(packet.bytes), "more data than requested: {packet:?}");
        request.missing -= u64::from(packet.bytes);
        if request.missing == 0 {
            let (bytes, server) = (request.bytes, request.server as usize);
            let requested_at = request.dispatched_at;
            self.fetching.remove(&packet.tag());
            io.count_network_wait(packet, packet.src, bytes);
            let at = self.take_in(server, bytes, io);
            let node = self.servers[server].node;
            io.stage(node, packet.tag(), Stage::FetchData, (requested_at, io.now()), 0);
            io.stage(node, packet.tag(), Stage::DataPath, (io.now(), at), at - io.now());
            if at > io.now() {
                io.waits_of(packet.tag(), packet.src).server += at - io.now();
                io.schedule(at, ServerEvent::DataTakenIn(index));
            } else {
                self.write_when_room(index, io);
            }
        }
    }

    /// The data of a write are at the server: it goes on when the page cache has room.
    fn write_when_room(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        if self.take_room(index, io) {
            self.lock_object(index, io);
        } else {
            self.flush(self.requests.get(index).server, io);
        }
    }

    /// A request has been dispatched: it takes a thread or waits for one.
    fn start_or_queue(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get_mut(index);
        request.dispatched_at = io.now();
        let server = request.server as usize;
        let job = RequestTag::unpack(request.tag).job;
        if self.servers[server].take_thread(index, job) {
            self.start(index, io);
        }
    }

    /// A thread begins a request.
    fn start(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let now = io.now();
        let request = self.requests.get(index);
        io.enter_request(request.tag);
        let waited = now - request.dispatched_at;
        io.waits_of(request.tag, request.client).server += waited;
        let node = self.servers[request.server as usize].node;
        io.stage(node, request.tag, Stage::Thread, (request.dispatched_at, now), waited);
        match request.kind {
            RequestKind::Write => {
                let at = self.reserve(request.server, |path| path.request(now, request.bytes));
                io.waits_of(request.tag, request.client).server += at - now;
                io.stage(node, request.tag, Stage::DataPath, (now, at), at - now);
                self.requests.get_mut(index).dispatched_at = at;
                self.fetching.insert(request.tag, index);
                io.schedule(at + io.job.storage.latency.0, ServerEvent::FetchData(index));
            }
            RequestKind::Read => self.lock_object(index, io),
            RequestKind::Sync | RequestKind::Metadata => {
                let rank = RequestTag::unpack(request.tag).rank;
                let file = io.position.pattern.file(rank, io.position.access);
                let cache = &mut self.servers[request.server as usize].cache;
                if cache.sync(file, index) {
                    return self.flush(request.server, io);
                }
                let at = now + io.job.burst_buffer.sync.0;
                io.stage(node, request.tag, Stage::Service, (now, at), 0);
                io.schedule(at, ServerEvent::Reply(index));
            }
        }
    }

    /// Sends a message to a request's client: `bytes` of data, or a control message if 0.
    fn reply(&mut self, index: u32, kind: ReplyKind, bytes: u64, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        let node = self.servers[request.server as usize].node;
        io.send(node, request.client, PacketKind::Reply(kind), bytes, request.tag);
    }

    pub(super) fn access_flash(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        let is_write = request.kind == RequestKind::Write;
        let make = &io.job.burst_buffer;
        let server = &mut self.servers[request.server as usize];
        let commands = request.extent().commands(make);
        let done = match !is_write && server.cache.is_dirty(request.extent()) {
            true => Completion { at: io.now(), waited: 0 },
            false => server.ssd.submit_all(commands, is_write, io.now()),
        };
        let node = server.node;
        io.waits_of(request.tag, request.client).ssd += done.waited;
        io.stage(node, request.tag, Stage::Flash, (io.now(), done.at), done.waited);
        if is_write {
            if io.job.storage.is_parallel() {
                let object = (request.file.0, request.server);
                self.extent_locks.note_flush(object, request.client, request.offset, done.at);
            }
            return io
                .schedule(done.at + io.job.storage.latency.0, ServerEvent::FlashWritten(index));
        }
        let copied = done.at + copy_time(request.bytes, io.job);
        io.stage(node, request.tag, Stage::Copy, (done.at, copied), 0);
        io.schedule(copied, ServerEvent::FlashRead(index));
    }

    /// A write is complete: on flash, or in the page cache.
    pub(super) fn end_write(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        self.reply(index, ReplyKind::Done, 0, io);
        let server = self.requests.get(index).server;
        self.end_request(index, io);
        self.release_thread(server, io);
    }

    /// A request leaves its server.
    fn end_request(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        if let Some(observer) = io.observer {
            let times = (request.arrived_at, io.context.now);
            let node = self.servers[request.server as usize].node;
            observer.leave_server(node, request.tag, request.kind, times, request.bytes);
        }
        self.requests.remove(index);
    }

    /// The data of a read are in memory: they wait for the data path.
    fn send_when_free(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        let now = io.now();
        let at = self.reserve(request.server, |path| path.send(now, request.bytes));
        let time = self.slowest_path_time(request.server, request.bytes);
        io.waits_of(request.tag, request.client).server += at - now;
        let node = self.servers[request.server as usize].node;
        io.stage(node, request.tag, Stage::DataPath, (now, at), at - now);
        let at = at + io.job.storage.latency.0;
        io.stage(node, request.tag, Stage::SendData, (at, at + time), 0);
        io.schedule(at, ServerEvent::SendReadData(index));
        io.schedule(at + time, ServerEvent::ReadSent(index));
    }

    /// The data of a read have left the server's memory.
    fn end_read(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let server = self.requests.get(index).server;
        self.end_request(index, io);
        self.release_thread(server, io);
    }

    /// A sync or a metadata operation is done.
    fn end_without_data(&mut self, index: u32, io: &mut IoContext<'_, '_>) {
        let request = self.requests.get(index);
        self.reply(index, ReplyKind::Done, 0, io);
        self.end_request(index, io);
        if request.kind == RequestKind::Sync {
            self.release_thread(request.server, io);
        }
    }

    fn release_thread(&mut self, server: u32, io: &mut IoContext<'_, '_>) {
        if let Some(next) = self.servers[server as usize].release_thread() {
            self.start(next, io);
        }
    }
}

/// Time that a thread of the server takes to copy `bytes` into or out of the page cache, ps.
pub(crate) fn copy_time(bytes: u64, job: &IoJob) -> u64 {
    job.burst_buffer.copy_rate.time_for(Bytes(bytes)).0
}

/// Sets the bytes and the object of a request.
fn locate(request: &mut Request, io: &IoContext<'_, '_>) {
    let (file, piece) = io.position.piece(RequestTag::unpack(request.tag), io.job);
    request.bytes = piece.bytes;
    request.missing = piece.bytes;
    (request.file, request.offset) = (file, piece.offset);
    request.object = (file.0, io.job.object_of(piece.offset));
}
