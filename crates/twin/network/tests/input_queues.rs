//! The order in which packets leave an input buffer.

use crate::harness;
use forebay_machine_file::machine::{InputQueues, Routing};
use forebay_units::Bytes;
use harness::{SMALL, Shape, TestMessage, machine, make_tight, random_messages, run};

/// Packets of 4,000 bytes take 800 ns on a rank-1 link, and buffers behind these hold one packet.
///
/// Node 1 takes the link from router 0 to router 1 from 200 ns to 1,000 ns. Its packet leaves router 1 at
/// 1,110 ns, and its credit is back with the batch at 35 x 2^15 ps = 1,146.88 ns. Node 0 sends a packet to
/// router 1 as well, which waits for this credit, and behind it one to router 2, whose link is free.
fn times(input_queues: InputQueues) -> [u64; 2] {
    let mut machine = machine(Shape { groups: 1, chassis: 1, ..SMALL }, Routing::Minimal);
    machine.network.rank1.buffer = Bytes(4_000);
    machine.network.input_queues = input_queues;
    let messages = [(1, 2, 0), (0, 3, 50_000), (0, 4, 50_000)].map(|(from, to, at)| TestMessage {
        from,
        to,
        bytes: 4_000,
        at,
        response: false,
    });
    let outcome = run(&machine, &messages, 1, 1);
    let arrived = |tag| outcome.delivered.iter().find(|(p, _)| p.tag() == tag).unwrap().1;
    [arrived(1), arrived(2)]
}

/// From the start on the rank-1 link: link, router, node link, packet.
const REST: u64 = 10_000 + 100_000 + 100_000 + 800_000;
const CREDIT: u64 = 35 << 15;

#[test]
fn packet_waits_for_its_own_link_only() {
    // It is on its node's link from 550 ns on, and passes two routers.
    let free = 550_000 + 100_000 + 100_000 + REST;
    assert_eq!(times(InputQueues::VirtualOutput), [CREDIT + REST, free]);
}

#[test]
fn packet_waits_behind_one_without_credits_in_a_first_in_first_out_buffer() {
    assert_eq!(times(InputQueues::Fifo), [CREDIT + REST, CREDIT + REST]);
}

/// All nodes send to random others, faster than the links within the group can carry, with buffers of one
/// packet.
#[test]
fn head_of_line_blocking_lowers_the_throughput() {
    let end = |input_queues| {
        let mut machine = machine(Shape { groups: 1, ..SMALL }, Routing::Minimal);
        machine.network.input_queues = input_queues;
        make_tight(&mut machine);
        run(&machine, &random_messages(16, 300, 4_000, 2), 1, 1).end
    };
    let (fifo, virtual_output) = (end(InputQueues::Fifo), end(InputQueues::VirtualOutput));
    assert!(fifo > virtual_output, "{fifo} and {virtual_output} ps");
}
