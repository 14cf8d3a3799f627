//! The parts of clients and servers, with their rates.

use super::fabric::Resource;
use crate::io::{IoJob, PS_PER_SECOND, ServerRates};
use forebay_machine_file::machine::Client;
use forebay_workload::ior::{Access, Transfer};

/// A part of a server or client: kind, name and rate. The slowest of several that carry the same bytes is
/// their link's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub resource: Resource,
    pub name: &'static str,
    pub rate: f64,
}

pub(super) fn slowest(parts: &[Part]) -> Part {
    let slowest = parts.iter().min_by(|a, b| a.rate.total_cmp(&b.rate));
    *slowest.unwrap_or_else(|| unreachable!("a link without a part"))
}

/// Requests of a transfer that are in flight to one object together.
pub(super) fn requests_together(job: &IoJob, transfer: &Transfer) -> f64 {
    let object = |offset| (job.server_of(transfer.file, offset), job.object_of(offset));
    let first = object(transfer.offset);
    let in_flight = job.pieces(transfer.offset, transfer.bytes);
    let in_flight = in_flight.take(job.client.requests_in_flight.max(1) as usize);
    in_flight.filter(|piece| object(piece.offset) == first).count().max(1) as f64
}

/// Mean time of a request of `piece` bytes, ps, in calls that take `lone` ps: that of the call, or less where a call
/// has more requests than may be under way together (Little's law).
fn time_of_request(job: &IoJob, (piece, lone): (u64, f64)) -> f64 {
    let requests = job.pattern.transfer_bytes().div_ceil(piece.max(1)).max(1) as f64;
    lone * (f64::from(job.client.requests_in_flight.max(1)) / requests).min(1.0)
}

/// The parts of a client in the direction of an access, for requests of `piece` bytes in calls of `lone`
/// ps.
pub(super) fn client_parts(
    job: &IoJob,
    client: &Client,
    node_link: f64,
    access: Access,
    (piece, lone): (u64, f64),
) -> [Part; 3] {
    let rate = match access {
        Access::Write => client.write_rate,
        Access::Read => client.read_rate,
    };
    let in_flight = f64::from(client.requests_per_node) * piece as f64;
    [
        Part { resource: Resource::Client, name: "client", rate: rate.0 as f64 },
        Part {
            resource: Resource::Client,
            name: "requests in flight",
            rate: in_flight * PS_PER_SECOND as f64 / time_of_request(job, (piece, lone)),
        },
        Part { resource: Resource::NodeLink, name: "link", rate: node_link },
    ]
}

/// The name of a server: that of its node, or of the target of a parallel file system.
pub(super) fn server_name(job: &IoJob, number: u32, node: u32) -> String {
    let group = job.topology.location(node).group;
    match job.storage.is_parallel() {
        true => format!("OST {number} behind node {node}, group {group}"),
        false => format!("node {node}, group {group}"),
    }
}

/// The parts of a server for requests of `piece` bytes in calls of `lone` ps. A request takes a thread for its time in
/// a lone call at most.
pub(super) fn server_parts(
    job: &IoJob,
    access: Access,
    rates: &ServerRates,
    (piece, lone): (u64, f64),
) -> Vec<Part> {
    let make = &job.burst_buffer;
    let in_requests = (lone - job.client.call_overhead.0 as f64).max(1.0);
    let at_server = time_of_request(job, (piece, in_requests)).max(1.0);
    let threads = f64::from(make.threads) * piece as f64 * PS_PER_SECOND as f64 / at_server;
    let part = |resource, name, rate| Part { resource, name, rate };
    let (path, link) = match access {
        Access::Write => ("data path in", "link in"),
        Access::Read => ("data path out", "link out"),
    };
    let mut parts = vec![part(Resource::Server, "dispatch", rates.dispatch)];
    if job.storage.is_parallel() {
        parts.push(part(Resource::Server, "threads", threads));
        parts.push(part(Resource::Ssd, "disks", rates.flash));
        return parts;
    }
    parts.push(part(Resource::Server, path, rates.data_path));
    parts.push(part(Resource::Server, "threads", threads));
    let of_nodes = job.storage.servers().iter().map(|server| job.links_rate(server.node));
    parts.push(part(Resource::NodeLink, link, of_nodes.fold(f64::INFINITY, f64::min)));
    if access == Access::Read || make.dirty_limit.0 == 0 {
        parts.push(part(Resource::Ssd, "flash", rates.flash));
    }
    parts
}

/// The longest of calls alone, at least 1 ps.
pub(super) fn slowest_call(lone: &[f64]) -> f64 {
    lone.iter().copied().fold(1.0, f64::max)
}
