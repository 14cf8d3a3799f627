//! Transfers over time: by hand, and conservation of bytes on random systems.

use forebay_flow::{FlowId, FlowSpec, LinkId, Transport};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000_000;

fn flow(path: &[(LinkId, f64)]) -> FlowSpec<'_> {
    FlowSpec { count: 1, weight: 1.0, cap: f64::INFINITY, path }
}

/// 100 B and 300 B share 100 B/s: the first ends after 2 s, and the second, alone for its last 200 B,
/// after 4 s.
#[test]
fn flow_that_ends_leaves_its_rate_to_the_others() {
    let mut transport = Transport::new(1);
    let link = transport.add_link(100.0);
    let short = transport.start(flow(&[(link, 1.0)]), 100.0);
    let long = transport.start(flow(&[(link, 1.0)]), 300.0);
    assert_eq!(transport.next_ends(u64::MAX), [short]);
    assert_eq!(transport.now(), 2 * SECOND);
    assert_eq!(transport.next_ends(u64::MAX), [long]);
    assert_eq!(transport.now(), 4 * SECOND);
    assert_eq!((transport.carried(link), transport.active()), (400.0, 0));
    assert_eq!(transport.next_ends(u64::MAX), []);
}

/// The second begins when the first has ended; a new capacity counts from then on.
#[test]
fn capacity_that_changes_counts_from_its_time() {
    let mut transport = Transport::new(1);
    let link = transport.add_link(100.0);
    let path = [(link, 1.0)];
    transport.start(flow(&path), 50.0);
    transport.start(flow(&path), 150.0);
    assert_eq!(transport.next_ends(u64::MAX).len(), 1);
    assert_eq!(transport.now(), SECOND);
    transport.set_capacity(link, 200.0);
    let third = transport.start(FlowSpec { cap: 10.0, ..flow(&path) }, 10.0);
    // 100 B are left at 190 B/s.
    assert_eq!(transport.next_ends(u64::MAX).len(), 1);
    assert_eq!(transport.now(), SECOND + 526_315_789_474);
    assert_eq!(transport.next_ends(u64::MAX), [third]);
    assert_eq!(transport.now(), 2 * SECOND);
}

#[test]
fn time_goes_to_its_limit_if_no_flow_ends_before() {
    let mut transport = Transport::new(1);
    let link = transport.add_link(100.0);
    let flow = transport.start(flow(&[(link, 1.0)]), 300.0);
    assert_eq!(transport.next_ends(2 * SECOND), []);
    assert_eq!(transport.now(), 2 * SECOND);
    assert_eq!(transport.carried_by(flow), 200.0);
    transport.set_capacity(link, 50.0);
    assert_eq!(transport.next_ends(9 * SECOND), [flow]);
    assert_eq!(transport.now(), 4 * SECOND);
}

#[test]
fn identical_flows_end_together_in_one_step() {
    let mut transport = Transport::new(1);
    let links: Vec<LinkId> = (0..50).map(|_| transport.add_link(7.0)).collect();
    let flows: Vec<FlowId> =
        (0..150).map(|i| transport.start(flow(&[(links[i % 50], 1.0)]), 11.0)).collect();
    assert_eq!(transport.next_ends(u64::MAX), flows);
    assert_eq!(transport.next_ends(u64::MAX), []);
}

#[test]
fn ends_within_the_resolution_are_one() {
    let mut transport = Transport::new(SECOND / 10);
    let link = transport.add_link(1e9);
    let path = [(link, 1.0)];
    let one = transport.start(FlowSpec { cap: 100.0, ..flow(&path) }, 101.0);
    let other = transport.start(FlowSpec { cap: 100.0, ..flow(&path) }, 109.0);
    assert_eq!(transport.next_ends(u64::MAX), [one, other]);
    assert_eq!(transport.now(), 11 * SECOND / 10);
}

#[test]
fn flow_without_a_rate_does_not_end() {
    let mut transport = Transport::new(1);
    let link = transport.add_link(0.0);
    let stuck = transport.start(flow(&[(link, 1.0)]), 1.0);
    assert_eq!(transport.next_ends(u64::MAX), []);
    transport.set_capacity(link, 1.0);
    assert_eq!(transport.next_ends(u64::MAX), [stuck]);
}

proptest! {
    /// Bytes that links carried over the time, by integration of their loads, equal those of the flows.
    #[test]
    fn bytes_are_conserved(
        flows in prop::collection::vec((0usize..4, 0usize..4, 1u32..1_000, 1u32..3), 1..30), waves in 1usize..4,
    ) {
        let mut transport = Transport::new(1);
        let links: Vec<LinkId> =
            [50.0, 70.0, 110.0, 130.0].map(|c| transport.add_link(c)).to_vec();
        let mut integrals = [0.0; 4];
        let mut sums = [0.0; 4];
        let mut started = 0;
        let mut ended = 0;
        let mut chunks = flows.chunks(flows.len().div_ceil(waves));
        loop {
            for &(a, b, bytes, count) in chunks.next().unwrap_or_default() {
                let path = [(links[a], 1.0), (links[b], 0.5)];
                let path = if a == b { &path[..1] } else { &path };
                let spec = FlowSpec { count, ..flow(path) };
                for (link, share) in path {
                    sums[link.index()] += f64::from(bytes) * f64::from(count) * share;
                }
                transport.start(spec, f64::from(bytes));
                started += 1;
            }
            transport.update_rates();
            let loads: Vec<f64> = links.iter().map(|l| transport.solver().load(*l)).collect();
            let before = transport.now();
            let count = transport.next_ends(u64::MAX).len();
            if count == 0 {
                break;
            }
            ended += count;
            let passed = (transport.now() - before) as f64 * 1e-12;
            for (integral, load) in integrals.iter_mut().zip(loads) {
                *integral += load * passed;
            }
        }
        prop_assert_eq!(started, ended);
        for (link, (sum, integral)) in links.iter().zip(sums.into_iter().zip(integrals)) {
            prop_assert!((transport.carried(*link) - sum).abs() < 1e-6);
            prop_assert!((sum - integral).abs() <= 1e-6 * sum.max(1.0), "{} carried, {} by rates", sum, integral);
        }
    }
}
