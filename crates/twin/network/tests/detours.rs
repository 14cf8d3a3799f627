//! The places over which detours lead, against calculations by hand.
//!
//! Three groups of four routers with two nodes each, each two routers of a group and each two groups joined
//! by one link. A packet from group 0 to group 1 has one third group for its detour.

use crate::harness;
use forebay_machine_file::machine::{Detour, LateDetour, LinkClass, Machine, Plugging, Routing};
use forebay_network::{GlobalLink, Route, Topology};
use forebay_units::Rate;
use harness::{Outcome, SMALL, Shape, TestMessage, machine, run};
use std::collections::BTreeMap;

/// Packets of 4,000 bytes: 800 ns on a rank-1 link, the slowest.
const ENDS: u64 = 2 * 100_000 + 100_000 + 800_000;
const LOCAL: u64 = 10_000 + 100_000;
const GLOBAL: u64 = 150_000 + 100_000;

fn three_groups(detour: Detour) -> Machine {
    let shape = Shape { groups: 3, chassis: 1, sockets: 4, ..SMALL };
    let mut machine = machine(shape, Routing::Valiant);
    machine.network.routing.detour = detour;
    machine
}

/// 600 packets from node 0 to node 13, each alone: router 0 of group 0, router 2 of group 1.
fn packets(machine: &Machine) -> Outcome {
    let message =
        |i: u64| TestMessage { from: 0, to: 13, bytes: 4_000, at: i * 10_000_000, response: false };
    run(machine, &(0..600).map(message).collect::<Vec<_>>(), 1, 1)
}

/// Numbers of packets by route and time of flight.
fn counts(outcome: &Outcome) -> BTreeMap<(bool, u64), u32> {
    let mut counts = BTreeMap::new();
    for (packet, at) in &outcome.delivered {
        let key = (packet.route() == Route::Detour, at - packet.tag() * 10_000_000);
        *counts.entry(key).or_default() += 1;
    }
    counts
}

fn local(a: u16, b: u16) -> u64 {
    if a == b { 0 } else { LOCAL }
}

/// The links from group 0 to group 1, from 0 to 2, and from 2 to 1.
fn links(machine: &Machine) -> [GlobalLink; 3] {
    let topology = Topology::new(machine);
    [(0, 1), (0, 2), (2, 1)].map(|(from, to)| topology.links(from, to)[0])
}

/// Times of the packets over each router of the intermediate group.
fn over_third_group(machine: &Machine, via: impl IntoIterator<Item = u16>) -> Vec<u64> {
    let [_, first, second] = links(machine);
    let ends = local(0, first.router) + local(second.far_router, 2) + 2 * GLOBAL + ENDS;
    let within = |via| local(first.far_router, via) + local(via, second.router);
    via.into_iter().map(|via| ends + within(via)).collect()
}

#[test]
fn detour_over_a_group_takes_its_shortest_path() {
    let machine = three_groups(Detour::Group);
    let [_, first, _] = links(&machine);
    let expected = over_third_group(&machine, [first.far_router])[0];
    assert_eq!(counts(&packets(&machine)), BTreeMap::from([((true, expected), 600)]));
    // Within a group there is none.
    let within = TestMessage { from: 0, to: 7, bytes: 4_000, at: 0, response: false };
    let outcome = run(&machine, &[within], 1, 1);
    assert_eq!(
        (outcome.delivered[0].0.route(), outcome.delivered[0].1),
        (Route::Minimal, ENDS + LOCAL)
    );
}

#[test]
fn detour_over_a_router_takes_each_of_the_group() {
    let machine = three_groups(Detour::Router);
    let expected = over_third_group(&machine, 0..4);
    let counts = counts(&packets(&machine));
    assert_eq!(counts.values().sum::<u32>(), 600);
    for ((is_detour, time), count) in counts {
        let routers = expected.iter().filter(|t| **t == time).count() as f64;
        assert!(
            is_detour && (f64::from(count) / 150.0 - routers).abs() < 0.4,
            "{count} of {time} ps"
        );
    }
}

/// A third of the nodes is in the source's group: the minimal path. A third is in the destination's: a
/// longer way there, over each of its routers. The others are in the third group.
#[test]
fn detour_over_any_node_may_be_minimal_or_within_the_destinations_group() {
    let machine = three_groups(Detour::AnyNode);
    let [direct, ..] = links(&machine);
    let minimal = local(0, direct.router) + GLOBAL + local(direct.far_router, 2) + ENDS;
    let there = (0..4).map(|via| {
        let within = match via == direct.far_router {
            true => local(via, 2),
            false => local(direct.far_router, via) + local(via, 2),
        };
        local(0, direct.router) + GLOBAL + within + ENDS
    });
    let mut expected: BTreeMap<(bool, u64), f64> = BTreeMap::from([((false, minimal), 200.0)]);
    for time in there.chain(over_third_group(&machine, 0..4)) {
        *expected.entry((true, time)).or_default() += 50.0;
    }
    let outcome = packets(&machine);
    let counts = counts(&outcome);
    assert_eq!(counts.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (key, count) in counts {
        assert!((f64::from(count) / expected[&key] - 1.0).abs() < 0.35, "{key:?}: {count}");
    }
    let global =
        outcome.links[0].iter().filter(|l| l.class == LinkClass::Global && l.to_group == 1);
    let share = global.map(|l| l.bytes).sum::<u64>() as f64 / (600.0 * 4_000.0);
    assert!((share - 2.0 / 3.0).abs() < 0.06, "{share} of the packets take the direct link");
}

/// Group 0 of five with the nodes of its routers 1 to 3, which send to group 1 all at once. The gateway is
/// router 0. Packets decide there alone. Returns the bytes from group 0 to each other group.
fn late_detours(links_per_router: u32, late_detour: LateDetour) -> [u64; 5] {
    let shape = Shape {
        groups: 5,
        chassis: 1,
        sockets: 4 * links_per_router,
        plugging: Plugging::InOrder,
        ..SMALL
    };
    let mut machine = machine(shape, Routing::ProgressiveAdaptive);
    let routing = &mut machine.network.routing;
    (routing.rank1_threshold.0, routing.global_threshold.0) = (u64::MAX, 0);
    (routing.detour, routing.late_detour) = (Detour::Group, late_detour);
    machine.network.global.rate = Rate(2_000_000_000);
    let message = |i: u32| TestMessage {
        from: 2 + i % 6,
        to: 8 + i % 8,
        bytes: 4_000,
        at: 0,
        response: false,
    };
    let outcome = run(&machine, &(0..300).map(message).collect::<Vec<_>>(), 1, 1);
    let mut bytes = [0; 5];
    for link in outcome.links[0].iter().filter(|l| l.class == LinkClass::Global) {
        bytes[usize::from(link.to_group)] += link.bytes;
    }
    bytes
}

/// With two links a router, the gateway's other link leads to group 2; with one it has no other.
#[test]
fn late_detour_over_own_links_stays_at_its_router() {
    let any = late_detours(2, LateDetour::AnyLink);
    assert!(any[1..].iter().all(|&bytes| bytes > 0), "{any:?}");
    let own = late_detours(2, LateDetour::OwnLink);
    assert!(own[1] > 0 && own[2] > 0 && own[3..] == [0, 0], "{own:?}");
    assert_eq!(late_detours(1, LateDetour::OwnLink), [0, 300 * 4_000, 0, 0, 0]);
}
