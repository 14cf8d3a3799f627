//! The requests of the first calls, and the rates of the servers that have them.

use crate::flow::fabric::Fabric;
use crate::flow::phase_links::PhaseLinks;
use crate::flow::runs::Runs;
use crate::io::{IoJob, PS_PER_SECOND};
use forebay_machine_file::machine::Structure;
use rustc_hash::FxHashMap;

/// A part of a process's first call, to one server: requests whose data the interface of a node sends together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Place of the process in the order of the starts, and its node's index in the job.
    pub process: usize,
    pub node: u32,
    pub server: u32,
    pub bytes: f64,
    /// Requests, and the number of the first among those of the call.
    pub requests: u64,
    pub first: u64,
}

/// The parts of the first calls, each of at most `together` requests, in the order of the processes' starts.
pub(super) fn parts_of(
    job: &IoJob,
    runs: &Runs<'_>,
    starts: &[(u64, u32)],
    together: u64,
) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(starts.len());
    for (process, (_, rank)) in starts.iter().enumerate() {
        let transfer = runs.pattern.transfer(*rank, runs.access, 0);
        let (first, node) = (parts.len(), runs.pattern.node_of(*rank));
        for (number, piece) in (0..).zip(job.pieces(transfer.offset, transfer.bytes)) {
            let server = job.server_of(transfer.file, piece.offset);
            let has_room = |part: &&mut Part| part.server == server && part.requests < together;
            let known = parts[first..].iter_mut().find(has_room);
            match known {
                Some(part) => {
                    part.bytes += piece.bytes as f64;
                    part.requests += 1;
                }
                None => {
                    let bytes = piece.bytes as f64;
                    parts.push(Part { process, node, server, bytes, requests: 1, first: number });
                }
            }
        }
    }
    parts
}

/// Messages that the interface of a node sends at a time.
pub(super) fn messages_together(job: &IoJob) -> u64 {
    u64::from(job.network.nic.interleaved_messages.max(1))
}

/// Rates of the servers of parts, bytes per picosecond.
pub(super) fn rates_of_servers(
    parts: &[Part],
    links: &PhaseLinks<'_>,
    fabric: &Fabric,
) -> FxHashMap<u32, f64> {
    let rate = |server: u32| links.rate_of_server(server, fabric) / PS_PER_SECOND as f64;
    parts.iter().map(|part| (part.server, rate(part.server))).collect()
}

/// The time from the begin of a call until the first request of a part is at its server, ps, without what all
/// requests need: the way through the network without others, and the requests that the interface of the node sends
/// before. Only the order of the requests at a server depends on it.
pub(super) fn way_of_request(job: &IoJob, part: &Part) -> u64 {
    let (topology, network) = (&job.topology, &job.network);
    let from = topology.location(job.nodes[part.node as usize]);
    let to = topology.location(job.storage.node_of(part.server));
    let hop = network.router_traversal.0 + network.rank1.latency.0;
    let within = |a, b| u64::from(topology.distance(a, b)) * hop;
    let way = if from.group == to.group {
        within(from.router, to.router)
    } else {
        let across = network.router_traversal.0 + network.global.latency.0;
        let link = topology.shortest_link((from.group, from.router), (to.group, to.router), 0);
        match topology.structure {
            Structure::FatTree => 2 * across,
            Structure::Dragonfly | Structure::DragonflyPlus => {
                within(from.router, link.router) + across + within(link.far_router, to.router)
            }
        }
    };
    way + part.first * job.node_link.time_for(job.client.control_message).0
}
