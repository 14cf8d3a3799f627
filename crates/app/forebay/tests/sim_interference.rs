//! `forebay sim interference`.

use crate::forebay;
use forebay::WorkDir;

#[test]
fn interference_reports_each_job_alone_and_together() {
    let dir = WorkDir::new();
    let run = dir.json(
        "sim interference --machine toy --nodes 4 --traffic-nodes 40 --pattern uniform --load 0.6 \
         --message 16KiB --placement contiguous --traffic-placement random-nodes \
         --no-out --json - -- -a POSIX -F -w -t 512k -b 2m",
    );
    assert_eq!(run["kind"], "sim interference");
    assert_eq!(run["ior_placement"], "contiguous");
    assert_eq!(run["traffic_placement"], "random-nodes");
    let number = |path: &str| run.pointer(path).and_then(|v| v.as_f64()).unwrap();
    let alone = number("/ior_alone/write_GBps");
    let together = number("/ior_together/write_GBps");
    assert!((number("/ior_rate_ratio") - together / alone).abs() < 1e-9);
    assert!(together < alone, "the toy's local links are full: {together} of {alone} GB/s");
    assert_eq!(
        run["traffic_alone"]["window_seconds"], run["traffic_together"]["window_seconds"],
        "both are measured over the same time"
    );
    assert_eq!(run["traffic_alone"]["nodes"], 40);
}

#[test]
fn run_directory_contains_all_files() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "sim interference --machine toy --nodes 2 --traffic-nodes 8 --out here \
         -- -F -w -t 512k -b 1m",
    );
    assert!(output.stdout.contains("together / alone"), "{}", output.stdout);
    for name in
        ["inputs.json", "plot.png", "report.html", "series.csv", "summary.json", "table.txt"]
    {
        assert!(!dir.read_bytes(&format!("here/{name}")).is_empty(), "{name}");
    }
}

#[test]
fn invalid_input_is_refused_and_writes_nothing() {
    let dir = WorkDir::new();
    for (options, word) in [
        ("--machine toy --nodes 40 --traffic-nodes 40 -- -F", "56 compute nodes"),
        ("--machine toy --nodes 0 --traffic-nodes 4 -- -F", "--nodes"),
        ("--machine toy --nodes 2 -- -F", "--traffic-nodes"),
        ("--machine theta --nodes 2 --traffic-nodes 2 -- -F", "no burst-buffer nodes"),
        ("--machine toy --nodes 2 --traffic-nodes 2 --load 3 -- -F", "at most 1"),
        ("--machine toy --nodes 2 --traffic-nodes 2 --traffic-placement near -- -F", "contiguous"),
        // IOR alone would take minutes; the traffic is refused first.
        (
            "--machine toy --nodes 2 --traffic-nodes 2 --pattern halo:x=3,y=3,z=3 -- -F -t 4m -b 100g",
            "2 nodes",
        ),
    ] {
        let error = dir.expect_invalid_input(&format!("sim interference {options}"));
        assert!(error.contains(word), "{options}: {error}");
    }
}

#[test]
fn interference_with_flows_has_rates_and_loads_of_both_jobs() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "sim interference --machine toy --nodes 1 --traffic-nodes 55 --pattern adversarial --load 0.6 \
         --routing minimal --fidelity flow --out here -- -a POSIX -F -w -t 4m -b 4g",
    );
    assert!(output.stdout.contains("With flows, which leave out"), "{}", output.stdout);
    assert!(output.stdout.contains("accepted load of the traffic"), "{}", output.stdout);
    let run: serde_json::Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    assert_eq!((&run["fidelity"], &run["ior_alone"]["fidelity"]), (&"flow".into(), &"flow".into()));
    let ratio = run["ior_rate_ratio"].as_f64().unwrap();
    assert!((0.3..1.0).contains(&ratio), "{ratio}");
    let load = |which: &str| run[which]["accepted_load"].as_f64().unwrap();
    assert!(load("traffic_together") < load("traffic_alone"));
}

#[test]
fn number_of_messages_is_refused_since_the_traffic_lasts_as_long_as_ior() {
    let dir = WorkDir::new();
    let error = dir.expect_invalid_input(
        "sim interference --machine toy --nodes 2 --traffic-nodes 4 --messages 4 --no-out \
         -- -F -w -t 1m -b 1m",
    );
    assert!(error.contains("lasts as long as the other job"), "{error}");
}
