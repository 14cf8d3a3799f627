//! `forebay sim jobs`.

use crate::forebay;
use forebay::WorkDir;
use serde_json::Value;
use std::path::PathBuf;

/// The trace of the examples, on the machine for which it was made.
const EXAMPLE: &str = "jobs.json --nodes 8 --storage-nodes 2 --capacity 40GB --granularity 1GB \
                       --storage-rate 200MB/s --pfs-rate 300MB/s";

fn with_example() -> WorkDir {
    let dir = WorkDir::new();
    dir.write("jobs.json", include_str!("../../../../examples/jobs.json"));
    dir
}

fn policy<'a>(run: &'a Value, name: &str) -> &'a Value {
    let policies = run["points"][0]["policies"].as_array().unwrap();
    policies.iter().find(|result| result["policy"] == name).unwrap()
}

#[test]
fn policies_are_compared_and_results_written() {
    let dir = with_example();
    let all = "--policy fcfs,easy,easy-bb,sjf,conservative,plan";
    let output = dir.expect_success(&format!("sim jobs {EXAMPLE} {all} --quiet --out run"));
    assert!(
        output.stdout.starts_with("24 jobs of jobs.json\n8 nodes, 2 storage nodes"),
        "{}",
        output.stdout
    );
    for name in ["fcfs", "easy-bb", "conservative", "plan", "bounded slowdown"] {
        assert!(output.stdout.contains(name), "{name}: {}", output.stdout);
    }
    let jobs = dir.read("run/jobs.csv");
    assert_eq!(jobs.lines().count(), 1 + 6 * 24);
    assert_eq!(dir.read("run/series.csv").lines().count(), 1 + 6 * 400);
    let report = dir.read("run/report.html");
    assert!(report.contains("the life of each job") && report.contains("Mean waiting time"));
    assert!(dir.read_bytes("run/plot.png").starts_with(b"\x89PNG"));
    for file in ["run/inputs.json", "run/table.txt", "run/plot.svg"] {
        assert!(!dir.read(file).is_empty(), "{file}");
    }
    // The document, the table of jobs and the machine agree.
    let run: Value = serde_json::from_str(&dir.read("run/summary.json")).unwrap();
    assert_eq!((&run["kind"], &run["schema"]), (&"sim jobs".into(), &2.into()));
    let waits: f64 = jobs
        .lines()
        .filter(|line| line.split(',').nth(1) == Some("easy-bb"))
        .map(|line| line.split(',').nth(13).unwrap().parse::<f64>().unwrap())
        .sum();
    let mean = policy(&run, "easy-bb")["mean_wait_seconds"].as_f64().unwrap();
    assert!((mean - waits / 24.0).abs() < 1e-6, "{mean} and {waits}");
}

#[test]
fn every_field_of_the_document_is_documented() {
    let dir = with_example();
    let run = dir.json(&format!("sim jobs {EXAMPLE} --no-out --json -"));
    let mut found = std::collections::BTreeSet::new();
    crate::documents::fields(&run, &mut found);
    let documentation = include_str!("../../../../docs/results.md");
    let missing: Vec<&String> =
        found.iter().filter(|field| !documentation.contains(&format!("`{field}`"))).collect();
    assert!(found.contains("mean_wait_seconds") && missing.is_empty(), "{missing:?}");
}

#[test]
fn results_depend_on_the_seed_and_not_on_threads() {
    let dir = with_example();
    let line = format!(
        "sim jobs {EXAMPLE} --policy easy-bb,plan --bb-per-node lognormal:median=1GB,sigma=1 --no-out --json -"
    );
    let one = dir.json(&format!("{line} --threads 1"));
    assert_eq!(one, dir.json(&format!("{line} --threads 4")));
    assert_ne!(one["points"], dir.json(&format!("{line} --seed 2"))["points"]);
    let warnings = one["warnings"].to_string();
    assert!(warnings.contains("replaced by --bb-per-node"), "{warnings}");
}

#[test]
fn sweep_has_a_row_for_each_capacity_and_policy() {
    let dir = with_example();
    let line = "sim jobs jobs.json --nodes 8 --storage-nodes 2 --granularity 1GB --policy easy,easy-bb \
                --sweep capacity=40GB..160GB --quiet --out run";
    let output = dir.expect_success(line);
    let rows = output.stdout.lines().filter(|line| line.starts_with("capacity=")).count();
    assert_eq!(rows, 6, "{}", output.stdout);
    // For all capacities.
    let warning = "warning: no rate of the parallel file system is known, so stages take no time";
    assert_eq!(output.stdout.matches(warning).count(), 1, "{}", output.stdout);
    let run: Value = serde_json::from_str(&dir.read("run/summary.json")).unwrap();
    let waits = |nth: usize, policy: usize| {
        run["points"][nth]["policies"][policy]["mean_wait_seconds"].as_f64().unwrap()
    };
    assert!(waits(0, 0) > waits(2, 0) && waits(0, 1) > waits(2, 1), "{run}");
    // With enough of it, its reservation makes no difference.
    assert_eq!(waits(2, 0), waits(2, 1));
    assert_eq!(run["points"][2]["policies"][0]["buffer_delayed_jobs"], 0);
    let error = dir.expect_invalid_input(&line.replace("capacity=40GB..160GB", "ppn=1,2"));
    assert!(error.contains("can sweep nodes, storage-nodes, capacity"), "{error}");
}

#[test]
fn swf_is_read_plain_and_compressed_with_assumed_burst_buffers() {
    use std::io::Write;
    let dir = WorkDir::new();
    let line = |id: i32, at: i32, run: i32, nodes: i32, limit: i32| {
        format!("{id} {at} -1 {run} {nodes} -1 -1 {nodes} {limit} -1 1 1 1 -1 -1 -1 -1 -1\n")
    };
    let mut text = "; MaxProcs: 64\n".to_owned();
    for id in 1..=40 {
        text.push_str(&line(id, id * 10, 100 + id, 1 + id % 40, 300));
    }
    text.push_str(&line(41, 500, -1, 4, 300));
    dir.write("trace.swf", &text);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    std::fs::write(dir.path().join("trace.swf.gz"), gz.finish().unwrap()).unwrap();
    let options = "--storage-nodes 4 --capacity 256GiB --bb-per-node fixed:4GiB --stage-out 50% \
                   --pfs-rate 1GB/s --no-out --json -";
    let plain = dir.json(&format!("sim jobs trace.swf {options}"));
    let mut compressed = dir.json(&format!("sim jobs trace.swf.gz {options}"));
    assert_eq!(plain["points"], compressed["points"]);
    assert_eq!(plain["points"][0]["nodes"], 64);
    assert_eq!(
        plain["traces"][0],
        serde_json::json!({"file": "trace.swf", "jobs": 40, "left_out": 1, "cut": 0})
    );
    let wait = |run: &Value| run["points"][0]["policies"][0]["mean_wait_seconds"].as_f64().unwrap();
    compressed = dir.json(&format!("sim jobs trace.swf.gz trace.swf {options}"));
    assert_eq!(compressed["points"][0]["policies"][0]["jobs"], 80);
    assert!((wait(&compressed) - wait(&plain)).abs() < 1e-6, "{compressed}");
}

#[test]
fn machine_files_give_nodes_pool_and_rates() {
    let dir = with_example();
    let line = "sim jobs jobs.json --policy easy-bb --no-out --json -";
    let run = dir.json(&format!("{line} --machine cori-phase1"));
    let point = &run["points"][0];
    assert_eq!((&point["nodes"], &point["storage_nodes"]), (&1630.into(), &140.into()));
    assert!(point["pfs_GBps"].as_f64().unwrap() > 100.0, "{point}");
    // There are nodes and flash for all; jobs wait for their stage-ins, seconds at these rates.
    let result = policy(&run, "easy-bb");
    let wait = result["mean_wait_seconds"].as_f64().unwrap();
    assert!(wait > 0.0 && wait < 5.0, "{result}");
    assert_eq!(result["mean_wait_seconds"], result["mean_stage_delay_seconds"]);
    // Its file has no granularity: whole nodes are allocated.
    assert_eq!(point["granularity_bytes"], 6_400_000_000_000_u64);
    let few = "--machine cori-phase1 --nodes 8 --storage-nodes 2 --granularity 200GB";
    let point = &dir.json(&format!("{line} {few}"))["points"][0];
    assert_eq!((&point["nodes"], &point["storage_nodes"]), (&8.into(), &2.into()));
    assert_eq!(point["capacity_bytes"], 12_800_000_000_000_u64);
    assert!(point["pfs_GBps"].as_f64().unwrap() > 100.0, "{point}");
}

#[test]
fn jobs_that_can_never_run_are_listed_and_refused_or_left_out() {
    let dir = with_example();
    let line = EXAMPLE.replace("--nodes 8", "--nodes 6");
    let error = dir.expect_invalid_input(&format!("sim jobs {line} --no-out"));
    assert!(
        error.contains("2 jobs can never run on this machine: 14 (requests 8 nodes of 6)"),
        "{error}"
    );
    assert!(error.contains("--skip-impossible"), "{error}");
    let output = dir.expect_success(&format!("sim jobs {line} --no-out --skip-impossible --quiet"));
    assert!(
        output.stdout.contains("that can never run left out: 14 (requests 8"),
        "{}",
        output.stdout
    );
}

#[test]
fn invalid_input_is_refused_with_the_reason() {
    let dir = with_example();
    dir.write("bad.swf", "1 2 3\n");
    dir.write("bad.json", "{\"jobs\": []");
    dir.write("empty.swf", "; nothing\n");
    for (line, word) in [
        ("bad.swf --nodes 4", "bad.swf: line 1: 3 fields"),
        ("bad.json --nodes 4", "not a workload of Batsim"),
        ("empty.swf --nodes 4", "no job that can be simulated"),
        ("none.swf --nodes 4", "none.swf: No such file"),
        ("jobs.json --policy fifo", "known are fcfs, easy"),
        ("jobs.json --capacity 1GB", "--capacity needs storage nodes"),
        ("jobs.json --storage-nodes 2", "give --capacity"),
        ("jobs.json --storage-nodes 2 --capacity 1GB", "no granule of 1 GiB on a node"),
        ("jobs.json --stage-in 2", "a share from 0 to 1"),
        ("jobs.json --checkpoint 0.5", "--checkpoint-every"),
    ] {
        let error = dir.expect_invalid_input(&format!("sim jobs {line} --no-out"));
        assert!(error.contains(word), "{line}: {error}");
    }
}

/// Traces of the Parallel Workloads Archive, and of Kopanski and Rzadca, in the directory that
/// `FOREBAY_JOB_TRACES` names.
#[test]
fn real_traces_are_simulated_in_full() {
    let Some(traces) = std::env::var_os("FOREBAY_JOB_TRACES").map(PathBuf::from) else {
        eprintln!(
            "SKIPPED: FOREBAY_JOB_TRACES names no directory with KTH-SP2-1996-2.1-cln.swf.gz"
        );
        return;
    };
    let dir = WorkDir::new();
    let swf = traces.join("KTH-SP2-1996-2.1-cln.swf.gz");
    let run = dir.json(&format!("sim jobs {} --no-out --json -", swf.display()));
    for result in run["points"][0]["policies"].as_array().unwrap() {
        assert_eq!(result["jobs"], 28_475, "{result}");
    }
    let utilization = |name: &str| policy(&run, name)["node_utilization"].as_f64().unwrap();
    // The log has 69.5% on 100 nodes; a queue in the order of arrival takes longer for the same work.
    assert!((0.66..0.73).contains(&utilization("easy")), "{run}");
    assert!(utilization("fcfs") <= utilization("easy"), "{run}");
}
