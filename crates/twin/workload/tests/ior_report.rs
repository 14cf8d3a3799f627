//! IOR's output, compared with a text in the format of IOR 4.1.

use forebay_workload::ior::report::{PhaseResult, Report};
use forebay_workload::ior::{Access, AccessPattern, Ior, Processes};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

fn phase(access: Access, iteration: u32, bytes: u64, total: f64) -> PhaseResult {
    PhaseResult {
        access,
        iteration,
        bytes,
        open_seconds: 0.001,
        transfer_seconds: total - 0.002,
        close_seconds: 0.0005,
        total_seconds: total,
        latency_seconds: 0.0004,
    }
}

#[test]
fn report_equals_the_golden_text() {
    let arguments = words("-a POSIX -F -C -t 1m -b 64m -i 2 -A 7 -o /bb/data");
    let ior = Ior::parse(&arguments).unwrap().remove(0);
    let processes = Processes { count: 8, per_node: 4, seed: 0 };
    let pattern = AccessPattern::new(&ior, processes).unwrap();
    let bytes = pattern.total_bytes();
    let phases = [
        phase(Access::Write, 0, bytes, 0.25),
        phase(Access::Read, 0, bytes, 0.125),
        phase(Access::Write, 1, bytes, 0.5),
        phase(Access::Read, 1, bytes, 0.25),
    ];
    let report = Report {
        arguments: &arguments,
        machine: "toy",
        ior: &ior,
        pattern: &pattern,
        phases: &phases,
        finished_seconds: 1.131,
    };
    let text = report.to_string();
    assert_eq!(text, include_str!("golden/ior-report.txt"), "\n{text}");
}

#[test]
fn rates_in_the_golden_text_are_consistent() {
    // 512 MiB in 0.25 s are 2048 MiB/s; 512 operations in 0.248 s are 2064.5 a second.
    let text = include_str!("golden/ior-report.txt");
    assert!(text.contains("\nwrite     2048.00    2064.52  "), "{text}");
    assert!(text.contains("\nMax Write: 2048.00 MiB/sec (2147.48 MB/sec)\n"));
    assert!(text.contains("\nMax Read:  4096.00 MiB/sec (4294.97 MB/sec)\n"));
    let summary: Vec<&str> = text
        .lines()
        .skip_while(|l| !l.starts_with("Operation"))
        .nth(1)
        .unwrap()
        .split_whitespace()
        .collect();
    // Max, min, mean and deviation of 2048 and 1024 MiB/s, then of operations over the whole time.
    assert_eq!(summary[1..5], ["2048.00", "1024.00", "1536.00", "512.00"]);
    assert_eq!(summary[5..9], ["2048.00", "1024.00", "1536.00", "512.00"]);
    assert_eq!(summary[9..12], ["0.37500", "NA", "NA"]);
}

#[test]
fn header_and_lines_have_equal_numbers_of_columns() {
    let text = include_str!("golden/ior-report.txt");
    let lines: Vec<&str> = text.lines().collect();
    let table = lines.iter().position(|l| l.starts_with("access    bw")).unwrap();
    for line in &lines[table + 1..table + 6] {
        assert_eq!(line.split_whitespace().count(), 11, "{line}");
    }
    let summary = lines.iter().position(|l| l.starts_with("Operation")).unwrap();
    let columns = lines[summary].split_whitespace().count();
    assert_eq!(lines[summary + 1].split_whitespace().count(), columns);
    assert_eq!(lines[summary + 2].split_whitespace().count(), columns);
}

#[test]
fn deadline_and_shuffled_tasks_are_printed() {
    let arguments = words("-w -z -F -ZZ -X 3 -D 10 -O stoneWallingWearOut=1 -v -c -a MPIIO -b 2m");
    assert!(Ior::parse(&arguments).is_err(), "-z and -c");
    let arguments = words("-w -F -z -X 3 -D 10 -O stoneWallingWearOut=1 -v -a MPIIO -b 2m");
    let ior = Ior::parse(&arguments).unwrap().remove(0);
    let processes = Processes { count: 2, per_node: 4, seed: 0 };
    let pattern = AccessPattern::new(&ior, processes).unwrap();
    let phases = [phase(Access::Write, 0, pattern.total_bytes(), 4000.0)];
    let report = Report {
        arguments: &arguments,
        machine: "m",
        ior: &ior,
        pattern: &pattern,
        phases: &phases,
        finished_seconds: 1.0,
    };
    let text = report.to_string();
    for line in [
        "ordering in a file  : random",
        "clients per node    : 2",
        "verbose             : 1",
        "stonewallingTime    : 10",
        "stoneWallingWearOut : 1",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
    assert!(!text.contains("Max Read"));
}
