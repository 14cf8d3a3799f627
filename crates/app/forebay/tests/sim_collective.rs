//! `forebay sim collective`.

use crate::forebay;
use forebay::WorkDir;

#[test]
fn collective_is_compared_with_and_without_traffic() {
    let dir = WorkDir::new();
    let run = dir.json(
        "sim collective allreduce --machine toy --nodes 12 --ppn 4 --size 8B --iterations 40 \
         --placement random-nodes --traffic-nodes 40 --load 0.5 --no-out --json -",
    );
    assert_eq!(run["kind"], "sim collective");
    assert_eq!(
        (&run["operation"], &run["algorithm"]),
        (&"allreduce".into(), &"recursive-doubling".into())
    );
    // 8 of 12 nodes double; four give their numbers away before and get the result after.
    assert_eq!(
        (&run["rounds"], &run["bytes_per_operation"]),
        (&5.into(), &((4 + 24 + 4) * 8).into())
    );
    let number = |path: &str| run.pointer(path).and_then(|v| v.as_f64()).unwrap();
    let (alone, together) = (number("/alone/mean_seconds"), number("/together/mean_seconds"));
    assert!((number("/mean_ratio") - together / alone).abs() < 1e-9);
    assert!(together > 1.05 * alone, "{together} and {alone}");
    assert_eq!(run["alone"]["iteration_seconds"].as_array().unwrap().len(), 40);
    assert_eq!(run["traffic_together"]["nodes"], 40);
}

#[test]
fn seeds_give_intervals_and_sweeps_a_row_for_each_value() {
    let dir = WorkDir::new();
    let line = "sim collective allreduce --machine toy --nodes 8 --iterations 5 --warm-up 1 \
                --placement random-nodes --quiet";
    let output = dir.expect_success(&format!("{line} --seeds 3 --no-out"));
    assert!(output.stdout.contains('±'), "{}", output.stdout);
    let run = dir.json(&format!("{line} --sweep size=8B..32B --sweep nodes=2,4 --no-out --json -"));
    let points = run["points"].as_array().unwrap();
    assert_eq!(points.len(), 6);
    assert_eq!(points[0]["note"], "recursive-doubling");
}

#[test]
fn options_of_a_job_that_is_not_there_are_refused() {
    let dir = WorkDir::new();
    let line = "sim collective barrier --machine toy --nodes 2 --iterations 1 --no-out";
    for (option, needed) in [
        ("--load 0.5", "--traffic-nodes"),
        ("--pattern uniform", "--traffic-nodes"),
        ("--ior-ppn 2", "--ior-nodes"),
        ("--background-placement contiguous", "--traffic-nodes"),
        ("--ior-nodes 2 --load 0.5 -- -w -t 1m -b 1m", "cannot be used with"),
    ] {
        let error = dir.expect_invalid_input(&format!("{line} {option}"));
        assert!(error.contains(needed), "{option}: {error}");
    }
    let error = dir.expect_invalid_input(&format!("{line} --traffic-nodes 4 --messages 3"));
    assert!(error.contains("lasts as long as the other job"), "{error}");
    let output = dir.expect_success(&format!("{line} --traffic-nodes 4 --load 0.5"));
    assert!(output.stdout.contains("on 2 nodes with 1 process each"), "{}", output.stdout);
    let error = dir.expect_invalid_input(&line.replace("--iterations 1", "--iterations 0"));
    assert!(error.contains("0 measured iterations and 10 of the warm-up"), "{error}");
}

#[test]
fn run_directory_contains_all_files() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "sim collective barrier --machine toy --nodes 4 --ior-nodes 8 --start 10us --iterations 3 \
         --links --out here -- -F -w -t 512k -b 1m",
    );
    assert!(output.stdout.contains("together / alone"), "{}", output.stdout);
    for name in [
        "inputs.json",
        "links.csv",
        "plot.png",
        "report.html",
        "series.csv",
        "summary.json",
        "table.txt",
    ] {
        assert!(!dir.read_bytes(&format!("here/{name}")).is_empty(), "{name}");
    }
}

#[test]
fn observations_tell_the_operation_from_the_other_job() {
    let dir = WorkDir::new();
    let line = "sim collective allreduce --machine toy --nodes 12 --iterations 20 --delays --series \
                --placement random-nodes --trace trace.json --trace-sample 1/1";
    let output = dir.expect_success(&format!(
        "{line} --traffic-nodes 40 --load 0.5 --out together --json together.json"
    ));
    assert!(output.stdout.contains("waits at"), "{}", output.stdout);
    let run: serde_json::Value = serde_json::from_str(&dir.read("together.json")).unwrap();
    assert_eq!(run["delays"]["jobs"], serde_json::json!(["traffic", "collective"]));
    let of_class = |class: &serde_json::Value| class["seconds"][1][0].as_f64().unwrap();
    let by_traffic: f64 = run["delays"]["network"].as_array().unwrap().iter().map(of_class).sum();
    // What the allreduce loses beside the traffic is that it waits for its packets.
    assert!(by_traffic > 0.0 && run["mean_ratio"].as_f64().unwrap() > 1.0, "{}", run["delays"]);
    let series = dir.read("together/series-jobs.csv");
    assert!(series.contains("\ncollective,") && series.contains("\ntraffic,"), "{series}");
    assert!(dir.read("trace.json").contains("\"cat\":\"collective\""));
    dir.expect_success(&format!("{line} --out alone --json alone.json"));
    let run: serde_json::Value = serde_json::from_str(&dir.read("alone.json")).unwrap();
    assert_eq!(run["delays"]["jobs"], serde_json::json!(["collective"]));
    assert!(dir.read("alone/delays.csv").starts_with("place,job,delayed_by,seconds"));
}

#[test]
fn invalid_input_is_refused_and_writes_nothing() {
    let dir = WorkDir::new();
    for (options, word) in [
        ("sum --machine toy --nodes 2", "allreduce"),
        ("barrier --machine toy --nodes 57", "56 compute nodes"),
        ("barrier --machine toy --nodes 0", "--nodes"),
        ("barrier --machine toy --nodes 4 --size 8B", "carries no data"),
        ("barrier --machine toy --nodes 4 --seeds 2 --trace t.json", "one seed"),
        ("allreduce --machine toy --nodes 4 --algorithm bruck", "ring"),
        ("allgather --machine toy --nodes 6 --algorithm recursive-doubling", "bruck or ring"),
        ("allreduce --machine toy --nodes 4 --size 0B", "above zero"),
        ("allreduce --machine toy --nodes 4 --iterations 0", "at least 1 is measured"),
        ("allreduce --machine toy --nodes 4 --start soon", "soon"),
        ("allreduce --machine toy --nodes 40 --traffic-nodes 40", "sum of both jobs"),
        (
            "allreduce --machine toy --nodes 4 --traffic-nodes 4 --ior-nodes 4 -- -F",
            "cannot be used",
        ),
        ("allreduce --machine toy --nodes 4 -- -F -w", "--ior-nodes"),
        ("allreduce --machine toy --nodes 4 --fidelity flow", "rounds wait for single messages"),
        ("allreduce --machine theta --nodes 4 --ior-nodes 4 -- -F", "no burst-buffer nodes"),
        ("allreduce --machine toy --nodes 4 --traffic-nodes 4 --load 3", "at most 1"),
    ] {
        let error = dir.expect_invalid_input(&format!("sim collective {options}"));
        assert!(error.contains(word), "{options}: {error}");
    }
}
