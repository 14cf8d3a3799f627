//! Link use, summed by class, from group to group, and over time.

use crate::results::{ClassUse, LinkUse, Series};
use forebay_machine_file::machine::{LinkClass, Network};
use forebay_network::{LinkStatistics, Timeline, Topology};

/// The classes in the order of `LinkClass as usize`, with their names in result documents.
const CLASSES: [(LinkClass, &str); 4] = [
    (LinkClass::Node, "node"),
    (LinkClass::Rank1, "rank-1"),
    (LinkClass::Rank2, "rank-2"),
    (LinkClass::Global, "global"),
];

/// All links of the machine, by group.
pub(crate) type Links = Vec<Vec<LinkStatistics>>;

/// Use of each class within `span` ps.
pub(crate) fn class_use(links: &Links, span: u64) -> Vec<ClassUse> {
    let share = |busy: u64| {
        if span == 0 { 0.0 } else { busy as f64 / span as f64 }
    };
    let of_class = |class| links.iter().flatten().filter(move |l| l.class == class);
    CLASSES
        .iter()
        .map(|&(class, name)| {
            let count = of_class(class).count() as u64;
            let busy: f64 = of_class(class).map(|l| share(l.busy)).sum();
            ClassUse {
                class: name.to_string(),
                links: count,
                bytes: of_class(class).map(|l| l.bytes).sum(),
                mean_utilisation: if count == 0 { 0.0 } else { busy / count as f64 },
                max_utilisation: of_class(class).map(|l| share(l.busy)).fold(0.0, f64::max),
                stall_seconds: of_class(class).map(|l| l.stalled as f64 * 1e-12).sum(),
                max_queue_bytes: of_class(class).map(|l| l.longest_queue).max().unwrap_or(0),
            }
        })
        .collect()
}

/// Use of each link that carried anything within `span` ps, group by group.
pub(crate) fn each_link(
    topology: &Topology,
    links: &[Vec<LinkStatistics>],
    span: u64,
) -> Vec<LinkUse> {
    (0u16..)
        .zip(links)
        .flat_map(|(group, links)| links.iter().map(move |link| (group, link)))
        .filter(|(_, link)| link.bytes > 0)
        .map(|(group, link)| LinkUse {
            name: link_name(topology, group, link),
            class: CLASSES[link.class as usize].1,
            bytes: link.bytes,
            busy_seconds: link.busy as f64 * 1e-12,
            utilisation: link.busy as f64 / span.max(1) as f64,
            stall_seconds: link.stalled as f64 * 1e-12,
            max_queue_bytes: link.longest_queue,
        })
        .collect()
}

/// A human-readable name of a link: its class and ends, as `rank-2 link, group 3: c1s4 -> c0s4`
/// (chassis and slot).
pub(crate) fn link_name(topology: &Topology, group: u16, link: &LinkStatistics) -> String {
    let Some(router) = link.router else {
        let node = topology.sender(group, link.port);
        return format!("node {node} -> its router, group {group}");
    };
    let port = link.port as u8;
    let from = topology.router_name(group, router);
    let local = || topology.router_name(group, topology.neighbour(router, port));
    match link.class {
        LinkClass::Rank1 => format!("rank-1 link, group {group}: {from} -> {}", local()),
        LinkClass::Rank2 => format!("rank-2 link, group {group}: {from} -> {}", local()),
        LinkClass::Global => {
            topology.far_end(group, router, port).map_or(String::new(), |(far, far_router, _)| {
                let to = topology.router_name(far, far_router);
                format!("rank-3 link, group {group} {from} -> group {far} {to}")
            })
        }
        LinkClass::Node => topology.node_at(group, router, port).map_or(String::new(), |node| {
            format!("node link, group {group} {from} -> node {node}")
        }),
    }
}

/// Bytes from group to group over rank-3 links; the diagonal: bytes on the group's local links.
pub(crate) fn heat(links: &Links) -> Vec<Vec<u64>> {
    let mut heat = vec![vec![0; links.len()]; links.len()];
    for (from, links) in heat.iter_mut().zip(links) {
        for link in links.iter().filter(|l| l.class != LinkClass::Node) {
            from[usize::from(link.to_group)] += link.bytes;
        }
    }
    heat
}

/// Mean utilisation of each class in each interval between `from` and `to`, ps; seconds are
/// relative to `from`.
pub(crate) fn utilisation(
    timeline: &Timeline<4>,
    links: &Links,
    network: &Network,
    from: u64,
    to: u64,
) -> Series {
    let mut series = Series::default();
    let specs = [&network.node, &network.rank1, &network.rank2, &network.global];
    for (column, ((class, name), spec)) in CLASSES.iter().zip(specs).enumerate() {
        let count = links.iter().flatten().filter(|l| l.class == *class).count();
        let capacity = spec.rate.0 as f64 * count as f64 * timeline.interval() as f64 * 1e-12;
        let values = intervals(timeline, from, to)
            .map(|(_, row)| if capacity == 0.0 { 0.0 } else { row[column] as f64 / capacity })
            .collect();
        series.columns.push((name.to_string(), values));
    }
    series.seconds = intervals(timeline, from, to)
        .map(|(i, _)| {
            let end = timeline.origin() + (i as u64 + 1) * timeline.interval();
            end.saturating_sub(from) as f64 * 1e-12
        })
        .collect();
    series
}

/// The intervals of a timeline that overlap `from` to `to`, ps, with their numbers.
pub(crate) fn intervals<const C: usize>(
    timeline: &Timeline<C>,
    from: u64,
    to: u64,
) -> impl Iterator<Item = (usize, &[u64; C])> {
    let (origin, interval) = (timeline.origin(), timeline.interval());
    let starts = move |i: usize| origin + i as u64 * interval;
    let rows = timeline.rows().iter().enumerate();
    rows.filter(move |(i, _)| starts(i + 1) > from && starts(*i) < to)
}
