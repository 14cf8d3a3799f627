//! Synthetic traffic: names and parameters, destinations, times.

use forebay_random::hash;
use forebay_units::{Bytes, Rate, Time};
use forebay_workload::traffic::{Destinations, Injection, TrafficPattern, TrafficSpec};
use proptest::prelude::*;

fn pattern(text: &str) -> TrafficPattern {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

/// Five groups of four nodes, numbered 0, 2, 3, 7 and 9 in the machine.
fn groups() -> Vec<u32> {
    [0, 2, 3, 7, 9].iter().flat_map(|&g| [g; 4]).collect()
}

/// Counts of the destinations of `node`.
fn histogram(d: &Destinations, node: u32, messages: u64) -> Vec<u32> {
    let mut counts = vec![0; d.nodes() as usize];
    for message in 0..messages {
        counts[d.destination(node, message, hash(3, u64::from(node), message)) as usize] += 1;
    }
    counts
}

fn assert_about(count: u32, expected: f64) {
    let slack = 5.0 * expected.sqrt() + 1.0;
    assert!((f64::from(count) - expected).abs() < slack, "{count} where {expected} is expected");
}

#[test]
fn patterns_print_as_they_parse() {
    for text in [
        "uniform",
        "nearest-group",
        "adversarial",
        "all-to-all",
        "halo",
        "halo:x=4,y=2,z=8",
        "hot-spot:nodes=4,share=0.25",
        "permutation",
    ] {
        assert_eq!(pattern(text).to_string(), text);
    }
    assert_eq!(pattern("group+1"), TrafficPattern::Adversarial);
    assert_eq!(pattern("hot-spot"), TrafficPattern::HotSpot { nodes: 1, share: 0.1 });
    assert_eq!(pattern("hot-spot:share=1"), TrafficPattern::HotSpot { nodes: 1, share: 1.0 });
}

#[test]
fn invalid_names_and_parameters_are_refused() {
    for (text, part) in [
        ("unifrom", "unknown traffic pattern `unifrom`; use one of uniform, nearest-group"),
        ("", "unknown traffic pattern ``"),
        ("uniform:x=1", "it takes no parameter `x`"),
        ("halo:x=1", "give all of x, y and z"),
        ("halo:x=0,y=1,z=1", "`x` must be a whole number of at least 1, not `0`"),
        ("halo:w=3", "only x, y and z"),
        ("halo:x=2,x=3", "`x` is given twice"),
        ("halo:", "`` is not a parameter"),
        ("hot-spot:nodes", "`nodes` is not a parameter; write key=value"),
        ("hot-spot:nodes=-1", "not `-1`"),
        ("hot-spot:share=0", "above 0 and at most 1, not `0`"),
        ("hot-spot:share=nan", "not `nan`"),
        ("hot-spot:rate=1", "only nodes and share"),
    ] {
        let error = text.parse::<TrafficPattern>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn patterns_that_do_not_fit_the_job_are_refused() {
    for (text, groups, part) in [
        ("uniform", vec![0], "at least 2 nodes, and it has 1"),
        ("permutation", vec![], "at least 2 nodes"),
        ("adversarial", vec![4; 10], "nodes in at least 2 groups"),
        ("nearest-group", vec![4; 10], "nodes in at least 2 groups"),
        ("halo:x=3,y=3,z=1", vec![0; 12], "must have 12 nodes, for example x=2,y=2,z=3"),
        ("hot-spot:nodes=13", vec![0; 12], "1 to 12 of its nodes can be hot, not 13"),
    ] {
        let error = pattern(text).resolve(&groups, 0).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn uniform_reaches_all_other_nodes_equally() {
    let d = pattern("uniform").resolve(&groups(), 0).unwrap();
    for node in [0, 7, 19] {
        let counts = histogram(&d, node, 19_000);
        for (to, &count) in counts.iter().enumerate() {
            assert_about(count, if to as u32 == node { 0.0 } else { 1000.0 });
        }
    }
}

#[test]
fn adversarial_reaches_only_the_next_group_of_the_job() {
    let d = pattern("adversarial").resolve(&groups(), 0).unwrap();
    for (node, next) in [(0, 4..8), (5, 8..12), (19, 0..4)] {
        for (to, &count) in histogram(&d, node, 4000).iter().enumerate() {
            assert_about(count, if next.contains(&to) { 1000.0 } else { 0.0 });
        }
    }
}

#[test]
fn nearest_group_reaches_both_neighbours() {
    let d = pattern("nearest-group").resolve(&groups(), 0).unwrap();
    for (node, near) in [(0, [4..8, 16..20]), (9, [12..16, 4..8])] {
        for (to, &count) in histogram(&d, node, 8000).iter().enumerate() {
            assert_about(count, if near.iter().any(|r| r.contains(&to)) { 1000.0 } else { 0.0 });
        }
    }
    // With two groups there is only the other one.
    let d = pattern("nearest-group").resolve(&[5, 8, 5, 8], 0).unwrap();
    let counts = histogram(&d, 0, 2000);
    assert_eq!((counts[0], counts[2]), (0, 0));
    assert_about(counts[1], 1000.0);
}

#[test]
fn adversarial_follows_the_ring_of_a_scattered_job() {
    // Nodes not ordered by group, groups of different sizes.
    let group_of = [3, 1, 3, 2, 1, 3];
    let d = pattern("adversarial").resolve(&group_of, 0).unwrap();
    for node in 0..6 {
        let expected = match group_of[node as usize] {
            1 => 2,
            2 => 3,
            _ => 1,
        };
        for message in 0..50 {
            let to = d.destination(node, message, hash(0, 0, message));
            assert_eq!(group_of[to as usize], expected);
        }
    }
}

#[test]
fn all_to_all_visits_nodes_in_order() {
    let d = pattern("all-to-all").resolve(&[0; 5], 0).unwrap();
    let to: Vec<u32> = (0..6).map(|m| d.destination(3, m, 0)).collect();
    assert_eq!(to, [4, 0, 1, 2, 4, 0]);
}

#[test]
fn halo_exchanges_with_six_neighbours() {
    let d = pattern("halo").resolve(&[0; 60], 0).unwrap();
    assert_eq!(d.grid(), Some([3, 4, 5]));
    // Node 0 is at the corner (0, 0, 0): neighbours wrap around.
    let to: Vec<u32> = (0..7).map(|m| d.destination(0, m, 0)).collect();
    assert_eq!(to, [1, 2, 3, 9, 12, 48, 1]);
    // (1, 1, 1) is inside.
    let to: Vec<u32> = (0..6).map(|m| d.destination(16, m, 0)).collect();
    assert_eq!(to, [17, 15, 19, 13, 28, 4]);
    // The neighbour at x + 1 has the node at x - 1: exchanges are mutual.
    for node in 0..60 {
        for turn in 0..6 {
            assert_eq!(d.destination(d.destination(node, turn, 0), turn ^ 1, 0), node);
        }
    }
    let grid = |n: usize| pattern("halo").resolve(&vec![0; n], 0).unwrap().grid().unwrap();
    assert_eq!(grid(8192), [16, 16, 32]);
    assert_eq!(grid(13), [1, 1, 13]);
    assert_eq!(grid(64), [4, 4, 4]);
    let ring = pattern("halo").resolve(&[0; 13], 0).unwrap();
    assert_eq!((0..4).map(|m| ring.destination(0, m, 0)).collect::<Vec<_>>(), [1, 12, 1, 12]);
    let given = pattern("halo:x=1,y=2,z=6").resolve(&[0; 12], 0).unwrap();
    assert_eq!((0..4).map(|m| given.destination(0, m, 0)).collect::<Vec<_>>(), [1, 1, 2, 10]);
}

#[test]
fn hot_nodes_get_their_share() {
    let d = pattern("hot-spot:nodes=4,share=0.4").resolve(&groups(), 0).unwrap();
    // Hot nodes are 0, 5, 10 and 15.
    for (to, &count) in histogram(&d, 7, 19_000).iter().enumerate() {
        let cold = 0.6 * 19_000.0 / 19.0;
        assert_about(
            count,
            match to {
                7 => 0.0,
                0 | 5 | 10 | 15 => cold + 0.4 * 19_000.0 / 4.0,
                _ => cold,
            },
        );
    }
    // A hot node sends its share to the other three.
    for (to, &count) in histogram(&d, 5, 19_000).iter().enumerate() {
        let cold = 0.6 * 19_000.0 / 19.0;
        assert_about(
            count,
            match to {
                5 => 0.0,
                0 | 10 | 15 => cold + 0.4 * 19_000.0 / 3.0,
                _ => cold,
            },
        );
    }
    // A single hot node sends to random nodes.
    let d = pattern("hot-spot:share=1").resolve(&groups(), 0).unwrap();
    for (to, &count) in histogram(&d, 0, 19_000).iter().enumerate() {
        assert_about(count, if to == 0 { 0.0 } else { 1000.0 });
    }
    assert_eq!(histogram(&d, 3, 1000)[0], 1000);
}

#[test]
fn permutation_is_one_cycle() {
    let d = pattern("permutation").resolve(&vec![0; 1000], 4).unwrap();
    let (mut node, mut steps) = (0, 0);
    loop {
        node = d.destination(node, steps, steps);
        steps += 1;
        if node == 0 {
            break;
        }
    }
    assert_eq!(steps, 1000);
    let other = pattern("permutation").resolve(&vec![0; 1000], 5).unwrap();
    assert!(
        (0..1000).filter(|&n| other.destination(n, 0, 0) == d.destination(n, 0, 0)).count() < 20
    );
}

#[test]
fn traffic_with_invalid_values_is_refused() {
    let spec = |message: u64, load: f64, messages: u64| {
        TrafficSpec::new(TrafficPattern::Uniform, Bytes(message), load, messages)
    };
    assert!(spec(4096, 0.3, 20).is_ok() && spec(1, 1.0, 1).is_ok());
    for (message, load, messages, part) in [
        (0, 0.3, 20, "at least one byte"),
        ((1 << 30) + 1, 0.3, 20, "at most 1 GiB"),
        (4096, 0.0, 20, "above 0 and at most 1, not 0"),
        (4096, 1.01, 20, "not 1.01"),
        (4096, -0.5, 20, "not -0.5"),
        (4096, f64::NAN, 20, "not NaN"),
        (4096, 0.3, 0, "at least one message"),
    ] {
        let error = spec(message, load, messages).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let spec = spec(4096, 0.5, 20).unwrap();
    assert!(spec.arrivals(Rate(0)).is_err());
}

#[test]
fn messages_arrive_at_the_offered_load() {
    // 4096 bytes at half of 8 GB/s: one in 1.024 us.
    let spec = TrafficSpec::new(TrafficPattern::Uniform, Bytes(4096), 0.5, 20).unwrap();
    let poisson = spec.arrivals(Rate(8_000_000_000)).unwrap();
    assert_eq!(poisson.mean(), Time(1_024_000));
    let total: u64 = (0..100_000).map(|i| poisson.gap(hash(1, 2, i)).0).sum();
    assert!((total as f64 / 100_000.0 / 1_024_000.0 - 1.0).abs() < 0.01, "{total}");
}

/// The same interval for all nodes, whatever their random numbers.
#[test]
fn periodic_messages_come_at_equal_intervals() {
    let spec = TrafficSpec::new(TrafficPattern::Uniform, Bytes(4096), 0.5, 20).unwrap();
    let periodic = spec.with_injection(Injection::Periodic).arrivals(Rate(8_000_000_000)).unwrap();
    assert!((0..100).all(|i| periodic.gap(hash(1, 2, i)) == Time(1_024_000)));
    for (name, injection) in Injection::NAMES {
        assert_eq!((name.parse(), injection.to_string().as_str()), (Ok(injection), name));
    }
    assert!("bursts".parse::<Injection>().unwrap_err().to_string().contains("random or periodic"));
}

proptest! {
    #[test]
    fn destination_is_another_node_of_the_job(
        group_of in prop::collection::vec(0_u32..6, 2..60), message: u64, random: u64, seed: u64,
        hot in 1_u32..5,
    ) {
        let mut patterns: Vec<TrafficPattern> =
            ["uniform", "nearest-group", "adversarial", "all-to-all", "halo", "permutation"]
                .map(pattern).to_vec();
        patterns.push(TrafficPattern::HotSpot { nodes: hot, share: 0.9 });
        for p in patterns {
            // Jobs in one group, or with fewer nodes than hot ones, are refused.
            let Ok(d) = p.resolve(&group_of, seed) else { continue };
            for node in 0..group_of.len() as u32 {
                let to = d.destination(node, message, random);
                prop_assert!(to < group_of.len() as u32, "{p}");
                prop_assert_ne!(to, node, "{}", p);
            }
        }
    }

    #[test]
    fn all_to_all_reaches_each_other_node_once_per_round(n in 2_u32..80, node in 0_u32..80, round in 0_u64..1000) {
        let node = node % n;
        let d = pattern("all-to-all").resolve(&vec![0; n as usize], 0).unwrap();
        let turn = u64::from(n - 1);
        let mut to: Vec<u32> = (round * turn..(round + 1) * turn).map(|m| d.destination(node, m, 0)).collect();
        to.sort_unstable();
        prop_assert_eq!(to, (0..n).filter(|&k| k != node).collect::<Vec<_>>());
    }
}
