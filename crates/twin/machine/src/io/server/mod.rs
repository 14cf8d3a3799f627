//! Burst-buffer nodes: what they have, and what they are busy with; `service.rs` has what they do.

mod service;

use super::locks::{Locks, Object};
use super::ssd::Ssd;
use crate::scenario::Scenario;
use forebay_machine_file::machine::BurstBuffer;
use forebay_workload::ior::FileId;
use forebay_workload::random::{hash, stream_label};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Busy times of one server up to some moment, ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub dispatch: u64,
    pub inbound: u64,
    pub outbound: u64,
    pub metadata: u64,
    /// Sum over the channels.
    pub channels: u64,
}

impl Usage {
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            dispatch: self.dispatch - before.dispatch,
            inbound: self.inbound - before.inbound,
            outbound: self.outbound - before.outbound,
            metadata: self.metadata - before.metadata,
            channels: self.channels - before.channels,
        }
    }
}

/// One burst-buffer node.
struct Server {
    node: u32,
    dispatch_free: u64,
    inbound_free: u64,
    outbound_free: u64,
    metadata_free: u64,
    idle_threads: u32,
    /// Dispatched requests without a thread; each is of a call that its client waits for, so
    /// there are at most `requests_in_flight` a process.
    ready: VecDeque<u32>,
    locks: Locks,
    ssd: Ssd,
    usage: Usage,
}

/// A request at a server.
#[derive(Clone, Copy, Debug)]
struct Request {
    tag: u64,
    client: u32,
    server: u32,
    kind: u8,
    controller: u32,
    object: Object,
    bytes: u64,
    /// Bytes of data still to come from the client.
    missing: u64,
    /// Since when it waits for what it waits for, ps.
    since: u64,
}

/// The servers of one group.
#[derive(Default)]
pub(crate) struct Servers {
    servers: Vec<Server>,
    /// By the node's number within the group: its server, or `u32::MAX`.
    of_node: Vec<u32>,
    requests: Vec<Request>,
    unused: Vec<u32>,
    /// Writes whose data are on the way, by tag.
    fetching: FxHashMap<u64, u32>,
}

impl Servers {
    pub fn new(world: &Scenario, group: u16) -> Self {
        let Some(job) = &world.io else {
            return Servers::default();
        };
        let members = world.topology.nodes_of_group(group);
        let mut servers = Servers {
            of_node: vec![u32::MAX; members.len()],
            ..Servers::default()
        };
        for &node in &job.servers {
            let place = world.topology.location(node);
            if place.group == group {
                servers.of_node[usize::from(place.local)] = servers.servers.len() as u32;
                servers.servers.push(Server {
                    node,
                    dispatch_free: 0,
                    inbound_free: 0,
                    outbound_free: 0,
                    metadata_free: 0,
                    idle_threads: job.burst_buffer.threads,
                    ready: VecDeque::new(),
                    locks: Locks::default(),
                    ssd: Ssd::new(&job.burst_buffer),
                    usage: Usage::default(),
                });
            }
        }
        servers
    }

    /// Node number and busy times of each server.
    pub fn usage(&self) -> Vec<(u32, Usage)> {
        self.servers
            .iter()
            .map(|s| {
                (
                    s.node,
                    Usage {
                        channels: s.ssd.busy,
                        ..s.usage
                    },
                )
            })
            .collect()
    }

    fn insert(&mut self, request: Request) -> u32 {
        match self.unused.pop() {
            Some(index) => {
                self.requests[index as usize] = request;
                index
            }
            None => {
                self.requests.push(request);
                (self.requests.len() - 1) as u32
            }
        }
    }

    fn request(&mut self, index: u32) -> &mut Request {
        &mut self.requests[index as usize]
    }
}

/// Card and controller that have a sub-stripe of a file. Sub-stripes go to the cards in turn, and
/// on a card to the controllers in turn, beginning with one that differs from stripe to stripe
/// and from file to file: each stripe is an extent, which the file system there puts where it
/// finds room.
fn controller(file: FileId, chunk: u64, make: &BurstBuffer) -> (u32, u32) {
    let (cards, controllers) = (
        u64::from(make.cards.max(1)),
        u64::from(make.controllers_per_card.max(1)),
    );
    let (card, on_card) = (chunk % cards, chunk / cards);
    let stripe = chunk * make.substripe.0 / make.stripe.0.max(1);
    let first = hash(file.0, stream_label("extents") ^ card, stripe) % controllers;
    (
        card as u32,
        (card * controllers + (first + on_card) % controllers) as u32,
    )
}
