//! Estimates of the work of a simulation, against the events that it has.

use forebay_machine::study::{
    SimOptions, forecast_ior, forecast_traffic, simulate_ior, simulate_traffic,
};
use forebay_machine_file::machine::{Machine, Routing};
use forebay_units::Bytes;
use forebay_workload::ior::Ior;
use forebay_workload::traffic::TrafficSpec;

/// The estimates are within this factor.
const FACTOR: f64 = 2.0;

fn assert_close(what: &str, estimated: f64, counted: u64) {
    let ratio = estimated / counted as f64;
    assert!((1.0 / FACTOR..=FACTOR).contains(&ratio), "{what}: {estimated} of {counted}, {ratio}");
}

#[test]
fn estimates_for_ior_are_near_the_packets_and_events_of_the_run() {
    let machine = Machine::load("toy").unwrap();
    for (line, nodes, ppn) in [
        ("-a POSIX -F -w -r -t 512k -b 8m", 4, 2),
        ("-a POSIX -F -w -t 1m -b 8m -i 2", 16, 1),
        ("-a POSIX -F -w -r -t 4k -b 256k", 4, 4),
        ("-a MPIIO -w -r -t 512k -b 4m", 8, 2),
    ] {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let ior = Ior::parse(&words).unwrap().remove(0);
        let options = SimOptions::default();
        let forecast = forecast_ior(&machine, &ior, nodes, ppn, &options).unwrap();
        let point = simulate_ior(&machine, &ior, nodes, ppn, &options, &|_, _, _| true).unwrap();
        assert_close(&format!("packets of {line}"), forecast.packets, point.run.packets_delivered);
        assert_close(&format!("events of {line}"), forecast.events, point.run.events);
    }
}

#[test]
fn estimates_for_traffic_are_near_the_packets_and_events_of_the_run() {
    let machine = Machine::load("toy").unwrap();
    for (pattern, load, routing) in [
        ("uniform", 0.1, Routing::Minimal),
        ("uniform", 0.5, Routing::ProgressiveAdaptive),
        ("adversarial", 0.1, Routing::Valiant),
        ("permutation", 0.8, Routing::UgalL),
    ] {
        let spec = TrafficSpec::new(pattern.parse().unwrap(), Bytes(16 << 10), load, 200).unwrap();
        let options = SimOptions { routing: Some(routing), ..SimOptions::default() };
        let forecast = forecast_traffic(&machine, &spec, &options).unwrap();
        let run = simulate_traffic(&machine, &spec, &options, &|_, _, _| true).unwrap();
        let what = format!("{pattern} at {load}");
        assert_close(&format!("packets of {what}"), forecast.packets, run.cost.packets_delivered);
        assert_close(&format!("events of {what}"), forecast.events, run.cost.events);
    }
}
