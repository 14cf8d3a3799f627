//! The first calls of all processes of a phase, which begin at the same time.
//!
//! Rates let a process's client, links and servers work at the same time from the beginning. In its first call
//! they begin one after another, and servers serve the requests in the order of their arrival: the data of the
//! last process leave its server when those of all others have, and then take the rest of their way as alone.
//! Later calls are in the same order, so that this time is lost once in a phase. It matters where a process
//! makes few calls: of the parallel file system, whose clients move up to a window at once, or with large
//! transfers.
//!
//! *Reads* ([`FirstReads`]): a server's disks serve requests in the order of the processes' starts; the interface
//! of its node sends some messages at a time and holds up those behind them, also where these go to other
//! nodes; the link of a client's node gets messages of all servers at the same time; and the client takes a
//! message in when it is whole, one after another. *Writes*: clients send at the same time, so that the wait
//! for others is that of one request.

use super::fabric::{Fabric, Path, Resource, merge};
use super::links::Links;
use super::network_links::{DRAWS, NetworkLinks};
use super::phase_links::PhaseLinks;
use super::runs::Runs;
use crate::io::{IoJob, PS_PER_SECOND};
use forebay_flow::{FlowId, FlowSpec, LinkId};
use forebay_random::hash_number;
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Calls of a process from which on the first one is left out.
const MOST_CALLS: u64 = 64;
/// Parts of calls, each to one server, that are simulated at most.
const MOST_PARTS: usize = 1 << 14;
/// Most by which the shares of interfaces differ where they meet at a link, as a part of the least: routers
/// serve their inputs in turn, whatever number of interfaces is behind each. With equal shares all interfaces
/// would send the messages to one node at the same time, and end at the same time. Assumed; *settled in view* of
/// reads of one file over 8 and 16 targets, whose time depends little on it as long as it is not 0.
const UNEVEN: f64 = 0.1;
/// Times of the simulation are rounded up to this part of a call alone.
const RESOLUTION: f64 = 256.0;

/// A part of a process's first call, to one server: as many requests as the interface of its node answers at
/// a time.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Place of the process in the order of the starts, and its node's index in the job.
    process: usize,
    node: u32,
    server: u32,
    bytes: f64,
    /// Requests.
    requests: u64,
}

/// Time, ps, by which the first calls of all processes take longer than their rates say; `starts` has the time
/// and the rank of each, in the order of the times. `lone` is the duration of a call alone by the node's index.
pub(super) fn delay_of_first_calls(
    (job, runs): (&IoJob, &Runs<'_>),
    starts: &[(u64, u32)],
    (links, lone): (&PhaseLinks<'_>, &[f64]),
    fabric: &Fabric,
) -> u64 {
    if job.pattern.transfers_per_rank() > MOST_CALLS {
        return 0;
    }
    let parts = parts_of(job, runs, starts);
    let rates = rates_of_servers(&parts, links, fabric);
    let mut of_server: FxHashMap<u32, f64> = FxHashMap::default();
    for part in &parts {
        *of_server.entry(part.server).or_default() += part.bytes / rates[&part.server];
    }
    let client_rate = |node: u32| {
        let client = &job.clients[usize::from(job.client_of_node[node as usize])];
        let rate = match runs.access {
            Access::Write => client.write_rate,
            Access::Read => client.read_rate,
        };
        rate.0 as f64 / PS_PER_SECOND as f64
    };
    let mut of_node: FxHashMap<u32, f64> = FxHashMap::default();
    let mut of_process = vec![(0.0, 0.0, 0); starts.len()];
    let mut own_at_server: FxHashMap<(usize, u32), f64> = FxHashMap::default();
    for part in &parts {
        let own = own_at_server.entry((part.process, part.server)).or_default();
        *own += part.bytes / rates[&part.server];
    }
    for part in &parts {
        *of_node.entry(part.node).or_default() += part.bytes / client_rate(part.node);
        let all = of_server[&part.server];
        let (most, others, requests) = &mut of_process[part.process];
        *most = f64::max(*most, all);
        *others = f64::max(*others, all - own_at_server[&(part.process, part.server)]);
        *requests += part.requests;
    }
    let ends = match runs.access {
        Access::Read if parts.len() <= MOST_PARTS => {
            Some(FirstReads::new(job, &parts, &rates, lone[0]).ends(starts))
        }
        Access::Read | Access::Write => None,
    };
    let (mut longest, mut steady) = (0.0_f64, 0.0_f64);
    for (process, (_, rank)) in starts.iter().enumerate() {
        let node = runs.pattern.node_of(*rank);
        let (at_server, others, requests) = of_process[process];
        let (alone, at_client) = (lone[node as usize], of_node[&node]);
        let own = runs.pattern.length_of(0) as f64 / client_rate(node);
        let first = match &ends {
            Some((ends, end_alone)) => alone + ends[process] - end_alone,
            None => others / requests.max(1) as f64 + alone + (at_client - own).max(0.0),
        };
        longest = longest.max(first);
        steady = steady.max(at_server).max(alone).max(at_client);
    }
    (longest - steady).max(0.0) as u64
}

/// The parts of the first calls, in the order of the processes' starts.
fn parts_of(job: &IoJob, runs: &Runs<'_>, starts: &[(u64, u32)]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(starts.len());
    for (process, (_, rank)) in starts.iter().enumerate() {
        let transfer = runs.pattern.transfer(*rank, runs.access, 0);
        let (first, node) = (parts.len(), runs.pattern.node_of(*rank));
        for piece in job.pieces(transfer.offset, transfer.bytes) {
            let server = job.server_of(transfer.file, piece.offset);
            // An interface sends so many messages of a part at a time.
            let has_room =
                |part: &&mut Part| part.server == server && part.requests < messages_together(job);
            let known = parts[first..].iter_mut().find(has_room);
            match known {
                Some(part) => {
                    part.bytes += piece.bytes as f64;
                    part.requests += 1;
                }
                None => {
                    let bytes = piece.bytes as f64;
                    parts.push(Part { process, node, server, bytes, requests: 1 });
                }
            }
        }
    }
    parts
}

/// Messages that the interface of a node sends at a time.
fn messages_together(job: &IoJob) -> u64 {
    u64::from(job.network.nic.interleaved_messages.max(1))
}

/// Rates of the servers of parts, bytes per picosecond.
fn rates_of_servers(
    parts: &[Part],
    links: &PhaseLinks<'_>,
    fabric: &Fabric,
) -> FxHashMap<u32, f64> {
    let rate = |server: u32| links.rate_of_server(server, fabric) / PS_PER_SECOND as f64;
    parts.iter().map(|part| (part.server, rate(part.server))).collect()
}

/// The interface of a node with servers: parts that its disks have read, the first of which it sends.
#[derive(Clone, Debug, Default)]
struct Interface {
    waiting: VecDeque<usize>,
    /// Messages that it sends.
    messages: u64,
}

/// The first reads of all processes.
struct FirstReads<'a> {
    job: &'a IoJob,
    parts: &'a [Part],
    rates: &'a FxHashMap<u32, f64>,
    resolution: u64,
}

impl<'a> FirstReads<'a> {
    fn new(
        job: &'a IoJob,
        parts: &'a [Part],
        rates: &'a FxHashMap<u32, f64>,
        alone: f64,
    ) -> FirstReads<'a> {
        FirstReads { job, parts, rates, resolution: (alone / RESOLUTION).max(1.0) as u64 }
    }

    /// Durations of the first calls, ps, in the order of the starts; and that of the first process's without
    /// others, both without the latencies of requests.
    fn ends(&self, starts: &[(u64, u32)]) -> (Vec<f64>, f64) {
        let first: Vec<usize> =
            (0..self.parts.len()).filter(|part| self.parts[*part].process == 0).collect();
        let alone = self.simulate(&first, starts)[0];
        let all: Vec<usize> = (0..self.parts.len()).collect();
        (self.simulate(&all, starts), alone)
    }

    /// Durations of the calls that consist of these parts, ps.
    fn simulate(&self, parts: &[usize], starts: &[(u64, u32)]) -> Vec<f64> {
        let origin = starts.first().map_or(0, |start| start.0);
        // Disks, in the order of the starts.
        let mut disks: FxHashMap<u32, f64> = FxHashMap::default();
        let mut ready: Vec<(u64, usize)> = Vec::with_capacity(parts.len());
        for &number in parts {
            let part = &self.parts[number];
            let free = disks.entry(part.server).or_default();
            let began = free.max((starts[part.process].0 - origin) as f64);
            *free = began + part.bytes / self.rates[&part.server];
            // The messages of the first requests are on their way while the others are read.
            let in_time = (part.bytes / part.requests as f64) / self.rates[&part.server];
            ready.push(((began + in_time) as u64, number));
        }
        ready.sort_unstable();
        let mut network = Network::new(self, ready);
        let mut clients: FxHashMap<u32, f64> = FxHashMap::default();
        let mut ends = vec![0.0_f64; starts.len()];
        while let Some((now, ended)) = network.next_ends() {
            for number in ended {
                let part = &self.parts[number];
                let client =
                    &self.job.clients[usize::from(self.job.client_of_node[part.node as usize])];
                let takes = part.bytes * PS_PER_SECOND as f64 / client.read_rate.0 as f64;
                let free = clients.entry(part.node).or_default();
                *free = free.max(now as f64) + takes;
                let start = (starts[part.process].0 - origin) as f64;
                ends[part.process] = ends[part.process].max(*free - start);
            }
        }
        ends
    }
}

/// Parts that an interface sends together. Their packets pass the same buffers in turn, so that each message is
/// as fast as the slowest of them.
#[derive(Clone, Debug, Default)]
struct Bundle {
    node: u32,
    /// Parts with the bytes left of each of their messages.
    parts: Vec<(usize, f64)>,
    /// Bytes of each message until the first part ends.
    bytes: f64,
}

/// Messages on their way from servers to clients.
struct Network<'a> {
    reads: &'a FirstReads<'a>,
    links: Links,
    between: NetworkLinks,
    /// By node of servers: its link, and the interface.
    interfaces: FxHashMap<u32, (LinkId, Interface)>,
    /// Links to the clients, by the node's index in the job.
    clients: FxHashMap<u32, LinkId>,
    /// Parts that are not read yet, by the time when they are, ps.
    ready: VecDeque<(u64, usize)>,
    /// By the flow's index.
    bundles: Vec<Bundle>,
}

impl<'a> Network<'a> {
    fn new(reads: &'a FirstReads<'a>, ready: Vec<(u64, usize)>) -> Network<'a> {
        let job = reads.job;
        let mut network = Network {
            reads,
            links: Links::new(),
            between: NetworkLinks::new(&job.topology, &job.network),
            interfaces: FxHashMap::default(),
            clients: FxHashMap::default(),
            ready: Vec::new().into(),
            bundles: Vec::new(),
        };
        network.links.transport.set_resolution(reads.resolution);
        network.between.add_groups(&mut network.links);
        let mut of_node: FxHashMap<u32, f64> = FxHashMap::default();
        for &(_, number) in &ready {
            let part = &reads.parts[number];
            let node = job.storage.node_of(part.server);
            let (links, client) = (&mut network.links, job.nodes[part.node as usize]);
            let mut link = |of: u32| {
                links.add(Resource::NodeLink, format!("the link of node {of}"), job.links_rate(of))
            };
            network.interfaces.entry(node).or_insert_with(|| (link(node), Interface::default()));
            network.clients.entry(part.node).or_insert_with(|| link(client));
            *of_node.entry(part.node).or_default() += part.bytes / job.links_rate(client);
        }
        // Adaptive routing finds the demand of all messages, at the rate of the clients' links.
        let seconds = of_node.values().copied().fold(f64::MIN_POSITIVE, f64::max);
        for &(_, number) in &ready {
            let (ends, bytes) = (network.ends(number), reads.parts[number].bytes);
            let keys = network.between.direct_links(ends.0, ends.1, DRAWS);
            for &key in &keys {
                let link = network.between.direct_link(key, &mut network.links);
                link.demand += bytes / seconds / keys.len() as f64;
            }
        }
        network.ready = ready.into();
        network
    }

    /// The nodes from which and to which a part goes.
    fn ends(&self, number: usize) -> (u32, u32) {
        let client = self.reads.job.nodes[self.reads.parts[number].node as usize];
        (self.node_of(number), client)
    }

    /// The next time at which parts have arrived as a whole, ps, and these; `None` if all have.
    fn next_ends(&mut self) -> Option<(u64, Vec<usize>)> {
        loop {
            let until = self.ready.front().map_or(u64::MAX, |(at, _)| *at);
            if until == u64::MAX && self.links.transport.active() == 0 {
                return None;
            }
            if until > self.links.transport.now() {
                let ended: Vec<FlowId> = self.links.transport.next_ends(until).to_vec();
                if !ended.is_empty() {
                    let bundles: Vec<Bundle> = ended
                        .iter()
                        .map(|flow| std::mem::take(&mut self.bundles[flow.index()]))
                        .collect();
                    let mut parts = Vec::new();
                    for bundle in bundles {
                        parts.extend(self.end_bundle(bundle));
                    }
                    return Some((self.links.transport.now(), parts));
                }
                assert!(until != u64::MAX, "a message without a rate");
            }
            while self.ready.front().is_some_and(|(at, _)| *at <= self.links.transport.now()) {
                let Some((_, number)) = self.ready.pop_front() else { unreachable!("a part") };
                let node = self.node_of(number);
                if let Some((_, interface)) = self.interfaces.get_mut(&node) {
                    interface.waiting.push_back(number);
                }
                self.send(node, Vec::new());
            }
        }
    }

    fn node_of(&self, number: usize) -> u32 {
        self.reads.job.storage.node_of(self.reads.parts[number].server)
    }

    /// The first parts of a bundle have been sent, which are returned; the others go on.
    fn end_bundle(&mut self, bundle: Bundle) -> Vec<usize> {
        let Bundle { node, parts, bytes } = bundle;
        let (mut done, mut left) = (Vec::new(), Vec::new());
        for (number, of_message) in parts {
            // Half a byte is a rounding error.
            match of_message - bytes < 0.5 {
                true => done.push(number),
                false => left.push((number, of_message - bytes)),
            }
        }
        assert!(!done.is_empty(), "a bundle ended before its parts");
        if let Some((_, interface)) = self.interfaces.get_mut(&node) {
            interface.messages -=
                done.iter().map(|number| self.reads.parts[*number].requests).sum::<u64>();
        }
        self.send(node, left);
        done
    }

    /// Sends what an interface sends at a time, with the rest of a bundle.
    fn send(&mut self, node: u32, mut parts: Vec<(usize, f64)>) {
        let together = messages_together(self.reads.job);
        let Some((link, interface)) = self.interfaces.get_mut(&node) else { return };
        while interface.messages < together {
            let Some(number) = interface.waiting.pop_front() else { break };
            let part = &self.reads.parts[number];
            interface.messages += part.requests;
            parts.push((number, part.bytes / part.requests as f64));
        }
        let requests = |parts: &[(usize, f64)]| {
            parts.iter().map(|(number, _)| self.reads.parts[*number].requests).sum::<u64>() as f64
        };
        let Some(&(first, _)) = parts.first() else { return };
        let all = requests(&parts);
        let mut path: Path = vec![(*link, 1.0)];
        for &(number, _) in &parts {
            let part = &self.reads.parts[number];
            let share = part.requests as f64 / all;
            let ends = (node, self.reads.job.nodes[part.node as usize]);
            path.push((self.clients[&part.node], share));
            self.between.add_path(ends, (share, DRAWS), &mut path, &mut self.links);
        }
        merge(&mut path);
        let bytes = parts.iter().map(|(_, left)| *left).fold(f64::INFINITY, f64::min);
        let place = (u64::from(node) << 32) | first as u64;
        let weight = all * (1.0 + UNEVEN * hash_number(place) as f64 / u64::MAX as f64);
        let spec = FlowSpec { count: 1, weight, cap: f64::INFINITY, path: &path };
        let flow = self.links.transport.start(spec, bytes * all);
        if self.bundles.len() <= flow.index() {
            self.bundles.resize(flow.index() + 1, Bundle::default());
        }
        self.bundles[flow.index()] = Bundle { node, parts, bytes };
    }
}
