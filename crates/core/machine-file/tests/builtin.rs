//! The machines that come with Forebay: each loads and has the counts its sources give.

use forebay_machine_file::builtin_machines;
use forebay_machine_file::machine::{BurstBuffer, Machine, NodeKind};
use forebay_units::{Bytes, Rate, Time};

fn load(name: &str) -> Machine {
    Machine::load(name).unwrap_or_else(|error| panic!("{error}"))
}

/// Nodes by kind: compute, burst buffer, LNET, service.
fn counts(machine: &Machine) -> [usize; 4] {
    [NodeKind::Compute, NodeKind::BurstBuffer, NodeKind::Lnet, NodeKind::Service]
        .map(|kind| machine.nodes_of_kind(kind).len())
}

#[test]
fn every_builtin_machine_loads_by_name() {
    for (name, title) in builtin_machines() {
        let machine = load(name);
        assert_eq!((machine.name.as_str(), machine.title.as_str()), (name, title));
        assert!(machine.notes.len() > 40, "{name} has no notes");
    }
}

#[test]
fn node_counts_match_the_sources() {
    assert_eq!(counts(&load("toy")), [56, 4, 0, 0]);
    assert_eq!(counts(&load("trinity")), [57 * 360, 570, 57 * 4, 0]);
    assert_eq!(counts(&load("trinity-phase2")), [10_080, 230, 28 * 4, 0]);
    assert_eq!(counts(&load("theta")), [4_392, 0, 30, 76]);
    assert_eq!(counts(&load("cori-phase1")), [1_630, 140, 130, 0]);
    assert_eq!(counts(&load("cori")), [12_076, 288, 130, 94]);
    assert_eq!(counts(&load("shaheen2")), [6_174, 268, 72, 0]);
    assert_eq!(counts(&load("frontier")), [9_408, 0, 0, 0]);
    assert_eq!(counts(&load("edison")), [5_586, 0, 42, 64]);
    assert_eq!(counts(&load("edison-scratch3")), [5_586, 0, 42, 64]);
    assert_eq!(counts(&load("piz-daint")), [7_517, 0, 0, 0]);
}

#[test]
fn machines_with_datawarp_have_one_set_of_storage_parameters() {
    let cori = load("cori");
    for name in ["cori-phase1", "shaheen2", "trinity", "trinity-phase2"] {
        // The granularity is a setting of the site.
        let site = load(name).burst_buffer.unwrap();
        let granularity = site.granularity;
        let expected = cori.burst_buffer.clone().map(|make| BurstBuffer { granularity, ..make });
        assert_eq!(Some(site), expected, "{name}");
    }
    // Haswell nodes are equal on both machines, and KNL nodes.
    assert_eq!(load("cori-phase1").client, cori.client);
    assert_eq!(load("shaheen2").client, cori.client);
    assert_eq!(load("trinity-phase2").client, cori.client_types[0].client);
}

#[test]
fn aries_links_have_the_published_rates() {
    let network = load("trinity").network;
    assert_eq!(network.rank1.raw_rate, Rate(5_250_000_000));
    assert_eq!(network.rank2.raw_rate, Rate(15_750_000_000));
    assert_eq!(network.global.raw_rate, Rate(9_375_000_000));
    // 65% of them carry payload; the node's rate is one of payload.
    assert_eq!(network.rank1.rate, Rate(3_412_500_000));
    assert_eq!(network.rank2.rate, Rate(10_237_500_000));
    assert_eq!(network.global.rate, Rate(6_093_750_000));
    assert_eq!(network.node.rate, Rate(8_000_000_000));
    assert_eq!(network.router_traversal, Time::from_ns(100));
    assert_eq!(network.packet, Bytes::kib(4));
}

/// 16 nodes of a chassis have one interface each on each of its four switches.
#[test]
fn nodes_of_frontier_are_on_the_four_switches_of_their_chassis() {
    let machine = load("frontier");
    assert!(machine.nodes.iter().all(|n| (n.interfaces, n.routers, n.router % 4) == (4, 4, 0)));
    let mut interfaces = vec![0; machine.routers() as usize];
    for router in machine.nodes.iter().flat_map(|node| node.routers_of_interfaces()) {
        interfaces[router as usize] += 1;
    }
    assert!(interfaces.iter().all(|&count| count == 16 || count == 0));
    assert_eq!(interfaces.iter().filter(|&&count| count == 0).count(), 64 / 16 * 4);
    // Four links to each of 73 groups, 57% of what 512 interfaces inject.
    let network = &machine.network;
    let out = 73 * network.links_per_group_pair();
    assert_eq!((out, 100 * out / 512), (292, 57));
    assert_eq!(machine.link_rate(&[0]), Rate(95_000_000_000));
}

#[test]
fn machine_file_without_interfaces_interleaves_four_messages() {
    let toy = include_str!("../../../../machines/toy.toml");
    let (before, _) = toy.split_once("[network.nic]").expect("the last table");
    let machine = Machine::parse("toy.toml", before, &|name| panic!("{name} is read"));
    let machine = machine.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(machine.network.nic.interleaved_messages, 4);
    let one =
        toy.replace("interleaved_messages = { value = 4", "interleaved_messages = { value = 1");
    let machine = Machine::parse("toy.toml", &one, &|name| panic!("{name} is read"));
    let machine = machine.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(machine.network.nic.interleaved_messages, 1);
}
