//! Rank-3 cabling: every pair of groups is joined, ports are respected, both ends agree.

use crate::harness;
use forebay_machine_file::machine::{Arrangement, Plugging, Routing};
use forebay_network::Topology;
use harness::{SMALL, Shape, machine};
use proptest::prelude::*;
use std::collections::HashSet;

const ALL: [Arrangement; 3] =
    [Arrangement::Absolute, Arrangement::Relative, Arrangement::Circulant];

fn check(shape: Shape) {
    let machine = machine(shape, Routing::Minimal);
    let topology = Topology::new(&machine);
    let routers = shape.chassis * shape.slots;
    for g in 0..shape.groups as u16 {
        let mut plugged = HashSet::new();
        for h in (0..shape.groups as u16).filter(|&h| h != g) {
            let links = topology.links(g, h);
            let expected = (shape.parallel * shape.per_cable) as usize;
            assert_eq!(links.len(), expected, "{shape:?}: links {g} -> {h}");
            for link in links {
                assert!(
                    plugged.insert((link.router, link.port)),
                    "{shape:?}: a socket with two cables"
                );
                assert_eq!(
                    topology.far_end(g, link.router, link.port),
                    Some((h, link.far_router, link.far_port))
                );
                assert_eq!(
                    topology.far_end(h, link.far_router, link.far_port),
                    Some((g, link.router, link.port))
                );
            }
        }
        // Each router has at most its share of the group's sockets, rounded up.
        let limit = shape.sockets.div_ceil(routers / shape.per_cable) as usize;
        for router in 0..routers as u16 {
            let cables = plugged.iter().filter(|(r, _)| *r == router).count();
            assert!(cables <= limit, "{shape:?}: {cables} cables on router {router}");
        }
    }
}

proptest! {
    #[test]
    fn every_pair_of_groups_has_the_configured_number_of_links(
        groups in 2u32..30, chassis in 1u32..5, slots in 1u32..8, parallel in 1u32..5, spare in 0u32..20
    ) {
        for arrangement in ALL {
            for plugging in [Plugging::InOrder, Plugging::Spread, Plugging::AcrossChassis] {
                for per_cable in [1, 2] {
                    let (slots, sockets) = (slots * per_cable, parallel * (groups - 1) + spare);
                    check(Shape { groups, chassis, slots, nodes_per_router: 1, sockets, parallel, per_cable, arrangement, plugging });
                }
            }
        }
    }
}

/// Groups at the far ends of the links of group `g`, in the order of their sockets.
fn order(arrangement: Arrangement, groups: u32, g: u16) -> Vec<u16> {
    let shape = Shape { groups, sockets: groups - 1, arrangement, ..SMALL };
    let topology = Topology::new(&machine(shape, Routing::Minimal));
    let mut links: Vec<_> =
        (0..groups as u16).filter(|&h| h != g).map(|h| (topology.links(g, h)[0], h)).collect();
    links.sort_by_key(|(link, _)| (link.router, link.port));
    links.into_iter().map(|(_, h)| h).collect()
}

/// The definitions of Hastings et al. (2015), section II.
#[test]
fn arrangements_number_links_as_defined() {
    assert_eq!(order(Arrangement::Absolute, 6, 2), [0, 1, 3, 4, 5]);
    assert_eq!(order(Arrangement::Relative, 6, 2), [3, 4, 5, 0, 1]);
    assert_eq!(order(Arrangement::Circulant, 6, 2), [3, 1, 4, 0, 5]);
    assert_eq!(order(Arrangement::Circulant, 7, 0), [1, 6, 2, 5, 3, 4]);
}

/// 3 links and 8 sockets, one per router: in order they take the first three routers, spread every
/// second or third one.
#[test]
fn links_take_the_first_sockets_or_are_spread_evenly() {
    let gateways = |plugging| {
        let topology = Topology::new(&machine(Shape { plugging, ..SMALL }, Routing::Minimal));
        [1, 2, 3].map(|to| topology.links(0, to)[0].router)
    };
    assert_eq!(gateways(Plugging::InOrder), [0, 1, 2]);
    assert_eq!(gateways(Plugging::Spread), [0, 2, 5]);
}

/// Slots of the routers of group g that have links to group h, in each of the six chassis, from the
/// listings of the machines' links in the repository of CODES.
#[test]
fn cables_across_chassis_take_the_routers_of_edison_and_theta() {
    let gateways = |groups, parallel, (g, h): (u16, u16)| {
        let shape = Shape {
            groups,
            chassis: 6,
            slots: 16,
            nodes_per_router: 1,
            sockets: 240,
            parallel,
            per_cable: 2,
            arrangement: Arrangement::Absolute,
            plugging: Plugging::AcrossChassis,
        };
        let topology = Topology::new(&machine(shape, Routing::Minimal));
        let mut slots: Vec<(u16, u16)> = Vec::new();
        for link in topology.links(g, h) {
            assert_eq!(link.router / 16, link.far_router / 16, "cables join the same chassis");
            slots.push((link.router % 16, link.far_router % 16));
        }
        slots.sort_unstable();
        assert!(slots.chunks(6).all(|c| c.iter().all(|s| *s == c[0])), "one in each chassis");
        slots.dedup();
        slots
    };
    let theta = |pair| gateways(9, 12, pair);
    assert_eq!(theta((0, 1)), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    assert_eq!(theta((0, 5)), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    assert_eq!(theta((2, 4)), [(12, 8), (13, 9), (14, 10), (15, 11)]);
    assert_eq!(theta((5, 6)), [(4, 4), (5, 5), (6, 6), (7, 7)]);
    let edison = |pair| gateways(15, 6, pair);
    assert_eq!(edison((0, 1)), [(0, 0), (1, 1)]);
    assert_eq!(edison((2, 3)), [(4, 4), (5, 5)]);
    assert_eq!(edison((5, 0)), [(0, 8), (1, 9)]);
}

proptest! {
    #[test]
    fn shortest_link_is_as_short_as_the_shortest_of_all(
        parallel in 1u32..40, from in 0u16..24, to in 0u16..24, random: u64
    ) {
        // Up to 32 cables the topology compares masks, above it compares all links.
        let shape = Shape {
            groups: 3, chassis: 4, slots: 6, sockets: 2 * parallel, parallel, per_cable: 2,
            plugging: Plugging::Spread, ..SMALL
        };
        let topology = Topology::new(&machine(shape, Routing::Minimal));
        let length = |link: &forebay_network::GlobalLink| {
            topology.distance(from, link.router) + topology.distance(link.far_router, to)
        };
        let least = topology.links(0, 2).iter().map(length).min();
        let chosen = topology.shortest_link((0, from), (2, to), random);
        prop_assert_eq!(Some(length(chosen)), least);
    }
}
