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
//! A total is distributed blade by blade over the groups in turn, compute blades last, so that
//! groups differ by at most one blade; the last blade carries the remainder.
//!
//! In a group, the blades other than compute blades are spread evenly over the routers:
//! blade k of n is in chassis k mod C, at slot (2k + 1) × S / 2n of the S slots, so that no
//! chassis and no slot column has many of them. Compute blades fill the other routers in order;
//! the remaining routers at the end of the group are empty. Where groups have leaf and spine routers,
//! the leaves are the slots of one chassis, and spines have no blades.

use crate::machine::{Network, Node, NodeKind};
use crate::node_map;
use crate::section::Section;
use std::collections::VecDeque;

/// Maximum number of nodes.
const MAX_NODES: u64 = 10_000_000;

/// One kind of blade: nodes per blade and number of nodes.
struct Blades {
    kind: NodeKind,
    nodes_per_router: u32,
    count: Count,
    offset: usize,
}

enum Count {
    /// Nodes in each group.
    PerGroup(u32),
    /// Nodes in the machine.
    Total(u32),
}

impl Blades {
    /// Routers needed, per group or in total.
    fn routers(&self) -> u32 {
        let (Count::PerGroup(nodes) | Count::Total(nodes)) = self.count;
        nodes.div_ceil(self.nodes_per_router)
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
}

/// The nodes in the order of their numbers, router by router; `None` after a problem.
pub(crate) fn read_placement(
    section: &Section<'_, '_>,
    network: &Network,
    map_loader: &dyn Fn(&str) -> Result<String, String>,
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
            section.report_unknown_keys(&["kind", "nodes_per_router", "per_group", "total"]);
            return None;
        }
    };
    section.report_unused_keys();
    let per_router = per_router?;
    if per_router.value > network.node_ports_per_router {
        return doc.refuse(
            per_router.span.start,
            format!(
                "{} nodes on a router that has {} node ports",
                per_router.value, network.node_ports_per_router
            ),
            format!("at most {}", network.node_ports_per_router),
        );
    }
    Some(Blades { kind: kind?.value, nodes_per_router: per_router.value, count: count?, offset })
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
                (0..blade.routers()).map(|i| each.min(nodes - i * each)).collect()
            }
            Count::Total(_) => Vec::new(),
        };
        GroupBlades { kind: blade.kind, nodes }
    };
    blades.iter().map(of_kind).collect()
}

/// Number of used routers of a group.
fn used(kinds: &[GroupBlades]) -> usize {
    kinds.iter().map(|kind| kind.nodes.len()).sum()
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
            if used(kinds) >= routers {
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
        let slots = lay_out(&kinds, network.chassis_per_group, network.routers_per_chassis);
        for (slot, content) in (0..).zip(slots) {
            if let Some((kind, count)) = content {
                let router = group * routers + slot;
                nodes.extend((0..count).map(|_| Node { kind, router }));
            }
        }
    }
    Some(nodes)
}

/// Kind and number of the nodes on each router of a group, by chassis and slot.
fn lay_out(kinds: &[GroupBlades], chassis: u32, slots: u32) -> Vec<Option<(NodeKind, u32)>> {
    // Blades other than compute, the kinds mixed evenly: the j-th of n is at (2j + 1) / 2n.
    let mut special: Vec<(u64, usize, NodeKind, u32)> = Vec::new();
    for (order, kind) in kinds.iter().enumerate().filter(|(_, k)| k.kind != NodeKind::Compute) {
        let n = kind.nodes.len() as u64;
        for (j, count) in (0u64..).zip(&kind.nodes) {
            special.push((((2 * j + 1) << 32) / (2 * n), order, kind.kind, *count));
        }
    }
    special.sort_by_key(|(place, order, _, _)| (*place, *order));
    let mut routers = vec![None; (chassis * slots) as usize];
    let n = special.len() as u64;
    for (k, (_, _, kind, count)) in (0u64..).zip(special) {
        let column = (2 * k + 1) * u64::from(slots) / (2 * n);
        let row = k % u64::from(chassis);
        // Two blades of one chassis are C blades apart, so C × S / n ≥ 1 slots apart.
        if let Some(router) = routers.get_mut((row * u64::from(slots) + column) as usize) {
            *router = Some((kind, count));
        }
    }
    let mut compute = kinds
        .iter()
        .filter(|k| k.kind == NodeKind::Compute)
        .flat_map(|k| k.nodes.iter().map(|count| (NodeKind::Compute, *count)));
    for router in routers.iter_mut().filter(|r| r.is_none()) {
        *router = compute.next();
    }
    routers
}
