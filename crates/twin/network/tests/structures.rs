//! One-dimensional groups, dragonfly+ and fat tree: paths and rates against calculations by hand, freedom of
//! deadlock, equal results on any number of threads.

use crate::harness;
use forebay_machine_file::machine::{InputQueues, LinkClass, Machine, Routing};
use forebay_network::Topology;
use harness::{
    Outcome, SMALL, Shape, Spined, TestMessage, machine, make_tight, random_messages, run,
};
use proptest::prelude::*;
use std::collections::HashSet;

/// Packets of 4,000 bytes: node link 500 ns, rank-1 800 ns, rank-3 200 ns.
const RANK1: u64 = 800_000;
const NODE: u64 = 500_000;
const TRAVERSAL: u64 = 100_000;
const NODE_LATENCY: u64 = 100_000;
const LOCAL_LATENCY: u64 = 10_000;
const GLOBAL_LATENCY: u64 = 150_000;

const ALL: [Routing; 4] =
    [Routing::Minimal, Routing::Valiant, Routing::UgalL, Routing::ProgressiveAdaptive];

/// Four groups of 4 leaves with 4 nodes each, and 4 spines: as many links up as nodes.
const FULL: Spined = Spined { groups: 4, leaves: 4, spines: 4, nodes_per_leaf: 4, upper: 4 };

fn line(groups: u32) -> Shape {
    Shape { groups, chassis: 1, slots: 8, sockets: 8, ..SMALL }
}

fn send_one(machine: &Machine, from: u32, to: u32) -> (u64, u8) {
    let message = TestMessage { from, to, bytes: 4_000, at: 0, response: false };
    let outcome = run(machine, &[message], 1, 1);
    let (packet, at) = outcome.delivered[0];
    (at, packet.hops)
}

/// Time of a packet over links within groups and between them; `slowest` is the time of the packet on the
/// slowest link.
fn by_hand(local: u64, global: u64, slowest: u64) -> u64 {
    2 * NODE_LATENCY
        + TRAVERSAL * (local + global + 1)
        + LOCAL_LATENCY * local
        + GLOBAL_LATENCY * global
        + slowest
}

#[test]
fn one_dimensional_group_has_a_link_between_each_two_routers() {
    let machine = machine(line(1), Routing::Minimal);
    for to in 2..16 {
        assert_eq!(send_one(&machine, 0, to), (by_hand(1, 0, RANK1), 1), "node {to}");
    }
    assert_eq!(send_one(&machine, 0, 1), (by_hand(0, 0, NODE), 0));
    let links = &run(&machine, &[], 1, 1).links[0];
    assert_eq!(links.iter().filter(|l| l.class == LinkClass::Rank1).count(), 8 * 7);
    assert!(links.iter().all(|l| l.class != LinkClass::Rank2));
}

#[test]
fn minimal_paths_between_one_dimensional_groups_have_three_links_at_most() {
    let machine = machine(line(5), Routing::Minimal);
    let outcome = run(&machine, &random_messages(80, 10, 4_000, 3), 1, 1);
    assert!(outcome.delivered.iter().all(|(packet, _)| packet.hops <= 3));
    assert!(outcome.delivered.iter().any(|(packet, _)| packet.hops == 3));
}

#[test]
fn packet_in_a_group_with_spines_goes_up_and_down() {
    for machine in [FULL.dragonfly_plus(Routing::Minimal), FULL.fat_tree(Routing::Minimal)] {
        assert_eq!(send_one(&machine, 0, 3), (by_hand(0, 0, NODE), 0));
        assert_eq!(send_one(&machine, 0, 4), (by_hand(2, 0, RANK1), 2));
    }
    let two_levels = Spined { groups: 1, upper: 0, ..FULL }.fat_tree(Routing::Minimal);
    assert_eq!(send_one(&two_levels, 0, 15), (by_hand(2, 0, RANK1), 2));
}

#[test]
fn packet_to_another_group_crosses_one_rank_3_link_in_a_dragonfly_plus_and_two_in_a_fat_tree() {
    let far = 16 * 3 + 5;
    let plus = FULL.dragonfly_plus(Routing::ProgressiveAdaptive);
    assert_eq!(send_one(&plus, 0, far), (by_hand(2, 1, RANK1), 3));
    let tree = FULL.fat_tree(Routing::ProgressiveAdaptive);
    assert_eq!(send_one(&tree, 0, far), (by_hand(2, 2, RANK1), 4));
}

/// GB/s of all nodes of group 0, each sending as fast as it can to the node with its number in group 1.
fn to_next_group(mut machine: Machine, spined: Spined) -> f64 {
    machine.network.rank1.rate.0 = 40_000_000_000; // so that no local link is the limit
    let count = spined.leaves * spined.nodes_per_leaf;
    let messages: Vec<_> = (0..60 * count)
        .map(|i| TestMessage {
            from: i % count,
            to: count + i % count,
            bytes: 20_000,
            at: 0,
            response: false,
        })
        .collect();
    let outcome = run(&machine, &messages, 1, 3);
    outcome.traffic.bytes as f64 * 1000.0 / outcome.end as f64
}

/// One cable of 20 GB/s joins each two groups; 16 nodes of 8 GB/s send from one to the next. Over the
/// four other groups 5 x 20 GB/s are possible.
#[test]
fn dragonfly_plus_exceeds_its_one_link_between_two_groups_only_with_detours() {
    let thin = Spined { groups: 6, upper: 1, spines: 5, ..FULL };
    let rate = |routing| to_next_group(thin.dragonfly_plus(routing), thin);
    let minimal = rate(Routing::Minimal);
    assert!(minimal < 20.0 && minimal > 18.0, "{minimal} GB/s over one link of 20 GB/s");
    for routing in [Routing::Valiant, Routing::UgalL, Routing::ProgressiveAdaptive] {
        let detours = rate(routing);
        assert!(detours > 2.0 * minimal && detours < 100.0, "{routing:?}: {detours} GB/s");
    }
}

/// 16 nodes of 8 GB/s send to another group: over 16 links of 20 GB/s at the rate of the nodes, 128 GB/s;
/// over 4 of them at 80 GB/s.
#[test]
fn fat_tree_carries_what_its_links_to_core_routers_carry() {
    let full = to_next_group(FULL.fat_tree(Routing::ProgressiveAdaptive), FULL);
    assert!(full > 120.0 && full <= 128.0, "{full} GB/s of 128");
    let thin = Spined { upper: 1, ..FULL };
    let rate = to_next_group(thin.fat_tree(Routing::ProgressiveAdaptive), thin);
    assert!(rate > 72.0 && rate <= 80.0, "{rate} GB/s of 80");
    // Random choices collide more than choices by queues.
    let random = to_next_group(thin.fat_tree(Routing::Minimal), thin);
    assert!(random < rate, "{random} and {rate} GB/s");
}

/// 4 nodes of 8 GB/s of a leaf over 2 links of 5 GB/s.
#[test]
fn leaf_with_fewer_links_than_nodes_limits_them() {
    let thin = Spined { groups: 1, leaves: 2, spines: 2, nodes_per_leaf: 4, upper: 0 };
    let machine = thin.fat_tree(Routing::ProgressiveAdaptive);
    let messages: Vec<_> = (0..400)
        .map(|i| TestMessage { from: i % 4, to: 4 + i % 4, bytes: 20_000, at: 0, response: false })
        .collect();
    let outcome = run(&machine, &messages, 1, 1);
    let rate = outcome.traffic.bytes as f64 * 1000.0 / outcome.end as f64;
    assert!(rate > 9.5 && rate <= 10.0, "{rate} GB/s over two links of 5 GB/s");
}

fn stressed(shape: Spined) -> Vec<(Machine, u32)> {
    let of_routing = |routing| {
        let machines = [
            shape.dragonfly_plus(routing),
            shape.fat_tree(routing),
            machine(Shape { parallel: 2, ..line(5) }, routing),
        ];
        machines.map(|machine| {
            let nodes = machine.nodes.len() as u32;
            (machine, nodes)
        })
    };
    ALL.into_iter().flat_map(of_routing).collect()
}

#[test]
fn overload_of_each_structure_with_tiny_buffers_never_deadlocks_and_conserves_bytes() {
    // More cables than spines, so that spines differ in the groups they have links to; fewer, so that
    // detours cross a leaf of the intermediate group.
    for upper in [1, 3] {
        let shape = Spined { groups: 5, leaves: 3, spines: 2, nodes_per_leaf: 3, upper };
        for (mut machine, nodes) in stressed(shape) {
            make_tight(&mut machine);
            for (seed, (_, input_queues)) in (0..).zip(InputQueues::NAMES) {
                machine.network.input_queues = *input_queues;
                let mut messages = random_messages(nodes, 60, 12_000, seed);
                for s in messages.iter_mut().step_by(3) {
                    s.to = if s.from == 7 { 8 } else { 7 };
                }
                for s in messages.iter_mut().step_by(4) {
                    s.response = true;
                }
                let sent: u64 = messages.iter().map(|s| s.bytes).sum();
                let outcome = run(&machine, &messages, 1, seed);
                let network =
                    (machine.network.structure, machine.network.routing.algorithm, input_queues);
                assert_eq!(outcome.traffic.bytes, sent, "{network:?}");
            }
        }
    }
}

/// The spines of a group have links to few others each: a detour has to cross a leaf of the intermediate
/// group, from spine to spine, and is counted with up to seven links.
#[test]
fn detour_of_a_dragonfly_plus_crosses_a_leaf_where_a_spine_has_no_link_on() {
    let thin = Spined { groups: 6, leaves: 2, spines: 5, nodes_per_leaf: 4, upper: 1 };
    let machine = thin.dragonfly_plus(Routing::Valiant);
    let messages = random_messages(thin.nodes(), 20, 8_000, 4);
    let outcome = run(&machine, &messages, 1, 1);
    // Up, over, down, up, over, down: six links between routers.
    assert!(outcome.delivered.iter().all(|(packet, _)| packet.hops <= 6));
    assert!(outcome.delivered.iter().any(|(packet, _)| packet.hops == 6));
}

fn fates(outcome: &Outcome) -> Vec<(u64, u8, u32, u64)> {
    outcome.delivered.iter().map(|(p, at)| (p.tag(), p.hops, p.bytes, *at)).collect()
}

#[test]
fn any_number_of_threads_gives_equal_results_in_each_structure() {
    let shape = Spined { groups: 5, ..FULL };
    let routing = Routing::ProgressiveAdaptive;
    for machine in
        [shape.dragonfly_plus(routing), shape.fat_tree(routing), machine(line(5), routing)]
    {
        let messages = random_messages(machine.nodes.len() as u32, 30, 12_000, 21);
        let reference = run(&machine, &messages, 1, 9);
        for threads in [2, 3] {
            let other = run(&machine, &messages, threads, 9);
            assert_eq!(fates(&other), fates(&reference));
            assert_eq!(other.links, reference.links);
        }
    }
}

/// Both ends of each link agree, and no port has two.
fn check_links(topology: &Topology) {
    let mut plugged = HashSet::new();
    for g in 0..topology.groups {
        for router in 0..topology.routers() {
            for port in 0..topology.ports {
                let Some((h, far_router, far_port)) = (port >= topology.first_global
                    && port < topology.first_node)
                    .then(|| topology.far_end(g, router, port))
                    .flatten()
                else {
                    continue;
                };
                assert_eq!(topology.far_end(h, far_router, far_port), Some((g, router, port)));
                assert!(plugged.insert((g, router, port)));
                let links = topology.links(g, h);
                assert!(links.iter().any(|l| (l.router, l.port) == (router, port)));
            }
        }
    }
    assert_eq!(plugged.len() as u64, topology.global_links());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn links_of_groups_with_spines_join_what_they_should(
        groups in 2u32..9, leaves in 1u32..6, spines in 1u32..6, upper in 1u32..7
    ) {
        let shape = Spined { groups, leaves, spines, nodes_per_leaf: 1, upper };
        let plus = Topology::new(&shape.dragonfly_plus(Routing::Minimal));
        check_links(&plus);
        let tree = Topology::new(&shape.fat_tree(Routing::Minimal));
        check_links(&tree);
        prop_assert_eq!(u32::from(tree.groups), groups + spines);
        let leaves = leaves as u16;
        for (g, h) in (0..groups as u16).flat_map(|g| (0..groups as u16).map(move |h| (g, h))) {
            if g == h { continue; }
            // Links between groups are at spines.
            prop_assert!(plus.links(g, h).iter().all(|l| l.router >= leaves && l.far_router >= leaves));
            for random in [0, u64::MAX / 2, u64::MAX] {
                let up = *tree.shortest_link((g, 0), (h, 0), random);
                let (plane, core, _) = tree.far_end(g, up.router, up.port).unwrap();
                prop_assert!(tree.is_plane(plane) && up.router == leaves + plane - groups as u16);
                let down = *tree.shortest_link((plane, core), (h, 0), random);
                prop_assert_eq!((down.router, down.far_router), (core, up.router));
                prop_assert_eq!(tree.far_end(plane, core, down.port).map(|far| far.0), Some(h));
            }
        }
    }
}
