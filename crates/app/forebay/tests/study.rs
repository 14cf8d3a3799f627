//! `forebay study`.
#![allow(clippy::unwrap_used)]

mod forebay;
use forebay::WorkDir;

const STUDY: &str = "title = \"Two jobs\"\nmachine = \"toy\"\n\
    [io]\nnodes = 4\nior = \"-a POSIX -F -w -t 512k -b 2m\"\n\
    [traffic]\nnodes = 40\npattern = \"uniform\"\nmessage = \"16KiB\"\nload = 0.3\nmessages = 100\n\
    [[measure]]\nname = \"one storage node\"\nburst_buffers = 1\n";

fn summary(dir: &WorkDir) -> serde_json::Value {
    serde_json::from_str(&dir.read("out/summary.json")).unwrap()
}

/// The case without a measure is the same as `sim interference`; one storage node with 2 GB/s of flash cannot
/// take more.
#[test]
fn study_compares_measures_with_the_case_without_one() {
    let dir = WorkDir::new();
    dir.write("study.toml", STUDY);
    dir.expect_success("study study.toml --out out");
    let found = summary(&dir);
    let cases = found["cases"].as_array().unwrap();
    let names: Vec<&str> = cases.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "one storage node"]);
    let alone = dir.json(
        "sim interference --machine toy --nodes 4 --traffic-nodes 40 --pattern uniform --load 0.3 \
         --message 16KiB --messages 100 --no-out --json - -- -a POSIX -F -w -t 512k -b 2m",
    );
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let slowdown = 1.0 / number(&alone["ior_rate_ratio"]);
    assert!((number(&cases[0]["io_slowdown"]) - slowdown).abs() < 1e-9);
    assert_eq!(cases[0]["traffic_slowdown"], alone["traffic_latency_ratio"]);
    assert_eq!(cases[0]["io_gbps"][1], alone["ior_together"]["write_GBps"]);
    assert!(number(&cases[1]["io_gbps"][0]) < 2.0);
    let delayed = cases[0]["io_delayed"].as_array().unwrap();
    assert!(delayed.iter().any(|of_class| number(&of_class[1]) > 0.0), "{found:#}");
    let report = dir.read("out/report.md");
    for text in ["# Two jobs", "one storage node", "rank-1", "beside traffic"] {
        assert!(report.contains(text), "{text} in {report}");
    }
}

#[test]
fn interrupted_study_goes_on_with_the_cases_that_are_missing_or_changed() {
    let dir = WorkDir::new();
    dir.write("study.toml", STUDY);
    let first = dir.expect_success("study study.toml --out out --threads 1");
    assert!(!first.stderr.contains("done before"), "{}", first.stderr);
    let (results, report) = (summary(&dir), dir.read("out/report.md"));
    std::fs::remove_file(dir.path().join("out/case-none.json")).unwrap();
    let second = dir.expect_success("study study.toml --out out --threads 2");
    assert!(second.stderr.contains("none: done\n"), "{}", second.stderr);
    assert!(second.stderr.contains("one storage node: done before\n"), "{}", second.stderr);
    assert_eq!((summary(&dir), dir.read("out/report.md")), (results, report));
    dir.write("study.toml", &STUDY.replace("burst_buffers = 1", "burst_buffers = 2"));
    let third = dir.expect_success("study study.toml --out out");
    assert!(third.stderr.contains("one storage node: done\n"), "{}", third.stderr);
    assert!(third.stderr.contains("none: done before\n"), "{}", third.stderr);
}

/// The report in `examples/` is the one that the study there gives.
#[test]
fn example_gives_the_report_beside_it() {
    let dir = WorkDir::new();
    dir.write("study.toml", include_str!("../../../../examples/interference.toml"));
    let output = dir.expect_success("study study.toml --out out");
    assert_eq!(output.stdout, include_str!("../../../../examples/interference.md"));
}

#[test]
fn invalid_study_is_refused_with_the_place() {
    let dir = WorkDir::new();
    for (from, to, word) in [
        ("nodes = 40", "nodes = 400", "56 compute nodes"),
        ("load = 0.3", "load = 3.0", "at most 1"),
        ("burst_buffers = 1", "burst_buffers = 9", "has 4"),
        ("burst_buffers = 1", "routing = \"x\"", "one storage node"),
        ("burst_buffers = 1", "nodes = 1", "unknown field"),
        ("-t 512k", "-t 3m", "raise -b"),
        (
            "one storage node\"",
            "one storage node\"\n[[measure]]\nname = \"one storage node\"",
            "two measures",
        ),
        ("machine = \"toy\"", "machine = \"nowhere\"", "nowhere"),
    ] {
        assert!(STUDY.contains(from), "{from}");
        dir.write("study.toml", &STUDY.replace(from, to));
        let error = dir.expect_invalid_input("study study.toml --out out");
        assert!(error.contains(word), "{to}: {error}");
    }
    assert!(dir.expect_invalid_input("study absent.toml --out out").contains("absent.toml"));
}
