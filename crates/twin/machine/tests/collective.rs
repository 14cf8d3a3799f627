//! Collective transfers of MPI-IO through the public interface.

use forebay_machine::results::IorPoint;
use forebay_machine::study::{SimOptions, simulate_ior};
use forebay_machine_file::machine::{Aggregators, Machine};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;

fn run(nodes: u32, ppn: u32, threads: usize, line: &str) -> IorPoint {
    let options = SimOptions { threads, ..SimOptions::default() };
    run_with(Aggregators::PerNode, nodes, ppn, options, line)
}

/// A run with an aggregator for each stripe of the file, on an instance of some storage nodes.
fn run_per_stripe(storage_nodes: u32, nodes: u32, ppn: u32, line: &str) -> IorPoint {
    let options = SimOptions { burst_buffers: Some(storage_nodes), ..SimOptions::default() };
    run_with(Aggregators::PerStripe, nodes, ppn, options, line)
}

fn run_with(
    aggregators: Aggregators,
    nodes: u32,
    ppn: u32,
    options: SimOptions,
    line: &str,
) -> IorPoint {
    let mut machine = Machine::load("toy").unwrap();
    machine.client.aggregators = aggregators;
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    let ior = Ior::parse(&arguments).unwrap().remove(0);
    simulate_ior(&machine, &ior, nodes, ppn, &options, &|_, _, _| true).unwrap()
}

/// Mean duration of an operation of the first phase, us.
fn operation(point: &IorPoint) -> f64 {
    point.phases[0].operation_seconds.mean * 1e6
}

#[test]
fn collective_write_of_one_process_adds_one_copy() {
    // The machine copies 8 GB/s; one process exchanges no offsets.
    let alone = operation(&run(1, 1, 1, "-w -t 512k -b 2m"));
    let collective = operation(&run(1, 1, 1, "-w -a MPIIO -c -t 512k -b 2m"));
    let copy = 524_288.0 / 8e3;
    assert!((collective - alone - copy).abs() < 1e-6, "{collective} - {alone}");
}

#[test]
fn collective_read_of_one_process_adds_one_copy() {
    let alone = operation(&run(1, 1, 1, "-r -t 512k -b 2m"));
    let collective = operation(&run(1, 1, 1, "-r -a MPIIO -c -t 512k -b 2m"));
    let more = collective - alone - 524_288.0 / 8e3;
    assert!(more.abs() < 1e-6, "{collective} - {alone}");
}

#[test]
fn collective_writes_into_one_stripe_are_faster_with_fewer_locks() {
    // 32 processes write 47,008 adjacent bytes each: individually they queue for the object's lock;
    // four aggregators write 376 KB each.
    let line = "-w -t 47008 -b 47008 -s 16";
    let each = run(4, 8, 1, line);
    let together = run(4, 8, 1, &format!("{line} -a MPIIO -c"));
    let (each, together) = (&each.phases[0], &together.phases[0]);
    assert_eq!(each.bytes, together.bytes);
    assert!(together.gbps > 1.5 * each.gbps, "{} and {}", together.gbps, each.gbps);
}

#[test]
fn data_of_other_nodes_cross_the_network_twice() {
    // Each node's aggregator writes its own node's data; with -C the readers are on other nodes.
    let line = "-a MPIIO -c -t 256k -b 256k -s 4";
    let node_bytes = |point: &IorPoint| {
        let phase = point.phases.last().unwrap();
        let links = phase.links.iter().find(|l| l.class == "node").unwrap();
        (phase.bytes, links.bytes)
    };
    let (bytes, own) = node_bytes(&run(6, 2, 1, &format!("-w -r {line}")));
    let (_, others) = node_bytes(&run(6, 2, 1, &format!("-w -r -C {line}")));
    assert!(own < 2 * bytes + bytes / 10, "{own} for {bytes}");
    assert!(others > 4 * bytes && others < 4 * bytes + bytes / 5, "{others} for {bytes}");
}

#[test]
fn one_process_writes_the_data_of_all_nodes_to_a_file_with_one_stripe() {
    // The data of the aggregator's node leave it and enter the storage node; those of the three other nodes do
    // that after they have left their own nodes and entered the aggregator's.
    let point = run_per_stripe(1, 4, 1, "-w -a MPIIO -c -t 256k -b 256k -s 4");
    let phase = &point.phases[0];
    let links = phase.links.iter().find(|l| l.class == "node").unwrap();
    let data = phase.bytes / 4 * (2 + 3 * 4);
    assert!(links.bytes >= data && links.bytes < data + data / 50, "{} for {data}", links.bytes);
}

#[test]
fn aggregators_of_a_node_copy_at_the_same_time() {
    // One process copies 2 MiB of four at 8 GB/s, four processes 512 KiB each. They write the same bytes to the
    // same storage nodes, in parts, which takes no longer.
    let line = "-w -a MPIIO -c -t 512k -b 2m";
    let options = SimOptions { burst_buffers: Some(4), ..SimOptions::default() };
    let one = operation(&run_with(Aggregators::PerNode, 1, 4, options, line));
    let four = operation(&run_per_stripe(4, 1, 4, line));
    let copies = 3.0 * 524_288.0 / 8e3;
    assert!(one - four >= copies, "{one} - {four}, copies {copies}");
}

#[test]
fn any_number_of_threads_gives_equal_results_with_several_aggregators_a_node() {
    let line = "-w -r -a MPIIO -c -C -t 300k -b 900k -s 2 -i 2";
    let result = |threads| {
        let placement = Placement::RandomNodes;
        let options =
            SimOptions { threads, placement, burst_buffers: Some(4), ..SimOptions::default() };
        let mut point = run_with(Aggregators::PerStripe, 3, 5, options, line);
        point.run = Default::default();
        point
    };
    let one = result(1);
    assert!(one.phases.iter().all(|p| p.bytes == one.phases[0].bytes && p.bytes > 0));
    assert_eq!(result(3), one);
}

#[test]
fn any_number_of_threads_gives_equal_results() {
    for line in [
        "-w -r -a MPIIO -c -C -t 300k -b 900k -s 2 -i 2",
        "-w -r -a MPIIO -c -Z -Y -t 100k -b 100k -s 5",
        "-w -r -a MPIIO -c -Z -Z -e -t 6m -b 6m",
    ] {
        let result = |threads| {
            let mut point = run(12, 3, threads, line);
            point.run = Default::default();
            point
        };
        let one = result(1);
        let moved: Vec<_> = one.phases.iter().map(|p| p.bytes).collect();
        assert!(moved.windows(2).all(|w| w[0] == w[1]) && moved[0] > 0, "{line}: {moved:?}");
        assert_eq!(result(3), one, "{line}");
    }
}
