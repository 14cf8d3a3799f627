//! Decisions of adaptive routing between the minimal path and a detour.

use crate::harness;
use forebay_machine_file::machine::{AdaptiveBias, Machine, Routing};
use forebay_network::{Route, Topology};
use forebay_units::{Bytes, Rate};
use harness::{SMALL, Shape, TestMessage, machine, run};

/// Three groups of four routers, with one link of 1 GB/s between each two groups: a packet of 4,000
/// bytes takes 4 us. Buffers hold all that the tests send.
fn three_groups(bias: AdaptiveBias) -> Machine {
    let shape = Shape { groups: 3, chassis: 1, sockets: 4, ..SMALL };
    let mut machine = machine(shape, Routing::UgalL);
    let network = &mut machine.network;
    network.global.rate = Rate(1_000_000_000);
    for link in [&mut network.node, &mut network.rank1, &mut network.rank2, &mut network.global] {
        link.buffer = Bytes::mib(1);
    }
    network.routing.bias = bias;
    network.routing.small_bias.0 = 0;
    network.routing.large_bias = 1;
    machine
}

/// The route of a packet from group 0 to group 1 that is sent after 20 us, when `to_first` and
/// `to_second` bytes have been sent by the gateways themselves to groups 1 and 2. The packet's router is
/// neither gateway, and its links are free.
fn route_of_packet(bias: AdaptiveBias, to_first: u64, to_second: u64) -> Route {
    let machine = three_groups(bias);
    let topology = Topology::new(&machine);
    let gateway = |group| topology.links(0, group)[0].router;
    let at = |router: u16| u32::from(router) * 2;
    let own = (0..4).find(|&r| r != gateway(1) && r != gateway(2)).unwrap();
    let send = |from, to, bytes, at| TestMessage { from, to, bytes, at, response: false };
    let mut messages = vec![send(at(own), 8, 4_000, 20_000_000)];
    // Nodes 8 to 15 are of group 1, 16 to 23 of group 2.
    messages.push(send(at(gateway(1)), 9, to_first, 0));
    messages.push(send(at(gateway(2)), 17, to_second, 0));
    let mut minimal_first = machine.clone();
    // The gateways' own messages of one packet after another would take detours as well.
    minimal_first.network.routing.global_threshold.0 = u64::MAX;
    let outcome = run(&minimal_first, &messages, 1, 1);
    let (packet, _) = outcome.delivered.iter().find(|(p, _)| p.src == at(own)).unwrap();
    packet.route()
}

/// 100 us are queued at the gateway, 80 us of them when the packet is sent.
#[test]
fn source_router_sees_the_queue_of_a_gateway() {
    assert_eq!(route_of_packet(AdaptiveBias::Adaptive0, 100_000, 4_000), Route::Detour);
    // The rules that look at the first link, which is free, do not.
    for bias in [AdaptiveBias::Codes, AdaptiveBias::Ugal] {
        assert_eq!(route_of_packet(bias, 100_000, 4_000), Route::Minimal, "{bias:?}");
    }
    // A gateway without queue.
    assert_eq!(route_of_packet(AdaptiveBias::Adaptive0, 4_000, 4_000), Route::Minimal);
}

/// With 80 us before the minimal path, a detour is taken with 20 us before its first rank-3 link, which
/// count as 40 us, and not with 60 us, which count as 120 us.
#[test]
fn detour_counts_its_rank_3_queue_twice() {
    assert_eq!(route_of_packet(AdaptiveBias::Adaptive0, 100_000, 40_000), Route::Detour);
    assert_eq!(route_of_packet(AdaptiveBias::Adaptive0, 100_000, 80_000), Route::Minimal);
}
