//! The placement of nodes on routers.
//!
//! It is given by blade counts for each kind of node:
//!
//! ```toml
//! [[placement.blade]]
//! kind = "burst-buffer"
//! nodes_per_router = { value = 2, from = "xc" }
//! per_group = { value = 10, from = "paper" }   # or: total = …, spread evenly over the groups
//! ```
//!
//! or by a map of all routers in a file next to the machine file (see [`crate::node_map`]):
//!
//! ```toml
//! [placement]
//! map = { value = "cori.csv", from = "xtdb" }
//! compute = { value = 12076, from = "nersc" }   # expected count, checked against the map
//! ```
//!
//! `interfaces_per_node` and `routers_per_node` (1 without them) say how many network interfaces each of
//! the nodes has, and on how many neighbouring routers they are, in turn: a blade of n nodes on r routers
//! takes n × interfaces / r ports of each.
//!
//! A total is distributed blade by blade over the groups in turn, compute blades last, so that
//! groups differ by at most one blade; the last blade carries the remainder.
//!
//! In a group, the blades other than compute blades are spread evenly over the routers:
//! blade k of n is in chassis k mod C, at slot (2k + 1) × S / 2n of the S slots, so that no
//! chassis and no slot column has many of them. Compute blades fill the other routers in order;
//! the remaining routers at the end of the group are empty. Where groups have leaf and spine routers,
//! the leaves are the slots of one chassis, and spines have no blades.

use crate::document::Located;
use crate::machine::{Network, Node, NodeKind};
use crate::node_map::{self, MapLoader};
use crate::section::Section;
use std::collections::VecDeque;

/// Maximum number of nodes.
const MAX_NODES: u64 = 10_000_000;

/// One kind of blade: nodes per blade and number of nodes.
struct Blades {
    kind: NodeKind,
    nodes_per_router: u32,
    count: Count,
    wiring: Wiring,
    offset: usize,
}

/// The network interfaces of a node, and the neighbouring routers that they are on in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wiring {
    interfaces: u8,
    routers: u8,
}

enum Count {
    /// Nodes in each group.
    PerGroup(u32),
    /// Nodes in the machine.
    Total(u32),
}

impl Blades {
    /// Blades, each on as many routers as its nodes, per group or in total.
    fn blades(&self) -> u32 {
        let (Count::PerGroup(nodes) | Count::Total(nodes)) = self.count;
        nodes.div_ceil(self.nodes_per_router)
    }

    /// Routers needed, per group or in total.
    fn routers(&self) -> u32 {
        self.blades() * u32::from(self.wiring.routers)
    }

    /// `count`, which is per group or in total, for the whole machine.
    fn in_all(&self, count: u32, groups: u64) -> u64 {
        match self.count {
            Count::PerGroup(_) => u64::from(count) * groups,
            Count::Total(_) => u64::from(count),
        }
    }
}

/// Blades of one kind in one group: the nodes on each.
struct GroupBlades {
    kind: NodeKind,
    nodes: Vec<u32>,
    wiring: Wiring,
}

/// The nodes in the order of their numbers, router by router; `None` after a problem.
pub(crate) fn read_placement(
    section: &Section<'_, '_>,
    network: &Network,
    map_loader: MapLoader<'_>,
) -> Option<Vec<Node>> {
    match (section.has_key("blade"), section.has_key("map")) {
        (true, false) => {
            let blades: Vec<Option<Blades>> =
                section.sections("blade").into_iter().map(|s| read_blades(s, network)).collect();
            let unknown = section.report_unknown_keys(&["blade"]);
            let blades: Vec<Blades> = blades.into_iter().collect::<Option<_>>()?;
            if unknown { None } else { place(section, network, &blades) }
        }
        (false, true) => node_map::read_node_map(section, network, map_loader),
        (true, true) => section.doc.refuse(
            section.span.start,
            "both `placement.blade` and `placement.map`",
            "one of the two",
        ),
        (false, false) => section.doc.refuse(
            section.span.start,
            "`placement` has neither blades nor a map",
            "one or more `[[placement.blade]]`, or `map = { value = \"file.csv\", from = \"…\" }`",
        ),
    }
}

fn read_blades(section: Section<'_, '_>, network: &Network) -> Option<Blades> {
    let offset = section.span.start;
    let doc = section.doc;
    let kind = section.unsourced_choice("kind", NodeKind::NAMES);
    let per_router = section.integer("nodes_per_router", 1..=256u32);
    let wiring = read_wiring(&section, network);
    let count = match (section.has_key("per_group"), section.has_key("total")) {
        (true, false) => {
            section.integer("per_group", 1..=10_000_000u32).map(|n| Count::PerGroup(n.value))
        }
        (false, true) => section.integer("total", 1..=10_000_000u32).map(|n| Count::Total(n.value)),
        (both, _) => {
            let message = if both { "both `per_group` and `total`" } else { "no count of nodes" };
            doc.add_problem(
                offset,
                format!("the blade has {message}"),
                "per_group = { value = …, from = \"…\" } or total = { value = …, from = \"…\" }",
            );
            section.report_unknown_keys(&[
                "kind",
                "nodes_per_router",
                "interfaces_per_node",
                "routers_per_node",
                "per_group",
                "total",
            ]);
            return None;
        }
    };
    section.report_unused_keys();
    let (per_router, wiring, kind) = (per_router?, wiring?, kind?.value);
    let each = u32::from(wiring.interfaces / wiring.routers);
    let most = network.node_ports_per_router / each;
    if per_router.value > most {
        let interfaces = match each {
            1 => String::new(),
            each => format!(" with {each} interfaces each"),
        };
        return doc.refuse(
            per_router.span.start,
            format!(
                "{} nodes{interfaces} on a router that has {} node ports",
                per_router.value, network.node_ports_per_router
            ),
            format!("at most {most}"),
        );
    }
    if kind != NodeKind::Compute && wiring.routers > 1 {
        return doc.refuse(
            offset,
            format!("{} nodes on {} routers each", kind.name(), wiring.routers),
            "routers_per_node for compute nodes only",
        );
    }
    Some(Blades { kind, nodes_per_router: per_router.value, count: count?, wiring, offset })
}

/// Reads the interfaces of each node, and the routers that they are on; one of each without the keys.
fn read_wiring(section: &Section<'_, '_>, network: &Network) -> Option<Wiring> {
    let optional = |key: &str, most: u8| match section.has_key(key) {
        true => section.integer(key, 1..=most),
        false => Some(Located { value: 1, span: section.span.clone() }),
    };
    let interfaces = optional("interfaces_per_node", 16);
    let routers = optional("routers_per_node", 16);
    let (interfaces, routers) = (interfaces?.value, routers?);
    let slots = network.routers_per_chassis;
    let divides =
        interfaces.is_multiple_of(routers.value) && slots.is_multiple_of(u32::from(routers.value));
    if !divides {
        return section.doc.refuse(
            routers.span.start,
            format!(
                "`{}` is {}, for nodes with {interfaces} interfaces in rows of {slots} routers",
                section.dotted_key("routers_per_node"),
                routers.value
            ),
            "a divisor of both",
        );
    }
    Some(Wiring { interfaces, routers: routers.value })
}

/// The nodes on each blade of each kind, by group; `None` after a problem.
///
/// Totals are distributed blade by blade over the groups in turn, compute blades last; each kind
/// continues where the previous one stopped, and full groups are skipped. So groups differ by at
/// most one blade, and the last blade of a kind carries the remainder.
fn deal(
    section: &Section<'_, '_>,
    network: &Network,
    blades: &[Blades],
) -> Option<Vec<Vec<GroupBlades>>> {
    let doc = section.doc;
    let routers = network.node_routers_per_group();
    let groups = u64::from(network.groups);
    let needed: u64 = blades.iter().map(|b| b.in_all(b.routers(), groups)).sum();
    let available = u64::from(routers) * groups;
    let offset = blades.first().map_or(section.span.start, |b| b.offset);
    let too_many = || {
        let list = listed(blades);
        doc.add_problem(
            offset,
            format!("the blades ({list}) need {needed} routers of {available}"),
            format!("blades for at most {routers} routers in each of {groups} groups"),
        );
    };
    if needed > available {
        too_many();
        return None;
    }
    let in_all = |b: &Blades| {
        let (Count::PerGroup(nodes) | Count::Total(nodes)) = b.count;
        b.in_all(nodes, groups)
    };
    let nodes: u64 = blades.iter().map(in_all).sum();
    if nodes > MAX_NODES {
        return doc.refuse(offset, format!("{nodes} nodes"), format!("at most {MAX_NODES} nodes"));
    }
    let mut dealt: Vec<_> = (0..groups).map(|_| counted_by_group(blades)).collect();
    if dealt.iter().any(|kinds| used(kinds) > routers as usize) {
        too_many();
        return None;
    }
    deal_totals(blades, routers as usize, &mut dealt);
    Some(dealt)
}

/// All blades, for a message.
fn listed(blades: &[Blades]) -> String {
    let each = blades.iter().map(|b| {
        let place = match b.count {
            Count::PerGroup(_) => "in each group",
            Count::Total(_) => "in all",
        };
        format!("{} {} {place}", b.routers(), b.kind.name())
    });
    each.collect::<Vec<String>>().join(" + ")
}

/// The blades of a group that are counted per group; those with a total follow later.
fn counted_by_group(blades: &[Blades]) -> Vec<GroupBlades> {
    let of_kind = |blade: &Blades| {
        let each = blade.nodes_per_router;
        let nodes = match blade.count {
            Count::PerGroup(nodes) => {
                (0..blade.blades()).map(|i| each.min(nodes - i * each)).collect()
            }
            Count::Total(_) => Vec::new(),
        };
        GroupBlades { kind: blade.kind, nodes, wiring: blade.wiring }
    };
    blades.iter().map(of_kind).collect()
}

/// Number of used routers of a group.
fn used(kinds: &[GroupBlades]) -> usize {
    kinds.iter().map(|kind| kind.nodes.len() * usize::from(kind.wiring.routers)).sum()
}

/// Distributes the blades with a total over the groups.
fn deal_totals(blades: &[Blades], routers: usize, dealt: &mut [Vec<GroupBlades>]) {
    // The groups with a free router; the next one first.
    let mut open: VecDeque<&mut Vec<GroupBlades>> = dealt.iter_mut().collect();
    let mut order: Vec<(usize, &Blades)> = blades.iter().enumerate().collect();
    order.sort_by_key(|(_, b)| b.kind == NodeKind::Compute);
    for (index, blade) in order {
        let Count::Total(mut left) = blade.count else {
            continue;
        };
        while left > 0 {
            let Some(kinds) = open.pop_front() else { break };
            if used(kinds) + usize::from(blade.wiring.routers) > routers {
                continue;
            }
            let count = left.min(blade.nodes_per_router);
            left -= count;
            if let Some(kind) = kinds.get_mut(index) {
                kind.nodes.push(count);
            }
            open.push_back(kinds);
        }
    }
}

fn place(section: &Section<'_, '_>, network: &Network, blades: &[Blades]) -> Option<Vec<Node>> {
    let routers = network.routers_per_group();
    let mut nodes = Vec::new();
    for (group, kinds) in (0..).zip(deal(section, network, blades)?) {
        let laid = lay_out(&kinds, network.chassis_per_group, network.routers_per_chassis);
        let Some(slots) = laid else {
            return section.doc.refuse(
                section.span.start,
                format!("group {group} has too few neighbouring routers for its compute nodes"),
                "fewer blades of other kinds, or fewer nodes",
            );
        };
        for (slot, blade) in (0..).zip(slots) {
            if let Slot::Blade(kind, count, Wiring { interfaces, routers: of_node }) = blade {
                let router = group * routers + slot;
                let node = Node { kind, router, interfaces, routers: of_node };
                nodes.extend((0..count).map(|_| node));
            }
        }
    }
    Some(nodes)
}

/// A router of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free,
    /// The first router of a blade: kind, number and interfaces of its nodes.
    Blade(NodeKind, u32, Wiring),
    /// Another router of the blade before.
    Taken,
}

/// The blade on each router of a group, by chassis and slot; `None` if they do not fit.
fn lay_out(kinds: &[GroupBlades], chassis: u32, slots: u32) -> Option<Vec<Slot>> {
    // Blades other than compute, the kinds mixed evenly: the j-th of n is at (2j + 1) / 2n.
    let mut special: Vec<(u64, usize, Slot)> = Vec::new();
    for (order, kind) in kinds.iter().enumerate().filter(|(_, k)| k.kind != NodeKind::Compute) {
        let n = kind.nodes.len() as u64;
        for (j, count) in (0u64..).zip(&kind.nodes) {
            let blade = Slot::Blade(kind.kind, *count, kind.wiring);
            special.push((((2 * j + 1) << 32) / (2 * n), order, blade));
        }
    }
    special.sort_by_key(|(place, order, _)| (*place, *order));
    let mut routers = vec![Slot::Free; (chassis * slots) as usize];
    let n = special.len() as u64;
    for (k, (_, _, blade)) in (0u64..).zip(special) {
        let column = (2 * k + 1) * u64::from(slots) / (2 * n);
        let row = k % u64::from(chassis);
        // Two blades of one chassis are C blades apart, so C × S / n ≥ 1 slots apart.
        if let Some(router) = routers.get_mut((row * u64::from(slots) + column) as usize) {
            *router = blade;
        }
    }
    let mut next = 0usize;
    for kind in kinds.iter().filter(|k| k.kind == NodeKind::Compute) {
        let width = usize::from(kind.wiring.routers);
        for count in &kind.nodes {
            // The next routers that are free together; as their number divides that of a chassis, they
            // are in one chassis.
            next = next.next_multiple_of(width);
            while routers.get(next..next + width)?.iter().any(|router| *router != Slot::Free) {
                next += width;
            }
            let of_blade = routers.get_mut(next..next + width)?;
            of_blade.fill(Slot::Taken);
            of_blade[0] = Slot::Blade(kind.kind, *count, kind.wiring);
            next += width;
        }
    }
    Some(routers)
}
