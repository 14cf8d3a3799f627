//! Nodes with several network interfaces.

use crate::harness;
use forebay_machine_file::machine::{LinkClass, Machine, Routing};
use harness::{
    Outcome, SMALL, Shape, TestMessage, machine, make_tight, random_messages, run, widen,
};

/// Groups of 8 routers, each two joined at 40 GB/s, in sets of 4 to which 2 nodes are attached with 4
/// interfaces each: nodes 0 and 1 at routers 0 to 3, nodes 2 and 3 at 4 to 7.
fn wide(groups: u32, routing: Routing) -> Machine {
    let shape = Shape { groups, chassis: 1, slots: 8, sockets: 8, ..SMALL };
    let mut machine = machine(shape, routing);
    widen(&mut machine, 4);
    machine.network.rank1.rate.0 = 40_000_000_000;
    machine
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.traffic.bytes as f64 * 1000.0 / outcome.end as f64
}

#[test]
fn single_message_takes_one_interface_and_many_take_all() {
    let message = TestMessage { from: 0, to: 2, bytes: 4_000_000, at: 0, response: false };
    let alone = rate(&run(&wide(1, Routing::Minimal), &[message], 1, 1));
    assert!((alone / 8.0 - 1.0).abs() < 0.01, "{alone} GB/s over an interface of 8");
    let outcome = run(&wide(1, Routing::Minimal), &[message; 8], 1, 1);
    let all = rate(&outcome);
    assert!((all / 32.0 - 1.0).abs() < 0.01, "{all} GB/s over four interfaces of 8");
    // Each interface of sender and receiver carries two of the eight messages.
    let node_links = outcome.links[0].iter().filter(|l| l.class == LinkClass::Node && l.bytes > 0);
    let bytes: Vec<u64> = node_links.map(|l| l.bytes).collect();
    assert_eq!(bytes, [8_000_000; 8]);
}

#[test]
fn packets_name_nodes_and_not_interfaces() {
    let machine = wide(4, Routing::ProgressiveAdaptive);
    let messages = random_messages(16, 20, 30_000, 11);
    let outcome = run(&machine, &messages, 1, 1);
    let mut left: Vec<u64> = messages.iter().map(|s| s.bytes).collect();
    for (packet, _) in &outcome.delivered {
        let s = messages[packet.tag() as usize];
        assert_eq!((packet.src, packet.dst), (s.from, s.to));
        left[packet.tag() as usize] -= u64::from(packet.bytes);
    }
    assert!(left.iter().all(|&bytes| bytes == 0));
}

/// More messages than the interfaces of a node accept: those that wait are sent when there is room.
#[test]
fn full_interfaces_take_messages_when_they_have_room_again() {
    let messages: Vec<_> = (0..3_000)
        .map(|i| TestMessage { from: 0, to: 2 + i % 2, bytes: 5_000, at: 0, response: i % 5 == 0 })
        .collect();
    let outcome = run(&wide(1, Routing::Minimal), &messages, 1, 1);
    assert_eq!(outcome.traffic.bytes, 15_000_000);
    assert!(rate(&outcome) > 30.0, "{} GB/s", rate(&outcome));
}

#[test]
fn overload_of_several_interfaces_with_tiny_buffers_never_deadlocks() {
    for routing in [Routing::Minimal, Routing::Valiant, Routing::ProgressiveAdaptive] {
        let mut machine = wide(5, routing);
        make_tight(&mut machine);
        let mut messages = random_messages(20, 80, 12_000, 3);
        for s in messages.iter_mut().step_by(3) {
            s.to = if s.from == 7 { 8 } else { 7 };
        }
        for s in messages.iter_mut().step_by(4) {
            s.response = true;
        }
        let sent: u64 = messages.iter().map(|s| s.bytes).sum();
        assert_eq!(run(&machine, &messages, 1, 1).traffic.bytes, sent);
    }
}

#[test]
fn any_number_of_threads_gives_equal_results_with_several_interfaces() {
    let machine = wide(5, Routing::ProgressiveAdaptive);
    let messages = random_messages(20, 60, 12_000, 21);
    let reference = run(&machine, &messages, 1, 9);
    for threads in [2, 3] {
        let other = run(&machine, &messages, threads, 9);
        assert_eq!(other.links, reference.links);
        assert_eq!(other.end, reference.end);
    }
}
