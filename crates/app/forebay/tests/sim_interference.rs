//! `forebay sim interference`, as it is used.
#![allow(clippy::unwrap_used)]

mod forebay;
use forebay::Place;

#[test]
fn each_job_is_shown_alone_and_together() {
    let place = Place::new();
    let run = place.json(
        "sim interference --machine toy --nodes 4 --traffic-nodes 40 --pattern uniform --load 0.6 \
         --message 16KiB --messages 200 --placement contiguous --traffic-placement random-nodes \
         --no-out --json - -- -a POSIX -F -w -t 512k -b 2m",
    );
    assert_eq!(run["kind"], "sim interference");
    assert_eq!(run["ior_placement"], "contiguous");
    assert_eq!(run["traffic_placement"], "random-nodes");
    let number = |path: &str| run.pointer(path).and_then(|v| v.as_f64()).unwrap();
    let alone = number("/ior_alone/write_GBps");
    let together = number("/ior_together/write_GBps");
    assert!((number("/ior_rate_ratio") - together / alone).abs() < 1e-9);
    assert!(
        together < alone,
        "the toy's local links are full: {together} of {alone} GB/s"
    );
    assert!(number("/traffic_latency_ratio") > 0.0);
    assert_eq!(run["traffic_alone"]["nodes"], 40);
}

#[test]
fn the_run_directory_holds_everything() {
    let place = Place::new();
    let said = place.ok(
        "sim interference --machine toy --nodes 2 --traffic-nodes 8 --messages 20 --out here \
         -- -F -w -t 512k -b 1m",
    );
    assert!(said.out.contains("together / alone"), "{}", said.out);
    for name in [
        "inputs.json",
        "plot.png",
        "report.html",
        "series.csv",
        "summary.json",
        "table.txt",
    ] {
        assert!(
            !place.read_bytes(&format!("here/{name}")).is_empty(),
            "{name}"
        );
    }
}

#[test]
fn wrong_input_is_refused_and_nothing_is_written() {
    let place = Place::new();
    for (options, word) in [
        (
            "--machine toy --nodes 40 --traffic-nodes 40 -- -F",
            "56 compute nodes",
        ),
        ("--machine toy --nodes 0 --traffic-nodes 4 -- -F", "--nodes"),
        ("--machine toy --nodes 2 -- -F", "--traffic-nodes"),
        (
            "--machine theta --nodes 2 --traffic-nodes 2 -- -F",
            "no burst-buffer nodes",
        ),
        (
            "--machine toy --nodes 2 --traffic-nodes 2 --load 3 -- -F",
            "at most 1",
        ),
        (
            "--machine toy --nodes 2 --traffic-nodes 2 --traffic-placement near -- -F",
            "contiguous",
        ),
        // IOR by itself would take minutes; the traffic is refused before that.
        (
            "--machine toy --nodes 2 --traffic-nodes 2 --pattern halo:x=3,y=3,z=3 -- -F -t 4m -b 100g",
            "2 nodes",
        ),
    ] {
        let error = place.refused(&format!("sim interference {options}"));
        assert!(error.contains(word), "{options}: {error}");
    }
}
