//! Messages between clients and servers, as flows.

use super::parts::{Part, messages_together};
use crate::flow::fabric::{Path, Resource, merge};
use crate::flow::links::Links;
use crate::flow::network_links::{DRAWS, NetworkLinks};
use crate::io::IoJob;
use forebay_flow::{FlowId, FlowSpec, LinkId};
use forebay_random::hash_number;
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Most by which the shares of interfaces differ where they meet at a link, as a part of the least: routers
/// serve their inputs in turn, whatever number of interfaces is behind each. With equal shares all interfaces
/// would send the messages to one node at the same time, and end at the same time. Assumed; *settled in view* of
/// reads of one file over 8 and 16 targets, whose time depends little on it as long as it is not 0.
const UNEVEN: f64 = 0.1;

/// The interface of a sending node: parts that are ready, the first of which it sends.
#[derive(Clone, Debug, Default)]
struct Interface {
    waiting: VecDeque<usize>,
    /// Messages that it sends.
    messages: u64,
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

/// Messages on their way between clients and servers.
pub(super) struct Network<'a> {
    job: &'a IoJob,
    access: Access,
    parts: &'a [Part],
    links: Links,
    between: NetworkLinks,
    /// By sending node: its link, and the interface.
    senders: FxHashMap<u32, (LinkId, Interface)>,
    /// Links to the receiving nodes.
    receivers: FxHashMap<u32, LinkId>,
    /// By the flow's index.
    bundles: Vec<Bundle>,
}

impl<'a> Network<'a> {
    /// A network for the data of some of the parts, at time 0; ends are rounded up to a multiple of `resolution`
    /// ps.
    pub fn new(
        (job, access): (&'a IoJob, Access),
        (parts, sent): (&'a [Part], &[usize]),
        resolution: u64,
    ) -> Network<'a> {
        let mut network = Network {
            job,
            access,
            parts,
            links: Links::new(),
            between: NetworkLinks::new(&job.topology, &job.network),
            senders: FxHashMap::default(),
            receivers: FxHashMap::default(),
            bundles: Vec::new(),
        };
        network.links.transport.set_resolution(resolution);
        network.between.add_groups(&mut network.links);
        let mut of_client: FxHashMap<u32, f64> = FxHashMap::default();
        for &number in sent {
            let part = &parts[number];
            let (from, to) = network.ends(number);
            let links = &mut network.links;
            let mut link = |of: u32| {
                links.add(Resource::NodeLink, format!("the link of node {of}"), job.links_rate(of))
            };
            network.senders.entry(from).or_insert_with(|| (link(from), Interface::default()));
            network.receivers.entry(to).or_insert_with(|| link(to));
            let rate = job.links_rate(job.nodes[part.node as usize]);
            *of_client.entry(part.node).or_default() += part.bytes / rate;
        }
        // Adaptive routing finds the demand of all messages, at the rate of the clients' links.
        let seconds = of_client.values().copied().fold(f64::MIN_POSITIVE, f64::max);
        for &number in sent {
            let (ends, bytes) = (network.ends(number), parts[number].bytes);
            let keys = network.between.direct_links(ends.0, ends.1, DRAWS);
            for &key in &keys {
                let link = network.between.direct_link(key, &mut network.links);
                link.demand += bytes / seconds / keys.len() as f64;
            }
        }
        network
    }

    /// The time, ps.
    pub fn now(&self) -> u64 {
        self.links.transport.now()
    }

    /// The nodes from which and to which the data of a part go.
    fn ends(&self, number: usize) -> (u32, u32) {
        let part = &self.parts[number];
        let client = self.job.nodes[part.node as usize];
        let server = self.job.storage.node_of(part.server);
        match self.access {
            Access::Write => (client, server),
            Access::Read => (server, client),
        }
    }

    /// Goes to the next time at which parts have arrived as a whole, and returns these; none if that is not
    /// before the time `until`, ps, to which it goes then. `None` if nothing is on its way and `until` is
    /// `u64::MAX`.
    pub fn advance(&mut self, until: u64) -> Option<Vec<usize>> {
        if self.links.transport.active() == 0 && until == u64::MAX {
            return None;
        }
        if until <= self.now() {
            return Some(Vec::new());
        }
        let ended: Vec<FlowId> = self.links.transport.next_ends(until).to_vec();
        assert!(!ended.is_empty() || until != u64::MAX, "a message without a rate");
        let of_flow = |flow: &FlowId| std::mem::take(&mut self.bundles[flow.index()]);
        let bundles: Vec<Bundle> = ended.iter().map(of_flow).collect();
        Some(bundles.into_iter().flat_map(|bundle| self.end_bundle(bundle)).collect())
    }

    /// Gives a part to the interface of its node now.
    pub fn push(&mut self, number: usize) {
        let (from, _) = self.ends(number);
        if let Some((_, interface)) = self.senders.get_mut(&from) {
            interface.waiting.push_back(number);
        }
        self.send(from, Vec::new());
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
        if let Some((_, interface)) = self.senders.get_mut(&node) {
            interface.messages -=
                done.iter().map(|number| self.parts[*number].requests).sum::<u64>();
        }
        self.send(node, left);
        done
    }

    /// Sends what an interface sends at a time, with the rest of a bundle.
    fn send(&mut self, node: u32, mut parts: Vec<(usize, f64)>) {
        let together = messages_together(self.job);
        let Some((link, interface)) = self.senders.get_mut(&node) else { return };
        while interface.messages < together {
            let Some(number) = interface.waiting.pop_front() else { break };
            let part = &self.parts[number];
            interface.messages += part.requests;
            parts.push((number, part.bytes / part.requests as f64));
        }
        let requests = |parts: &[(usize, f64)]| {
            parts.iter().map(|(number, _)| self.parts[*number].requests).sum::<u64>() as f64
        };
        let Some(&(first, _)) = parts.first() else { return };
        let all = requests(&parts);
        let mut path: Path = vec![(*link, 1.0)];
        for &(number, _) in &parts {
            let ends = self.ends(number);
            let share = self.parts[number].requests as f64 / all;
            path.push((self.receivers[&ends.1], share));
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
