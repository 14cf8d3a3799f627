//! IOR on a dragonfly+ and a fat tree: packets and flows, against each other and calculations by hand.

use forebay_machine::results::{IorPoint, Phase};
use forebay_machine::study::{Fidelity, SimOptions, forecast_ior, simulate_ior};
use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;
use forebay_workload::ior::Ior;

const FIDELITIES: [Fidelity; 2] = [Fidelity::Packet, Fidelity::Flow];

fn ior(line: &str) -> Ior {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&arguments).unwrap().remove(0)
}

fn with(name: &str, settings: &[(&str, &str)]) -> Machine {
    let settings: Vec<Setting> = settings
        .iter()
        .map(|(key, value)| Setting { key: (*key).into(), value: (*value).into() })
        .collect();
    Machine::load_with(name, &settings).unwrap()
}

fn run(machine: &Machine, nodes: u32, fidelity: Fidelity, line: &str) -> IorPoint {
    let options = SimOptions { fidelity, ..SimOptions::default() };
    simulate_ior(machine, &ior(line), nodes, 1, &options, &|_, _, _| true).unwrap()
}

fn assert_close(value: f64, expected: f64, percent: f64, what: &str) {
    let error = (value / expected - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{what}: {value}, not {expected}: {error:+.2}%");
}

fn pairs(machine: &Machine, nodes: u32, line: &str) -> Vec<(Phase, Phase)> {
    let [packets, flows] = FIDELITIES.map(|fidelity| run(machine, nodes, fidelity, line).phases);
    packets.into_iter().zip(flows).collect()
}

#[test]
fn lone_process_is_as_fast_with_flows_as_with_packets() {
    for name in ["toy-plus", "toy-tree"] {
        for (packets, flows) in pairs(&Machine::load(name).unwrap(), 1, "-F -w -r -t 512k -b 16m") {
            assert_close(flows.gbps, packets.gbps, 2.0, name);
            assert_eq!(flows.limit.resource, "client");
        }
    }
}

/// With as many links as nodes the network is not the limit: all rates are those of the dragonfly toy.
#[test]
fn many_processes_are_limited_by_flash_on_both_fabrics() {
    let dragonfly = run(&with("toy", &[]), 56, Fidelity::Packet, "-F -w -t 512k -b 16m");
    for name in ["toy-plus", "toy-tree"] {
        for (packets, flows) in pairs(&with(name, &[]), 56, "-F -w -t 512k -b 16m") {
            assert_close(packets.gbps, dragonfly.phases[0].gbps, 3.0, name);
            assert_close(flows.gbps, packets.gbps, 16.0, name);
            assert_eq!(
                (packets.limit.resource.as_str(), flows.limit.resource.as_str()),
                ("ssd", "ssd")
            );
        }
    }
}

/// Links of 0.2 GB/s between leaves and spines: 4 of them lead down to the leaf of each of 4 servers,
/// 3.2 GB/s together; flash could take 7.8 GB/s.
#[test]
fn links_down_to_the_leaves_of_servers_limit_writes() {
    let slow = ("network.rank1.tile_rate", "0.2 GB/s");
    for name in ["toy-plus", "toy-tree"] {
        let machine = with(name, &[slow]);
        for (packets, flows) in pairs(&machine, 56, "-F -w -t 512k -b 8m") {
            let steady = flows.steady_gbps.unwrap();
            assert_close(steady, 3.2, 4.0, name);
            assert!(flows.limit.because.contains("down to leaf"), "{}", flows.limit.because);
            assert_eq!(flows.limit.resource, "local-link");
            let of_packets = packets.steady_gbps.unwrap();
            assert!(of_packets < 3.2 && of_packets > 0.75 * 3.2, "{name}: {of_packets} GB/s");
        }
    }
}

/// The 14 nodes of group 0 write to the servers of 4 groups; three quarters of the data leave the group
/// over its 8 links of 0.1 GB/s to core routers: 0.8 / 0.75 GB/s in all. Of the first stripes of all nodes those to the
/// server of their own group end before the others: with two stripes of each node less than a quarter of the middle of
/// the bytes stays in the group, and its rate is lower than that of the phase; with eight the shares are nearly the same.
#[test]
fn links_to_core_routers_limit_the_writes_of_one_group() {
    let machine = with("toy-tree", &[("network.global.tile_rate", "25 MB/s")]);
    let by_hand = 0.8 / 0.75;
    for (line, is_long) in [("-F -w -t 512k -b 16m", false), ("-F -w -t 512k -b 64m", true)] {
        for (packets, flows) in pairs(&machine, 14, line) {
            assert_eq!(flows.limit.resource, "global-link", "{}", flows.limit.because);
            assert_close(flows.gbps, by_hand, 1.5, "flows, phase");
            assert_close(packets.gbps, by_hand, 1.5, "packets, phase");
            let [steady, of_packets] = [&flows, &packets].map(|phase| phase.steady_gbps.unwrap());
            assert_close(steady, of_packets, 5.0, "flows and packets");
            assert!(of_packets < 1.02 * by_hand && of_packets > 0.75 * by_hand, "{of_packets}");
            if is_long {
                assert_close(steady, by_hand, 5.0, "flows, steady");
            }
        }
    }
}

#[test]
fn forecast_counts_the_links_of_a_fat_trees_paths() {
    let events = |name: &str| {
        let test = ior("-F -w -t 512k -b 8m");
        let options = SimOptions::default();
        let machine = Machine::load(name).unwrap();
        let forecast = forecast_ior(&machine, &test, 16, 1, &options).unwrap();
        let real = simulate_ior(&machine, &test, 16, 1, &options, &|_, _, _| true).unwrap();
        // As for other machines, within a factor of two.
        let ratio = forecast.events / real.run.events as f64;
        assert!((0.5..=2.0).contains(&ratio), "{name}: {ratio}");
        forecast.events
    };
    assert!(events("toy-tree") > events("toy-plus"));
}
