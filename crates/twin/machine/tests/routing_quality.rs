//! Throughput of adaptive routing, compared with bounds and with minimal and Valiant routing.

use forebay_machine::results::TrafficRun;
use forebay_machine::study::{SimOptions, simulate_traffic};
use forebay_machine_file::Setting;
use forebay_machine_file::machine::{Machine, Routing};
use forebay_units::Bytes;
use forebay_workload::traffic::TrafficSpec;

/// `toy` with 9 groups of 14 compute nodes of 8 GB/s, one link of 10 GB/s between each two groups, and
/// links of 10 and 20 GB/s within.
fn nine_groups() -> Machine {
    let settings = [
        ("network.groups", "9"),
        ("network.rank1.tile_rate", "10 GB/s"),
        ("network.rank2.tile_rate", "10 GB/s"),
        ("network.global.tile_rate", "2.5 GB/s"),
    ]
    .map(|(key, value)| Setting { key: key.into(), value: value.into() });
    Machine::load_with("toy", &settings).unwrap()
}

fn traffic(pattern: &str, routing: Routing, load: f64) -> TrafficRun {
    // As many messages as a node of 8 GB/s sends in 600 us.
    let messages = (600e-6 * load * 8e9 / 4096.0) as u64;
    let spec = TrafficSpec::new(pattern.parse().unwrap(), Bytes(4096), load, messages).unwrap();
    let options = SimOptions { routing: Some(routing), ..SimOptions::default() };
    simulate_traffic(&nine_groups(), &spec, &options, &|_, _, _| true).unwrap()
}

const ADAPTIVE: [Routing; 2] = [Routing::UgalL, Routing::ProgressiveAdaptive];

/// Minimal routing sends all of a group by one link: 10 of 14 x 8 GB/s. Valiant's detours use all eight
/// links of a group, each packet two: 40 of 112 GB/s at most. Adaptive routing may use the minimal
/// path as well: (8 + 1) / 2 x 10 GB/s at most.
#[test]
fn adaptive_routing_accepts_adversarial_traffic_as_valiant_does() {
    let minimal = traffic("adversarial", Routing::Minimal, 0.5).accepted_load;
    assert!((minimal / (10.0 / 112.0) - 1.0).abs() < 0.02, "{minimal}");
    let valiant = traffic("adversarial", Routing::Valiant, 0.5).accepted_load;
    assert!(valiant > 0.8 * 40.0 / 112.0 && valiant < 40.0 / 112.0, "{valiant}");
    for routing in ADAPTIVE {
        let adaptive = traffic("adversarial", routing, 0.5).accepted_load;
        assert!(adaptive > 0.95 * valiant && adaptive <= 45.0 / 112.0, "{routing:?}: {adaptive}");
    }
}

/// Of 126 nodes 112 are in other groups: minimal routing needs 112 / 125 of a node's rate on the
/// global links, which have 80 of 112 GB/s, and accepts 0.797 at most.
#[test]
fn adaptive_routing_accepts_uniform_overload_as_minimal_routing_does() {
    let bound = 80.0 / 112.0 * 125.0 / 112.0;
    let minimal = traffic("uniform", Routing::Minimal, 1.0).accepted_load;
    assert!(minimal > 0.95 * bound && minimal < bound, "{minimal} of {bound}");
    for routing in ADAPTIVE {
        let adaptive = traffic("uniform", routing, 1.0).accepted_load;
        assert!(adaptive > 0.95 * minimal, "{routing:?}: {adaptive}, minimal {minimal}");
    }
}

#[test]
fn accepted_load_does_not_fall_past_saturation() {
    for (pattern, loads) in [("uniform", [0.7, 0.8, 1.0]), ("adversarial", [0.35, 0.5, 1.0])] {
        for routing in ADAPTIVE {
            let accepted = loads.map(|load| traffic(pattern, routing, load).accepted_load);
            let most = accepted.iter().fold(0.0, |a: f64, b| a.max(*b));
            assert!(accepted[2] > 0.97 * most, "{pattern} {routing:?}: {accepted:?}");
        }
    }
}
