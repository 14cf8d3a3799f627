//! The server of a request, and the data paths of servers.

use super::node::{Path, Server};
use super::servers::{NO_SERVER, Servers};
use crate::event::RequestKind;
use crate::io::context::IoContext;
use crate::io::job::{IoJob, RequestTag};
use crate::io::measure::ServerUsage;
use forebay_network::Packet;

impl Servers {
    /// Node number and busy times up to `now` (ps) of each server of a job's storage.
    pub fn usage(&self, now: u64, job: &IoJob) -> Vec<(u32, ServerUsage)> {
        let usage = |server: &Server| {
            let usage = server.usage(now);
            // The first is the server's own, or that nearest to it.
            let path = server.paths.first().map(|path| &self.paths[*path as usize]);
            let (inbound, outbound) = path.map_or((0, 0), |path| path.busy_until(now));
            (server.node, ServerUsage { inbound, outbound, ..usage })
        };
        self.servers.iter().filter(|server| job.storage.has_node(server.node)).map(usage).collect()
    }

    /// Number in the storage and busy times, in and out up to `now` (ps), of each data path of a parallel
    /// file system. Those of burst-buffer nodes are in their usage.
    pub fn path_usage(&self, now: u64, job: &IoJob) -> Vec<(u32, (u64, u64))> {
        if !job.storage.is_parallel() {
            return Vec::new();
        }
        let usage = |(number, path): (&u32, &Path)| (*number, path.busy_until(now));
        self.path_numbers.iter().zip(&self.paths).map(usage).collect()
    }

    /// The index of the server for which a request is.
    pub(super) fn server_of_request(
        &self,
        kind: RequestKind,
        packet: &Packet,
        io: &IoContext<'_, '_>,
    ) -> u32 {
        let tag = RequestTag::unpack(packet.tag());
        let server = if !io.job.storage.is_parallel() {
            let local = io.job.topology.location(packet.dst).local;
            self.server_of_node[usize::from(local)]
        } else {
            let number = match kind {
                RequestKind::Write | RequestKind::Read => {
                    let (file, piece) = io.position.piece(tag, io.job);
                    io.job.server_of(file, piece.offset)
                }
                RequestKind::Sync | RequestKind::Metadata => tag.request,
            };
            self.index_of_server[number as usize]
        };
        assert!(server != NO_SERVER, "a request for no server: {packet:?}");
        server
    }

    /// Reserves all data paths of a server; returns the latest start.
    pub(super) fn reserve(
        &mut self,
        server: u32,
        mut reserve: impl FnMut(&mut Path) -> u64,
    ) -> u64 {
        let paths = &self.servers[server as usize].paths;
        paths.iter().map(|path| reserve(&mut self.paths[*path as usize])).max().unwrap_or(0)
    }

    /// Takes data that have arrived at a server's node in over its data paths; returns the end.
    pub(super) fn take_in(&mut self, server: usize, bytes: u64, io: &IoContext<'_, '_>) -> u64 {
        let paths = &self.servers[server].paths;
        let end = paths.iter().map(|path| self.paths[*path as usize].take_in(io.now(), bytes));
        end.max().unwrap_or(io.now()) + io.job.storage.latency.0
    }

    /// Time of the slowest data path of a server for `bytes`, ps.
    pub(super) fn slowest_path_time(&self, server: u32, bytes: u64) -> u64 {
        let paths = &self.servers[server as usize].paths;
        paths.iter().map(|path| self.paths[*path as usize].time(bytes)).max().unwrap_or(0)
    }
}
