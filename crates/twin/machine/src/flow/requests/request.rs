//! The requests of calls.

use crate::flow::fabric::Fabric;
use crate::flow::phase_links::PhaseLinks;
use crate::flow::runs::Runs;
use crate::io::{Extent, IoJob, PS_PER_SECOND};
use forebay_machine_file::machine::Structure;
use std::ops::Range;

/// A request of a process's call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Place of the process in the order of the starts, and its node's index in the job.
    pub process: u32,
    pub node: u32,
    /// Number of the call.
    pub call: u32,
    pub server: u32,
    pub extent: Extent,
}

/// The requests of some calls of all processes.
#[derive(Debug)]
pub(super) struct Requests {
    /// Those of a process follow each other, in the order of its calls.
    pub all: Vec<Request>,
    /// Those of each process, in the order of the starts.
    pub of_process: Vec<Range<usize>>,
}

impl Requests {
    /// Those of the first calls, of which a process makes `calls`, in the order of the processes' starts.
    pub fn of((job, runs): (&IoJob, &Runs<'_>), starts: &[(u64, u32)], calls: u64) -> Requests {
        let mut all = Vec::new();
        let mut of_process = Vec::with_capacity(starts.len());
        for (process, &(_, rank)) in (0..).zip(starts) {
            let (first, node) = (all.len(), runs.pattern.node_of(rank));
            for call in 0..calls {
                let transfer = runs.pattern.transfer(rank, runs.access, call);
                for piece in job.pieces(transfer.offset, transfer.bytes) {
                    let extent =
                        Extent { file: transfer.file, offset: piece.offset, bytes: piece.bytes };
                    let server = job.server_of(transfer.file, piece.offset);
                    all.push(Request { process, node, call: call as u32, server, extent });
                }
            }
            of_process.push(first..all.len());
        }
        Requests { all, of_process }
    }
}

/// Messages that the interface of a node sends at a time.
pub(super) fn messages_together(job: &IoJob) -> usize {
    job.network.nic.interleaved_messages.max(1) as usize
}

/// Rate of a server, bytes per picosecond.
pub(super) fn rate_of_server(server: u32, links: &PhaseLinks<'_>, fabric: &Fabric) -> f64 {
    links.rate_of_server(server, fabric) / PS_PER_SECOND as f64
}

/// The time of a short message between a client and a server without others, ps.
pub(super) fn way_of(job: &IoJob, request: &Request) -> u64 {
    let (topology, network) = (&job.topology, &job.network);
    let from = topology.location(job.nodes[request.node as usize]);
    let to = topology.location(job.storage.node_of(request.server));
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
    way + 2 * network.node.latency.0 + time_of_control(job)
}

/// The time of a control message on the link of a node, ps.
pub(super) fn time_of_control(job: &IoJob) -> u64 {
    job.node_link.time_for(job.client.control_message).0
}
