//! Synthetic traffic, and its interference with IOR, through the public interface.

use forebay_machine::results::TrafficRun;
use forebay_machine::study::{
    InterferenceStudy, SimOptions, StudyError, find_saturation, simulate_interference,
    simulate_traffic,
};
use forebay_machine_file::machine::{Client, ClientType, Machine, Routing};
use forebay_units::{Bytes, Rate};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::{Injection, TrafficSpec};

fn spec(pattern: &str, load: f64, messages: u64) -> TrafficSpec {
    TrafficSpec::new(pattern.parse().unwrap(), Bytes(4096), load, messages).unwrap()
}

fn run(spec: &TrafficSpec, options: &SimOptions) -> TrafficRun {
    simulate_traffic(&Machine::load("toy").unwrap(), spec, options, &|_, _, _| true).unwrap()
}

#[test]
fn every_message_of_every_pattern_arrives() {
    let options = SimOptions::default();
    for pattern in
        ["uniform", "nearest-group", "adversarial", "all-to-all", "halo", "hot-spot", "permutation"]
    {
        let result = run(&spec(pattern, 0.5, 30), &options);
        let messages = u64::from(result.nodes) * 30;
        assert_eq!(result.messages_delivered, messages, "{pattern}");
        assert_eq!(result.cost.packets_delivered, messages, "{pattern}");
        assert_eq!(result.bytes_delivered, messages * 4096, "{pattern}");
        assert_eq!(result.hops_histogram.iter().sum::<u64>(), messages, "{pattern}");
        let Some(latency) = &result.latency_ns else {
            assert_eq!(result.state, "saturated", "{pattern}");
            continue;
        };
        assert!(latency.min <= latency.p50 && latency.p50 <= latency.p99, "{pattern}: {latency:?}");
        assert!(latency.p999 <= 1.02 * latency.max, "{pattern}: {latency:?}");
    }
}

/// On `toy` the numbers are round: node links 8 GB/s and 100 ns, routers 100 ns.
#[test]
fn fastest_packet_takes_the_time_calculated_by_hand() {
    let result = run(&spec("uniform", 0.001, 200), &SimOptions::default());
    assert_eq!(result.state, "steady");
    let latency = result.latency_ns.unwrap();
    // To the other node of the same router: 4,096 bytes at 8 GB/s are 512 ns; the head crosses
    // two node links and one router.
    assert_eq!(latency.min, 512.0 + 2.0 * 100.0 + 100.0);
    // To another group at most: two rank-1 (5 GB/s, 10 ns), two rank-2 (20 ns) and one rank-3
    // link (200 ns), six routers; a rank-1 link determines the tail, 819.2 ns. Packets of different
    // nodes may occasionally collide, even at this load.
    let longest = 819.2 + 2.0 * (100.0 + 10.0 + 20.0) + 200.0 + 6.0 * 100.0;
    let p50 = latency.p50;
    assert!(p50 <= longest, "{p50} of at most {longest}");
    let alone = latency.p99;
    assert!((alone / longest - 1.0).abs() < 0.02, "{alone}, {longest}");
}

/// The two nodes of a router of `toy` send to each other at half of the rate of their links: a message of
/// 512 ns every 1,024 ns. With equal intervals none waits for another; with random ones some do.
#[test]
fn periodic_messages_of_two_nodes_never_wait() {
    let latencies = |injection| {
        let spec = spec("uniform", 0.5, 400).with_injection(injection);
        let options = SimOptions { traffic_nodes: Some(2), ..SimOptions::default() };
        let result = run(&spec, &options);
        let latency = result.latency_ns.unwrap();
        (latency.min, latency.max, result.cost.simulated_seconds)
    };
    let alone = 512.0 + 2.0 * 100.0 + 100.0;
    let (min, max, seconds) = latencies(Injection::Periodic);
    assert_eq!((min, max), (alone, alone));
    // The last of 400 messages is sent after 400 intervals; the last credit returns with a batch.
    let after = seconds * 1e9 - (400.0 * 1_024.0 + alone);
    assert!((0.0..200.0).contains(&after), "{after} ns after the last packet");
    assert!(latencies(Injection::Random).1 > 1.5 * alone);
}

#[test]
fn long_messages_are_cut_into_packets_and_arrive_completely() {
    let mut long = spec("uniform", 0.4, 10);
    long.message = Bytes(50_000);
    let result = run(&long, &SimOptions::default());
    assert_eq!(result.messages_delivered, u64::from(result.nodes) * 10);
    assert_eq!(result.cost.packets_delivered, result.messages_delivered * 13);
    assert_eq!(result.bytes_delivered, result.messages_delivered * 50_000);
}

#[test]
fn light_load_is_accepted_and_adversarial_load_needs_detours() {
    let light = run(&spec("uniform", 0.1, 400), &SimOptions::default());
    assert!((light.accepted_load - 0.1).abs() < 0.01, "{}", light.accepted_load);
    let with = |routing| {
        let options = SimOptions { routing: Some(routing), ..SimOptions::default() };
        run(&spec("adversarial", 0.5, 400), &options)
    };
    let (minimal, valiant) = (with(Routing::Minimal), with(Routing::Valiant));
    let adaptive = with(Routing::ProgressiveAdaptive);
    // 14 nodes of a group of toy share one link of 20 GB/s: 0.18 of their own links. On so small
    // a machine detours need a third of all links; Valiant's are unconditional and gain little.
    assert!(minimal.accepted_load < 0.18, "{}", minimal.accepted_load);
    assert!(adaptive.accepted_load > 1.4 * minimal.accepted_load, "{}", adaptive.accepted_load);
    assert_eq!(minimal.nonminimal_share, 0.0);
    assert!(valiant.nonminimal_share > 0.9);
}

#[test]
fn results_depend_on_the_seed_and_not_on_the_number_of_threads() {
    let result = |threads, seed| {
        let mut result =
            run(&spec("uniform", 0.3, 200), &SimOptions { threads, seed, ..SimOptions::default() });
        result.cost.wall_seconds = 0.0;
        result.startup_seconds = 0.0;
        result.packets_per_second = 0.0;
        result.cost.peak_rss_bytes = 0;
        result.cost.threads = 0;
        result
    };
    let one = result(1, 1);
    for threads in [2, 3, 4] {
        assert_eq!(result(threads, 1), one, "{threads} threads");
    }
    assert_ne!(result(1, 2).latency_ns, one.latency_ns);
}

#[test]
fn utilisation_over_time_adds_up_to_the_bytes_of_each_class() {
    let result = run(&spec("uniform", 0.5, 300), &SimOptions::default());
    let interval = result.series.seconds[1] - result.series.seconds[0];
    for class in &result.links {
        let (_, values) =
            result.series.columns.iter().find(|(name, _)| *name == class.class).unwrap();
        let over_time: f64 = values.iter().sum::<f64>() * interval;
        let mean = class.mean_utilisation * result.cost.simulated_seconds;
        assert!(mean > 0.0);
        assert!((over_time / mean - 1.0).abs() < 0.01, "{}: {over_time} {mean}", class.class);
    }
}

#[test]
fn traffic_and_ior_slow_each_other() {
    let arguments: Vec<String> = "-w -F -t 1m -b 8m".split(' ').map(String::from).collect();
    let ior = Ior::parse(&arguments).unwrap().remove(0);
    let study = InterferenceStudy {
        ior,
        ior_nodes: 16,
        ppn: 4,
        traffic: spec("uniform", 0.4, 200),
        traffic_nodes: 30,
        traffic_placement: Placement::RandomNodes,
    };
    let result = simulate_interference(
        &Machine::load("toy").unwrap(),
        &study,
        &SimOptions { placement: Placement::RandomNodes, ..SimOptions::default() },
        &|_, _, _| true,
    )
    .unwrap();
    assert_eq!(result.ior_alone.phases[0].bytes, result.ior_together.phases[0].bytes);
    assert!(
        result.ior_rate_ratio > 0.0 && result.ior_rate_ratio <= 1.02,
        "{}",
        result.ior_rate_ratio
    );
    let ratio = result.traffic_latency_ratio.unwrap();
    assert!(ratio > 1.01, "{ratio}");
    // Both are measured over the same time, in which about the same is offered.
    let (alone, together) = (&result.traffic_alone, &result.traffic_together);
    assert_eq!(alone.window_seconds, together.window_seconds);
    assert!((alone.window_offered_load / together.window_offered_load - 1.0).abs() < 0.01);
}

/// 56 nodes of 8 GB/s; the window is half of the time in which the messages are generated.
#[test]
fn accepted_load_is_the_offered_one_and_consistent_with_the_whole_run() {
    let run = run(&spec("uniform", 0.2, 1_000), &SimOptions::default());
    assert_eq!(run.state, "steady");
    assert!((run.window_offered_load - 0.2).abs() < 0.005, "{}", run.window_offered_load);
    assert!((run.accepted_load / run.window_offered_load - 1.0).abs() < 0.005);
    // The last node ends later than the mean; until then fewer and fewer send.
    assert!(run.run_load < run.accepted_load && run.run_load > 0.8 * run.accepted_load);
    let whole = run.bytes_delivered as f64 / run.cost.simulated_seconds / (56.0 * 8e9);
    assert!((run.run_load / whole - 1.0).abs() < 1e-6);
    let [from, to] = run.window_seconds;
    let span = 1_000.0 * 4096.0 / (0.2 * 8e9);
    assert!(from >= 0.2 * span && to <= 0.7 * span && to > 0.6 * span, "{from} {to} {span}");
    assert!(run.warnings.is_empty(), "{:?}", run.warnings);
}

/// `toy` with links within groups that are much faster than the one link between two groups, and
/// buffers that keep it busy: under adversarial traffic and minimal routing, the 14 nodes of a group
/// share 20 GB/s, 0.179 of their own links' 8 GB/s.
fn toy_bound_by_global_links() -> (Machine, f64) {
    let mut machine = Machine::load("toy").unwrap();
    let network = &mut machine.network;
    for link in [&mut network.rank1, &mut network.rank2] {
        link.rate = Rate(200_000_000_000);
    }
    for link in [&mut network.node, &mut network.rank1, &mut network.rank2, &mut network.global] {
        link.buffer = Bytes::mib(1);
    }
    network.routing.algorithm = Routing::Minimal;
    (machine, 20.0 / (14.0 * 8.0))
}

#[test]
fn overloaded_network_is_saturated_and_has_no_latency() {
    let (machine, bound) = toy_bound_by_global_links();
    let options = SimOptions::default();
    let spec = spec("adversarial", 0.5, 500);
    let run = simulate_traffic(&machine, &spec, &options, &|_, _, _| true).unwrap();
    assert_eq!(run.state, "saturated");
    assert_eq!(run.latency_ns, None);
    assert!(run.backlog_bytes[1] > run.backlog_bytes[0]);
    assert!((run.accepted_load / bound - 1.0).abs() < 0.03, "{} {bound}", run.accepted_load);
    assert!(run.warnings[0].starts_with("saturated"), "{:?}", run.warnings);
}

#[test]
fn saturation_search_finds_the_load_calculated_by_hand() {
    let (machine, expected) = toy_bound_by_global_links();
    let options = SimOptions::default();
    let spec = spec("adversarial", 1.0, 1_000);
    let run = find_saturation(&machine, &spec, &options, &|_, _, _| true).unwrap();
    let search = run.saturation.unwrap();
    assert!((search.accepted / expected - 1.0).abs() < 0.08, "{} {expected}", search.accepted);
    let refused = search.refused.unwrap();
    assert!(refused > search.accepted && refused - search.accepted <= 1.0 / 128.0 + 1e-9);
    assert_eq!(run.offered_load, search.accepted);
    assert_ne!(run.state, "saturated");
}

#[test]
fn all_to_all_with_fewer_messages_than_nodes_warns() {
    let few = run(&spec("all-to-all", 0.2, 20), &SimOptions::default());
    assert!(few.warnings.iter().any(|w| w.contains("--messages 55")), "{:?}", few.warnings);
    let all = run(&spec("all-to-all", 0.2, 55), &SimOptions::default());
    assert!(!all.warnings.iter().any(|w| w.contains("all-to-all")), "{:?}", all.warnings);
}

#[test]
fn selected_groups_and_number_of_nodes_send() {
    let machine = Machine::load("toy").unwrap();
    // Minimal routing: detours would cross other groups.
    let options = SimOptions {
        routing: Some(Routing::Minimal),
        groups: Some((1, 2)),
        traffic_nodes: Some(20),
        ..SimOptions::default()
    };
    let run = run(&spec("uniform", 0.2, 50), &options);
    assert_eq!(run.nodes, 20);
    for (from, row) in run.heat.iter().enumerate() {
        for (to, bytes) in row.iter().enumerate() {
            let selected = |group| (1..=2).contains(&group);
            assert!(*bytes == 0 || (selected(from) && selected(to)), "{from} {to} {bytes}");
        }
    }
    let wrong = SimOptions { groups: Some((2, 9)), ..SimOptions::default() };
    let error = simulate_traffic(&machine, &spec("uniform", 0.2, 5), &wrong, &|_, _, _| true);
    assert!(error.unwrap_err().to_string().contains("groups 0 to 3"));
}

/// On `toy` with the nodes of groups 2 and 3 of another type.
#[test]
fn nodes_of_a_type_are_selected_and_a_wrong_type_lists_those_of_the_machine() {
    let mut machine = Machine::load("toy").unwrap();
    let knl = Client { name: "knl".into(), ..machine.client.clone() };
    machine.client.name = "haswell".into();
    machine.client_types =
        vec![ClientType { first_group: 2, last_group: 3, nodes: 28, client: knl }];
    let with = |groups, kind: &str| {
        let options = SimOptions {
            routing: Some(Routing::Minimal),
            groups,
            node_kind: Some(kind.into()),
            ..SimOptions::default()
        };
        simulate_traffic(&machine, &spec("uniform", 0.2, 20), &options, &|_, _, _| true)
    };
    let run = with(None, "knl").unwrap();
    assert_eq!(run.nodes, 28);
    assert!(run.heat[0].iter().chain(&run.heat[1]).all(|bytes| *bytes == 0), "{:?}", run.heat);
    assert_eq!(with(Some((1, 2)), "knl").unwrap().nodes, 14);
    let error = with(None, "KNL").unwrap_err().to_string();
    assert!(error.contains("haswell (28 nodes) and knl (28 nodes)"), "{error}");
    let error = with(Some((0, 1)), "knl").unwrap_err().to_string();
    assert!(error.contains("no knl nodes in the groups 0 to 1"), "{error}");
}

#[test]
fn interrupted_study_returns_an_error() {
    let machine = Machine::load("toy").unwrap();
    let outcome = simulate_traffic(
        &machine,
        &spec("uniform", 0.5, 5_000),
        &SimOptions::default(),
        &|_, _, _| false,
    );
    assert_eq!(outcome.unwrap_err(), StudyError::Interrupted);
}

/// Adversarial traffic on a larger machine: two cables of 12.19 GB/s between two groups.
#[test]
fn detours_spread_adversarial_traffic_over_all_groups() {
    let mut machine = Machine::load("trinity-phase2").unwrap();
    machine.network.groups = 8;
    machine.nodes.retain(|n| n.router < 8 * 96);
    let with = |routing| {
        let options = SimOptions { routing: Some(routing), ..SimOptions::default() };
        simulate_traffic(&machine, &spec("adversarial", 0.04, 40), &options, &|_, _, _| true)
            .unwrap()
    };
    let minimal = with(Routing::Minimal);
    // 360 nodes of 8 GB/s share the cables: 0.0085 of their own.
    assert!(minimal.accepted_load < 0.0086, "{}", minimal.accepted_load);
    // UGAL-L sees the congestion of the gateways late, in the queues of the source router only.
    for (routing, least) in
        [(Routing::Valiant, 2.5), (Routing::UgalL, 2.0), (Routing::ProgressiveAdaptive, 2.5)]
    {
        let other = with(routing);
        let gain = other.accepted_load / minimal.accepted_load;
        assert!(gain > least, "{routing:?}: {gain}");
    }
}

/// On Theta at a load that its global links can just carry, adaptive routing without bias delivers
/// as much as minimal routing.
#[test]
fn adaptive_routing_equals_minimal_routing_under_uniform_traffic() {
    let machine = Machine::load("theta").unwrap();
    let accepted = |routing| {
        let options = SimOptions { routing: Some(routing), ..SimOptions::default() };
        simulate_traffic(&machine, &spec("uniform", 0.6, 25), &options, &|_, _, _| true)
            .unwrap()
            .accepted_load
    };
    let minimal = accepted(Routing::Minimal);
    for routing in [Routing::UgalL, Routing::ProgressiveAdaptive] {
        let ratio = accepted(routing) / minimal;
        assert!(ratio > 0.97, "{routing:?}: {ratio}");
    }
}
