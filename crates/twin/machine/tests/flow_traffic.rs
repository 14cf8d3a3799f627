//! Traffic with flows, by hand on the machine `toy`, and beside packets.

use forebay_machine::results::{InterferenceRun, TrafficRun};
use forebay_machine::study::{
    Fidelity, InterferenceStudy, SimOptions, fidelity_of_collective, fidelity_of_interference,
    fidelity_of_traffic, find_saturation, simulate_interference, simulate_ior, simulate_traffic,
};
use forebay_machine_file::machine::{Machine, Routing};
use forebay_units::{Bytes, Rate};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::TrafficSpec;

fn toy() -> Machine {
    Machine::load("toy").unwrap()
}

fn spec(pattern: &str, load: f64) -> TrafficSpec {
    TrafficSpec::new(pattern.parse().unwrap(), Bytes(4096), load, 400).unwrap()
}

fn with(fidelity: Fidelity, routing: Routing) -> SimOptions {
    SimOptions { fidelity, routing: Some(routing), ..SimOptions::default() }
}

fn run(spec: &TrafficSpec, options: &SimOptions) -> TrafficRun {
    simulate_traffic(&toy(), spec, options, &|_, _, _| true).unwrap()
}

fn flows(pattern: &str, load: f64, routing: Routing) -> TrafficRun {
    let run = run(&spec(pattern, load), &with(Fidelity::Flow, routing));
    assert_eq!((run.fidelity.as_str(), run.nodes, run.latency_ns.is_none()), ("flow", 56, true));
    assert!(!run.left_out.is_empty());
    run
}

fn assert_near(value: f64, expected: f64, percent: f64) {
    let error = (value / expected - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{value} instead of {expected}: {error:+.3}%");
}

/// Detours cross other links between groups than the direct ones, and links within the group in their middle.
#[test]
fn bytes_and_hops_of_detours_are_counted_as_with_packets() {
    let of_global = |run: &TrafficRun| {
        let class = run.links.iter().find(|class| class.class == "global").unwrap();
        (class.links, class.bytes as f64 / run.bytes_delivered as f64)
    };
    let [packets, flows] = [Fidelity::Packet, Fidelity::Flow].map(|fidelity| {
        run(&spec("adversarial", 0.3), &with(fidelity, Routing::ProgressiveAdaptive))
    });
    assert_eq!((of_global(&packets).0, of_global(&flows).0), (12, 12));
    assert_near(of_global(&flows).1, of_global(&packets).1, 3.0);
    assert_near(flows.hops_mean, packets.hops_mean, 5.0);
}

#[test]
fn flows_that_fill_links_between_groups_have_a_warning() {
    let warnings = flows("adversarial", 0.5, Routing::Minimal).warnings;
    assert!(
        warnings.iter().any(|w| w.contains("100% of the rate of a global link")),
        "{warnings:?}"
    );
    assert_eq!(flows("adversarial", 0.1, Routing::Minimal).warnings, [""; 0]);
}

/// Node links have 8 GB/s. 14 nodes of a group share the one link of 20 GB/s to the next group: 0.179 of
/// their own. Valiant's detours cross two of the 12 links between groups, which carry 240 GB/s: 56 nodes
/// have 2.14 GB/s each, 0.268.
#[test]
fn adversarial_traffic_is_accepted_as_far_as_links_between_groups_carry_it() {
    let minimal = flows("adversarial", 0.5, Routing::Minimal);
    assert_near(minimal.accepted_load, 20.0 / 14.0 / 8.0, 0.001);
    assert_eq!((minimal.state.as_str(), minimal.nonminimal_share), ("saturated", 0.0));
    let valiant = flows("adversarial", 0.5, Routing::Valiant);
    assert_near(valiant.accepted_load, 240.0 / 2.0 / 56.0 / 8.0, 0.001);
    assert_near(valiant.nonminimal_share, 1.0, 0.001);
    // A detour for what the direct links cannot carry: x on them, and twice the rest, fill all links:
    // 80 + 2 (56 r - 80) = 240, that is 2.86 GB/s a node.
    let adaptive = flows("adversarial", 0.5, Routing::ProgressiveAdaptive);
    assert!(adaptive.accepted_load > valiant.accepted_load, "{}", adaptive.accepted_load);
    assert!(adaptive.accepted_load <= 160.0 / 56.0 / 8.0 * 1.001, "{}", adaptive.accepted_load);
    let light = flows("adversarial", 0.1, Routing::Minimal);
    assert_near(light.accepted_load, 0.1, 0.001);
    assert_eq!(light.state, "steady");
}

/// By hand: a group's 14 nodes of 8 GB/s send 14 of 55 parts of their bytes to each other group, over a link of
/// 20 GB/s: it is full at 20 / (14 * 8 * 14 / 55), a load of 0.70, and then each detour would take two links.
#[test]
fn load_beyond_saturation_does_not_make_detours_for_what_is_not_accepted() {
    let by_hand = 20.0 / (14.0 * 8.0 * 14.0 / 55.0);
    for load in [0.8, 1.0] {
        let run = flows("uniform", load, Routing::ProgressiveAdaptive);
        assert_near(run.accepted_load, by_hand, 4.0);
        assert!(run.nonminimal_share < 0.05, "{}", run.nonminimal_share);
    }
    // Adversarial traffic needs them: 160 GB/s, see above, also if more is offered.
    let run = flows("adversarial", 1.0, Routing::ProgressiveAdaptive);
    assert_near(run.accepted_load, 160.0 / 56.0 / 8.0, 2.0);
}

#[test]
fn saturated_traffic_has_a_warning_and_no_mean_above_its_greatest() {
    for (pattern, load, routing) in [
        ("uniform", 1.0, Routing::ProgressiveAdaptive),
        ("uniform", 1.0, Routing::Valiant),
        ("adversarial", 0.5, Routing::ProgressiveAdaptive),
        ("adversarial", 0.3, Routing::Valiant),
    ] {
        let run = flows(pattern, load, routing);
        for class in &run.links {
            let (mean, most) = (class.mean_utilisation, class.max_utilisation);
            assert!(mean <= most * (1.0 + 1e-9), "{pattern} {load} {routing:?}: {class:?}");
        }
        for text in ["saturated: ", "of the rate of a global link"] {
            assert!(run.warnings.iter().any(|w| w.contains(text)), "{:?}", run.warnings);
        }
    }
    let light = flows("uniform", 0.3, Routing::ProgressiveAdaptive);
    assert_eq!(light.warnings, [""; 0]);
}

/// All nodes send to node 0, whose link has 8 GB/s: 55 share it; node 0 itself sends to the others.
#[test]
fn one_hot_node_receives_at_the_rate_of_its_link() {
    let run = flows("hot-spot:nodes=1,share=1", 0.25, Routing::Minimal);
    assert_near(run.accepted_load, (8.0 + 2.0) / (56.0 * 8.0), 1.0);
}

/// 400 messages of 4 KiB from each of 56 nodes, all of which send 2.4 GB/s.
#[test]
fn light_traffic_is_accepted_completely_and_its_bytes_are_those_of_the_messages() {
    for pattern in ["uniform", "nearest-group", "adversarial", "all-to-all", "halo", "permutation"]
    {
        let run = flows(pattern, 0.1, Routing::Minimal);
        assert_near(run.accepted_load, 0.1, 0.001);
        assert_eq!(run.messages_delivered, 400 * 56, "{pattern}");
        assert_eq!(run.bytes_delivered, 400 * 56 * 4096, "{pattern}");
        assert_near(run.cost.simulated_seconds, 400.0 * 4096.0 / 0.8e9, 0.001);
    }
}

/// The lengths of paths and the accepted load of uniform traffic are those of packets.
#[test]
fn uniform_traffic_crosses_as_many_links_as_with_packets() {
    let of = |fidelity, load| run(&spec("uniform", load), &with(fidelity, Routing::Minimal));
    let (packets, flows) = (of(Fidelity::Packet, 0.3), of(Fidelity::Flow, 0.3));
    assert_near(flows.hops_mean, packets.hops_mean, 3.0);
    assert_near(flows.accepted_load, packets.accepted_load, 3.0);
}

/// A limit of 1 GB/s is an eighth of a node's link, whatever the nodes offer, at both fidelities.
#[test]
fn rate_limit_is_the_load_of_a_job_that_offers_more() {
    let limited = spec("uniform", 0.5).with_rate_limit(Some(Rate(1_000_000_000))).unwrap();
    for fidelity in [Fidelity::Packet, Fidelity::Flow] {
        let run = run(&limited, &with(fidelity, Routing::Minimal));
        assert_near(run.accepted_load, 0.125, 2.0);
        assert_eq!(run.state, "saturated", "{fidelity:?}");
    }
    let unused = spec("uniform", 0.1).with_rate_limit(Some(Rate(2_000_000_000))).unwrap();
    let run = run(&unused, &with(Fidelity::Packet, Routing::Minimal));
    assert_near(run.accepted_load, 0.1, 10.0);
    assert!(spec("uniform", 0.5).with_rate_limit(Some(Rate(10))).is_err());
}

#[test]
fn search_with_flows_finds_the_load_calculated_by_hand() {
    let options = with(Fidelity::Flow, Routing::Minimal);
    let found = find_saturation(&toy(), &spec("adversarial", 0.5), &options, &|_, _, _| true);
    let search = found.unwrap().saturation.unwrap();
    let by_hand = 20.0 / 14.0 / 8.0;
    // A load is accepted if at least 98% of it are.
    assert!(search.accepted <= by_hand / 0.98, "{}", search.accepted);
    assert!(search.accepted >= by_hand - 1.0 / 64.0, "{}", search.accepted);
}

#[test]
fn automatic_fidelity_takes_packets_where_they_are_cheap_or_flows_impossible() {
    let auto = |pattern: &str, messages, options: SimOptions| {
        let spec = TrafficSpec { messages, ..spec(pattern, 0.3) };
        fidelity_of_traffic(&toy(), &spec, &options).unwrap()
    };
    let options = with(Fidelity::Auto, Routing::Minimal);
    assert_eq!(auto("uniform", 400, options.clone()), Fidelity::Packet);
    assert_eq!(auto("uniform", 10_000_000, options.clone()), Fidelity::Flow);
    let links = SimOptions { each_link: true, ..options.clone() };
    assert_eq!(auto("uniform", 10_000_000, links), Fidelity::Packet);
    assert_eq!(fidelity_of_collective(&options).unwrap(), Fidelity::Packet);
    let refused = fidelity_of_collective(&with(Fidelity::Flow, Routing::Minimal)).unwrap_err();
    assert!(refused.to_string().contains("--fidelity packet"), "{refused}");
    let links = SimOptions { each_link: true, ..with(Fidelity::Flow, Routing::Minimal) };
    let refused = simulate_traffic(&toy(), &spec("uniform", 0.3), &links, &|_, _, _| true);
    assert!(refused.unwrap_err().to_string().contains("--fidelity packet"));
}

fn beside(nodes: u32, pattern: &str, load: f64, line: &str, fidelity: Fidelity) -> InterferenceRun {
    beside_traffic(nodes, spec(pattern, load), line, fidelity)
}

fn beside_traffic(
    nodes: u32,
    traffic: TrafficSpec,
    line: &str,
    fidelity: Fidelity,
) -> InterferenceRun {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    let study = InterferenceStudy {
        ior: Ior::parse(&arguments).unwrap().remove(0),
        ior_nodes: nodes,
        ppn: 1,
        traffic,
        traffic_nodes: 56 - nodes,
        traffic_placement: Placement::Contiguous,
    };
    let options = with(fidelity, Routing::Minimal);
    assert_eq!(fidelity_of_interference(&toy(), &study, &options).unwrap(), fidelity);
    let run = simulate_interference(&toy(), &study, &options, &|_, _, _| true).unwrap();
    assert_eq!(run.fidelity, fidelity.name());
    run
}

/// A node with a limit of 1 MB/s sends little between two changes of the rates of the I/O.
#[test]
fn slow_traffic_keeps_its_rate_beside_a_run_that_fills_links() {
    let slow = spec("uniform", 0.5).with_rate_limit(Some(Rate(1_000_000))).unwrap();
    let run = beside_traffic(28, slow, "-F -w -t 1m -b 64m", Fidelity::Flow);
    assert_near(run.traffic_together.accepted_load, 1e6 / 8e9, 1.0);
}

/// One process in group 0 writes its stripes in turn to the storage nodes of the four groups. Traffic of the
/// 13 other nodes goes to group 1 over the same link of 20 GB/s, of which each of the 14 has 1.43 GB/s: that
/// is the rate of a quarter of the stripes, and of each node with traffic in the meantime.
#[test]
fn run_beside_traffic_has_its_share_of_the_link_calculated_by_hand() {
    let run = beside(1, "adversarial", 0.5, "-F -w -t 2m -b 256m", Fidelity::Flow);
    let alone = &run.ior_alone.phases[0];
    let rate = alone.bytes as f64 / 1e9 / alone.transfer_seconds;
    let share = 20.0 / 14.0;
    assert!(rate > share, "{rate} GB/s alone");
    let by_hand = alone.transfer_seconds * (0.75 + 0.25 * rate / share);
    assert_near(run.ior_together.phases[0].transfer_seconds, by_hand, 1.0);
    // 13 nodes have 20 GB/s alone; the 42 of the other groups 20 GB/s each three.
    assert_near(run.traffic_alone.accepted_load, 80.0 / 55.0 / 8.0, 0.1);
    let slow = 0.25 * rate / share / (0.75 + 0.25 * rate / share);
    let together = (60.0 + 20.0 * (1.0 - slow / 14.0)) / 55.0 / 8.0;
    assert_near(run.traffic_together.accepted_load, together, 0.2);
    assert_eq!(run.traffic_latency_ratio, None);
}

/// A phase with few requests has the time that it has request by request, and beside traffic that of other links,
/// which none of its messages cross, no other.
#[test]
fn run_with_few_requests_has_their_times_beside_traffic_too() {
    let line = "-F -w -r -t 4m -b 8m";
    let run = beside(8, "uniform", 0.01, line, Fidelity::Flow);
    let options = with(Fidelity::Flow, Routing::Minimal);
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    let ior = Ior::parse(&arguments).unwrap().remove(0);
    let alone = simulate_ior(&toy(), &ior, 8, 1, &options, &|_, _, _| true).unwrap();
    for (phase, found) in alone.phases.iter().zip(&run.ior_alone.phases) {
        assert_near(found.transfer_seconds, phase.transfer_seconds, 0.5);
    }
    assert_near(run.ior_rate_ratio, 1.0, 0.5);
}

/// Packets also wait in queues, which flows leave out: on `toy`, the rate falls to 0.80 with packets and not
/// with flows, whose processes use other servers in the meantime (settled in view).
#[test]
fn light_traffic_does_not_slow_down_io_and_flows_are_not_slower_than_packets() {
    let line = "-F -w -t 512k -b 8m";
    let light = beside(8, "uniform", 0.05, line, Fidelity::Flow);
    assert_near(light.ior_rate_ratio, 1.0, 0.1);
    let of = |fidelity| beside(8, "adversarial", 0.5, line, fidelity).ior_rate_ratio;
    let (packets, flows) = (of(Fidelity::Packet), of(Fidelity::Flow));
    assert!(packets < 0.95, "the traffic disturbs: {packets}");
    assert!((packets - 0.02..packets + 0.25).contains(&flows), "flows {flows}, packets {packets}");
}

#[test]
fn results_with_flows_are_the_same_in_each_run_and_on_any_number_of_threads() {
    let result = |threads| {
        let options = SimOptions { threads, ..with(Fidelity::Flow, Routing::ProgressiveAdaptive) };
        let run = run(&spec("uniform", 0.9), &options);
        (run.accepted_load, run.hops_mean, run.nonminimal_share, run.links)
    };
    assert_eq!(result(1), result(4));
}
