//! The fabric against calculations by hand, and its invariants.

use crate::harness;
use forebay_machine_file::machine::{LinkClass, Routing};
use forebay_network::{Packet, Topology};
use forebay_random::RandomSequence;
use harness::{
    Outcome, SMALL, Shape, TestMessage, all_choices, machine, make_tight, random_messages, run,
};

/// Packets of 4,000 bytes: node link 500 ns, rank-1 800 ns, rank-2 266.67 ns, rank-3 200 ns.
const NODE: u64 = 500_000;
const RANK1: u64 = 800_000;
const TRAVERSAL: u64 = 100_000;
const NODE_LATENCY: u64 = 100_000;

fn one(from: u32, to: u32) -> u64 {
    let outcome = run(
        &machine(SMALL, Routing::Minimal),
        &[TestMessage { from, to, bytes: 4_000, at: 0, response: false }],
        1,
        1,
    );
    assert_eq!(outcome.delivered.len(), 1);
    outcome.delivered[0].1
}

#[test]
fn zero_load_latency_equals_the_calculation_by_hand() {
    // Nodes 0 and 1 share a router: in, across, out.
    assert_eq!(one(0, 1), NODE_LATENCY + TRAVERSAL + NODE_LATENCY + NODE);
    // Next slot: one rank-1 link, the slowest on the path, which determines when the tail arrives.
    assert_eq!(one(0, 2), NODE_LATENCY + TRAVERSAL + 10_000 + TRAVERSAL + NODE_LATENCY + RANK1);
    // Next chassis, same slot: the rank-2 link is faster than the node link, so the tail arrives
    // when the node link has sent it.
    assert_eq!(one(0, 8), NODE_LATENCY + TRAVERSAL + 20_000 + TRAVERSAL + NODE_LATENCY + NODE);
    // Both.
    assert_eq!(
        one(0, 10),
        NODE_LATENCY + TRAVERSAL + 10_000 + TRAVERSAL + 20_000 + TRAVERSAL + NODE_LATENCY + RANK1
    );
}

#[test]
fn latency_to_another_group_counts_each_link_of_the_minimal_path() {
    let machine = machine(SMALL, Routing::Minimal);
    let topology = Topology::new(&machine);
    let (from, to) = (0, 16 * 3 + 5);
    let (a, b) = (topology.location(from), topology.location(to));
    let link = topology.links(a.group, b.group)[0];
    let local = |x: u16, y: u16| {
        u64::from(x % 4 != y % 4) * (TRAVERSAL + 10_000)
            + u64::from(x / 4 != y / 4) * (TRAVERSAL + 20_000)
    };
    let crosses_rank1 = a.router % 4 != link.router % 4 || b.router % 4 != link.far_router % 4;
    let by_hand = NODE_LATENCY
        + local(a.router, link.router)
        + TRAVERSAL
        + 150_000
        + local(link.far_router, b.router)
        + TRAVERSAL
        + NODE_LATENCY
        + if crosses_rank1 { RANK1 } else { NODE };
    assert_eq!(one(from, to), by_hand);
}

#[test]
fn single_flow_gets_the_rate_of_its_slowest_link() {
    for (to, rate) in [(1, 8.0), (2, 5.0), (8, 8.0)] {
        let bytes = 40_000_000u64;
        let outcome = run(
            &machine(SMALL, Routing::Minimal),
            &[TestMessage { from: 0, to, bytes, at: 0, response: false }],
            1,
            1,
        );
        let measured = bytes as f64 * 1000.0 / outcome.end as f64;
        assert!((measured / rate - 1.0).abs() < 0.002, "node {to}: {measured} GB/s, not {rate}");
    }
}

/// All nodes of group 0 send to nodes of group 1, as fast as they can.
fn adversarial(routing: Routing) -> f64 {
    let shape = Shape { groups: 6, sockets: 10, ..SMALL };
    let mut random = RandomSequence::new(5);
    let mut messages = Vec::new();
    for from in 0..16 {
        for _ in 0..60 {
            messages.push(TestMessage {
                from,
                to: 16 + random.below(16),
                bytes: 20_000,
                at: 0,
                response: false,
            });
        }
    }
    let mut machine = machine(shape, routing);
    machine.network.rank1.rate.0 = 15_000_000_000; // so that no local link is the limit
    let outcome = run(&machine, &messages, 1, 3);
    outcome.traffic.bytes as f64 * 1000.0 / outcome.end as f64
}

#[test]
fn adversarial_traffic_exceeds_one_global_link_only_with_detours() {
    let minimal = adversarial(Routing::Minimal);
    assert!(minimal < 20.0 && minimal > 18.0, "minimal: {minimal} GB/s over one link of 20 GB/s");
    for routing in [Routing::Valiant, Routing::UgalL, Routing::ProgressiveAdaptive] {
        let rate = adversarial(routing);
        assert!(rate > 1.8 * minimal, "{routing:?}: {rate} GB/s, minimal {minimal}");
    }
}

fn uniform(shape: Shape, count: u32, bytes: u64, seed: u64) -> Vec<TestMessage> {
    let nodes = shape.groups * shape.chassis * shape.slots * shape.nodes_per_router;
    random_messages(nodes, count, bytes, seed)
}

#[test]
fn overload_with_tiny_buffers_never_deadlocks_and_conserves_bytes() {
    // Buffers of one packet, all nodes send at once, hot destinations: any cycle of waiting
    // packets would close within microseconds. The harness asserts that the fabric becomes idle.
    let shape = Shape { groups: 5, sockets: 8, parallel: 2, ..SMALL };
    for (seed, (routing, detour, input_queues)) in all_choices().into_iter().enumerate() {
        let mut machine = machine(shape, routing);
        machine.network.routing.detour = detour;
        machine.network.input_queues = input_queues;
        make_tight(&mut machine);
        let mut messages = uniform(shape, 60, 12_000, seed as u64);
        for s in messages.iter_mut().step_by(3) {
            s.to = if s.from == 7 { 8 } else { 7 };
        }
        for s in messages.iter_mut().step_by(4) {
            s.response = true;
        }
        let sent: u64 = messages.iter().map(|s| s.bytes).sum();
        let outcome = run(&machine, &messages, 1, seed as u64);
        assert_eq!(outcome.traffic.bytes, sent, "{routing:?}, {detour:?}, {input_queues:?}");
        assert_eq!(outcome.traffic.injected_bytes, sent, "{routing:?}");
    }
}

#[test]
fn each_message_arrives_completely_at_its_destination() {
    let messages = uniform(SMALL, 20, 30_000, 11);
    let outcome = run(&machine(SMALL, Routing::ProgressiveAdaptive), &messages, 1, 1);
    let mut left: Vec<u64> = messages.iter().map(|s| s.bytes).collect();
    for (packet, _) in &outcome.delivered {
        let s = messages[packet.tag() as usize];
        assert_eq!((packet.src, packet.dst), (s.from, s.to));
        left[packet.tag() as usize] -= u64::from(packet.bytes);
    }
    assert!(left.iter().all(|&bytes| bytes == 0));
}

#[test]
fn every_byte_is_counted_on_each_link_it_crossed() {
    let messages = uniform(SMALL, 20, 30_000, 12);
    let outcome = run(&machine(SMALL, Routing::Minimal), &messages, 1, 1);
    let on = |class| -> u64 {
        outcome.links.iter().flatten().filter(|l| l.class == class).map(|l| l.bytes).sum()
    };
    let crossed: u64 =
        outcome.delivered.iter().map(|(p, _)| u64::from(p.bytes) * u64::from(p.hops)).sum();
    assert_eq!(on(LinkClass::Rank1) + on(LinkClass::Rank2) + on(LinkClass::Global), crossed);
    let sent: u64 = messages.iter().map(|s| s.bytes).sum();
    assert_eq!(on(LinkClass::Node), 2 * sent);
}

#[test]
fn any_number_of_threads_delivers_equal_packets_at_equal_times() {
    let shape = Shape { groups: 5, sockets: 8, parallel: 2, ..SMALL };
    let messages = uniform(shape, 40, 12_000, 21);
    for (_, detour, input_queues) in
        all_choices().into_iter().filter(|(routing, ..)| *routing == Routing::ProgressiveAdaptive)
    {
        let mut machine = machine(shape, Routing::ProgressiveAdaptive);
        machine.network.routing.detour = detour;
        machine.network.input_queues = input_queues;
        let reference = run(&machine, &messages, 1, 9);
        for threads in [2, 3, 5] {
            let other = run(&machine, &messages, threads, 9);
            assert_eq!(other.end, reference.end);
            assert_eq!(other.events, reference.events);
            assert_eq!(other.links, reference.links);
            let fate = |(p, at): &(Packet, u64)| (p.tag(), p.hops, p.bytes, p.route(), *at);
            let fates = |o: &Outcome| o.delivered.iter().map(fate).collect::<Vec<_>>();
            assert_eq!(fates(&other), fates(&reference));
            assert_eq!(other.traffic.latency_sum, reference.traffic.latency_sum);
        }
    }
}

#[test]
fn congestion_backs_up_into_the_sources() {
    // 15 nodes send to one: its link carries 8 GB/s, the rest waits in the buffers on the path and
    // finally in the senders.
    let messages: Vec<_> = (1..16)
        .map(|from| TestMessage { from, to: 0, bytes: 400_000, at: 0, response: false })
        .collect();
    let outcome = run(&machine(SMALL, Routing::Minimal), &messages, 1, 1);
    let rate = outcome.traffic.bytes as f64 * 1000.0 / outcome.end as f64;
    assert!((rate / 8.0 - 1.0).abs() < 0.01, "{rate} GB/s into a link of 8 GB/s");
    let stalled = |class| -> u64 {
        outcome.links[0].iter().filter(|l| l.class == class).map(|l| l.stalled).sum()
    };
    assert!(stalled(LinkClass::Rank1) > 0 && stalled(LinkClass::Rank2) > 0);
    let inward: Vec<_> = outcome.links[0].iter().filter(|l| l.router.is_none()).collect();
    assert!(inward.iter().all(|l| l.longest_queue <= 32 * 1024));
}

/// Node 0 fills the rank-1 link from router 0 to router 1; node 1 of router 0 sends one packet to a
/// node of router 5, which is one rank-1 and one rank-2 link away.
#[test]
fn adaptive_packet_crosses_the_dimension_without_a_queue_first() {
    let time = |routing, seed| {
        let messages = [
            TestMessage { from: 0, to: 2, bytes: 400_000, at: 0, response: false },
            TestMessage { from: 1, to: 10, bytes: 4_000, at: 10_000_000, response: false },
        ];
        let mut machine = machine(SMALL, routing);
        machine.network.routing.rank1_threshold.0 = u64::MAX;
        machine.network.routing.rank2_threshold.0 = u64::MAX;
        let outcome = run(&machine, &messages, 1, seed);
        let (_, at) = outcome.delivered.iter().find(|(p, _)| p.tag() == 1).expect("delivered");
        at - 10_000_000
    };
    let unloaded =
        NODE_LATENCY + TRAVERSAL + 20_000 + TRAVERSAL + 10_000 + TRAVERSAL + NODE_LATENCY + RANK1;
    for seed in 0..8 {
        assert_eq!(time(Routing::UgalL, seed), unloaded);
    }
    // Without regard to queues half of the packets wait behind the other node's.
    let waited = (0..32).filter(|seed| time(Routing::Minimal, *seed) > unloaded).count();
    assert!((6..=26).contains(&waited), "{waited} of 32 wait");
}

/// The two other nodes of a router send one packet each to the third at the same time: the second
/// waits while the first is transmitted, 500 ns.
#[test]
fn queue_at_the_link_to_a_node_is_counted() {
    let shape = Shape { nodes_per_router: 3, ..SMALL };
    let messages =
        [1, 2].map(|from| TestMessage { from, to: 0, bytes: 4_000, at: 0, response: false });
    let outcome = run(&machine(shape, Routing::Minimal), &messages, 1, 1);
    let to_node = outcome.links[0]
        .iter()
        .find(|l| l.class == LinkClass::Node && l.router == Some(0) && l.bytes > 0)
        .expect("the link to node 0");
    assert_eq!(to_node.stalled, NODE);
    assert!((3_990..=4_000).contains(&to_node.longest_queue), "{}", to_node.longest_queue);
}

/// A cable of two routers: both of them are gateways, each with its own link.
#[test]
fn both_links_of_a_cable_carry_traffic_from_their_own_routers() {
    let shape = Shape { per_cable: 2, ..SMALL };
    let machine = machine(shape, Routing::Minimal);
    let topology = Topology::new(&machine);
    let links = topology.links(0, 1).to_vec();
    assert_eq!((links.len(), links[0].router + 1), (2, links[1].router));
    // From the nodes of each gateway to those of the router at the other end: no local link.
    let node = |group: u32, router: u16| group * 16 + u32::from(router) * 2;
    let messages: Vec<_> = links
        .iter()
        .map(|l| TestMessage {
            from: node(0, l.router),
            to: node(1, l.far_router),
            bytes: 400_000,
            at: 0,
            response: false,
        })
        .collect();
    let outcome = run(&machine, &messages, 1, 1);
    assert!(outcome.delivered.iter().all(|(p, _)| p.hops == 1));
    let used: Vec<u64> = outcome.links[0]
        .iter()
        .filter(|l| l.class == LinkClass::Global && l.to_group == 1)
        .map(|l| l.bytes)
        .collect();
    assert_eq!(used, [400_000, 400_000]);
}

/// The nodes of other routers flood node 0 with data, so that buffers back up to their senders; node
/// 2 of router 1 sends an acknowledgement of 100 bytes to node 1 of router 0, past its own flood.
#[test]
fn acknowledgement_does_not_wait_behind_bulk_data() {
    let mut messages: Vec<_> = (2..16)
        .map(|from| TestMessage { from, to: 0, bytes: 400_000, at: 0, response: false })
        .collect();
    let mut time = |response| {
        let at = 100_000_000;
        messages.push(TestMessage { from: 2, to: 1, bytes: 100, at, response });
        let outcome = run(&machine(SMALL, Routing::Minimal), &messages, 1, 1);
        let tag = messages.len() as u64 - 1;
        messages.pop();
        let (_, arrived) = outcome.delivered.iter().find(|(p, _)| p.tag() == tag).expect("arrived");
        arrived - at
    };
    let (request, response) = (time(false), time(true));
    // It crosses three links and two routers, and on each link waits for one packet at most.
    let unloaded = 2 * NODE_LATENCY + 2 * TRAVERSAL + 10_000 + 20_000;
    assert!(response <= unloaded + NODE + RANK1 + NODE, "{response} ps");
    assert!(request > 4 * response, "{request} and {response} ps");
}
