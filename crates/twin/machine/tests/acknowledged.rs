//! The nodes' rates from call to acknowledgement, compared with IOR's bandwidth.

use forebay_machine::results::{NodeRates, Phase};
use forebay_machine::study::{SimOptions, simulate_ior};
use forebay_machine_file::machine::Machine;
use forebay_workload::ior::Ior;

fn phases(nodes: u32, ppn: u32, line: &str) -> Vec<Phase> {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    let test = Ior::parse(&arguments).unwrap().remove(0);
    let machine = Machine::load("toy").unwrap();
    let options = SimOptions::default();
    let point = simulate_ior(&machine, &test, nodes, ppn, &options, &|_, _, _| true).unwrap();
    let best = |access: &str| {
        let of_kind = point.phases.iter().filter(|p| p.access == access);
        of_kind.max_by(|a, b| a.gbps.total_cmp(&b.gbps)).map(|p| p.acknowledged_node_gbps.mean)
    };
    assert_eq!(point.write_acknowledged_node_gbps, best("write"));
    assert_eq!(point.read_acknowledged_node_gbps, best("read"));
    point.phases
}

#[test]
fn rate_of_a_node_is_bytes_by_mean_time_of_its_processes_in_transfers() {
    for (ppn, line) in [
        (1, "-w -r -F -t 1m -b 8m"),
        (3, "-w -r -F -t 256k -b 4m"),
        (3, "-w -r -F -z -t 47008 -b 470080"),
        (3, "-w -r -C -t 64k -b 1m"),
        (2, "-w -r -a MPIIO -c -t 256k -b 2m"),
    ] {
        for phase in phases(1, ppn, line) {
            let time = phase.operations as f64 * phase.operation_seconds.mean;
            let rate = phase.bytes as f64 * f64::from(ppn) / time / 1e9;
            let NodeRates { mean, min, p5, p50, p95, max } = phase.acknowledged_node_gbps;
            for value in [mean, min, p5, p50, p95, max] {
                let off = value / rate - 1.0;
                assert!(off.abs() < 1e-9, "{line}, {}: {value} {rate}", phase.access);
            }
            assert!(mean > phase.gbps, "opens and closes do not count: {line}");
        }
    }
}

#[test]
fn time_outside_transfers_does_not_count() {
    let write = |line: &str| phases(2, 1, line).remove(0);
    let plain = write("-w -F -t 256k -b 2m");
    for line in ["-w -F -e -t 256k -b 2m", "-w -F -Y -t 256k -b 2m"] {
        let synced = write(line);
        assert!(synced.gbps < 0.99 * plain.gbps, "{line}");
        let ratio = synced.acknowledged_node_gbps.mean / plain.acknowledged_node_gbps.mean;
        assert!((ratio - 1.0).abs() < 0.02, "{line}: {ratio}");
    }
}

#[test]
fn files_sharing_a_server_slow_their_nodes_and_the_job_but_not_other_nodes() {
    // toy has 4 servers and stripes of 8 MiB: the files of 4 nodes have a server each; of the files
    // of 5 nodes, the first and the last share one.
    let write = |nodes: u32| phases(nodes, 1, "-w -F -t 1m -b 8m").remove(0);
    let (apart, shared) = (write(4), write(5));
    let equal = &apart.acknowledged_node_gbps;
    assert!(equal.min > 0.97 * equal.max, "{equal:?}");
    let rates = &shared.acknowledged_node_gbps;
    assert!(rates.min < 0.95 * rates.max, "{rates:?}");
    assert!((rates.max / equal.max - 1.0).abs() < 0.05, "{rates:?}");
    assert!(
        rates.min <= rates.p5
            && rates.p5 <= rates.p50
            && rates.p50 <= rates.p95
            && rates.p95 <= rates.max
    );
    // The slowest node determines IOR's bandwidth.
    let of_a_node = shared.gbps / 5.0;
    assert!(of_a_node <= rates.min && of_a_node > 0.9 * rates.min);
    assert!(rates.mean > 1.05 * of_a_node, "{rates:?} {of_a_node}");
}
