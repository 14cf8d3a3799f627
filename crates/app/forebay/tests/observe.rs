//! Observations of simulations: traces, time series, delays by cause.

use crate::forebay;
use forebay::WorkDir;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

const IOR: &str = "sim ior --machine toy --nodes 4 --ppn 2 --quiet";
const TEST: &str = "-- -a POSIX -F -w -r -t 512k -b 2m";
const TOGETHER: &str = "sim interference --machine toy --nodes 8 --traffic-nodes 8 --placement random-nodes \
     --traffic-placement random-nodes --load 0.5 --message 64KiB --quiet";

/// The complete events of a trace: (process, thread) to (begin, end, event) in order, in ps.
type Tracks = BTreeMap<(u64, u64), Vec<(u64, u64, Value)>>;

/// Checks a trace against the trace event format, and returns its tracks.
fn tracks(text: &str) -> Tracks {
    let document: Value = serde_json::from_str(text).unwrap();
    assert!(document["otherData"]["sampled_share"].as_f64().unwrap() > 0.0);
    let ps = |value: &Value| (value.as_f64().unwrap() * 1e6).round() as u64;
    let mut named = BTreeMap::new();
    let mut tracks = Tracks::new();
    for event in document["traceEvents"].as_array().unwrap() {
        let pid = event["pid"].as_u64().unwrap();
        assert!(event["name"].is_string() && event["args"].is_object(), "{event}");
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert_eq!(event["name"], "process_name");
                named.insert(pid, event["args"]["name"].as_str().unwrap().to_string());
            }
            "X" => {
                assert!(named.contains_key(&pid), "{event}");
                let begin = ps(&event["ts"]);
                let end = begin + ps(&event["dur"]);
                let track = tracks.entry((pid, event["tid"].as_u64().unwrap())).or_default();
                track.push((begin, end, event.clone()));
            }
            other => panic!("phase {other}"),
        }
    }
    tracks
}

/// Slices of a track begin in order, and each ends before the next begins or contains it.
fn assert_nested(track: &[(u64, u64, Value)]) {
    let mut open: Vec<u64> = Vec::new();
    let mut last = 0;
    for (begin, end, event) in track {
        assert!(*begin >= last && end >= begin, "{event}");
        last = *begin;
        while open.last().is_some_and(|outer| outer <= begin) {
            open.pop();
        }
        assert!(open.last().is_none_or(|outer| end <= outer), "{event}: across its outer slice");
        open.push(*end);
    }
}

#[test]
fn trace_of_everything_has_each_request_with_its_stages_and_is_the_same_on_any_threads() {
    let dir = WorkDir::new();
    for threads in [1, 3] {
        let trace = format!("--no-out --trace t{threads}.json --trace-sample 1/1");
        dir.expect_success(&format!("{IOR} --threads {threads} {trace} {TEST}"));
    }
    let text = dir.read("t1.json");
    assert!(text == dir.read("t3.json"), "the trace depends on the threads");
    let tracks = tracks(&text);
    tracks.values().for_each(|track| assert_nested(track));
    let count = |name: &str| {
        let events = tracks.values().flatten();
        events.filter(|(_, _, event)| event["name"] == name).count()
    };
    // 8 processes, 4 transfers of one request each.
    for name in ["write request", "read request", "write", "read", "fetch data", "hold lock"] {
        let expected = 32;
        assert_eq!(count(name), expected, "{name}");
    }
    // The stages of a request at its server fill its time there.
    for track in tracks.values() {
        for (i, (begin, end, event)) in track.iter().enumerate() {
            if event["name"] == "write" || event["name"] == "read" {
                let stages = track[i + 1..].iter().take_while(|(b, _, _)| b < end);
                let sum: u64 = stages.map(|(b, e, _)| e - b).sum();
                assert_eq!(sum, end - begin, "{event}");
            }
        }
    }
    // A packet of data of 4 KiB takes 819.2 ns on a rank-1 link.
    let rank1 =
        |(_, _, e): &&(u64, u64, Value)| e["name"] == "rank-1 link" && e["args"]["bytes"] == 4096;
    let (begin, end, _) = tracks.values().flatten().find(rank1).unwrap();
    assert_eq!(end - begin, 819_200);
}

#[test]
fn sampled_trace_is_a_part_of_the_whole_and_can_be_compressed() {
    let dir = WorkDir::new();
    let tags = |name: &str, options: &str| {
        dir.expect_success(&format!("{IOR} --no-out --trace {name} {options} {TEST}"));
        let mut text = String::new();
        if name.ends_with(".gz") {
            let bytes = dir.read_bytes(name);
            flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        } else {
            text = dir.read(name);
        }
        let mut tags = BTreeMap::new();
        for (_, _, event) in tracks(&text).into_values().flatten() {
            *tags.entry(event["args"]["tag"].to_string()).or_insert(0) += 1;
        }
        tags
    };
    let all = tags("all.json", "--trace-sample 1/1");
    let some = tags("some.json.gz", "--trace-sample 1/4");
    assert!(!some.is_empty() && some.len() < all.len() / 2, "{} {}", some.len(), all.len());
    assert!(some.iter().all(|(tag, count)| all.get(tag) == Some(count)));
}

#[test]
fn trace_of_several_runs_is_refused() {
    let dir = WorkDir::new();
    for options in ["--nodes 1..4", "--nodes 2 --seeds 3"] {
        let line = format!("sim ior --machine toy {options} --trace t.json {TEST}");
        assert!(dir.expect_invalid_input(&line).contains("one run"), "{options}");
    }
    let error =
        dir.expect_invalid_input("sim traffic --machine toy --trace t.json --trace-sample 0.1");
    assert!(error.contains("1/1000"), "{error}");
}

#[test]
fn trace_that_does_not_fit_on_the_disk_leaves_no_part() {
    let dir = WorkDir::new();
    std::fs::create_dir(dir.path().join("small")).unwrap();
    let line = format!("{IOR} --no-out --trace small/t.json --trace-sample 1/1 {TEST}");
    let script = format!(
        "mount -t tmpfs -o size=64k none small; {} {line} 2>&1; echo exit $?; ls small",
        env!("CARGO_BIN_EXE_forebay")
    );
    // A mount in a name space of its own ends with its last process.
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("--trace small/t.json: No space left on device"), "{text}");
    assert!(text.ends_with("exit 1\n"), "{text}");
}

#[test]
fn number_of_links_is_refused_where_no_series_are_written() {
    let dir = WorkDir::new();
    let error = dir.expect_invalid_input(&format!("{IOR} --no-out --series-links 3 {TEST}"));
    assert!(error.contains("--series-links"), "{error}");
}

/// The rows of a CSV file without its heading.
fn csv(dir: &WorkDir, path: &str) -> Vec<Vec<String>> {
    let text = dir.read(path);
    text.lines().skip(1).map(|line| line.split(',').map(String::from).collect()).collect()
}

fn sum(rows: &[Vec<String>], name: &str, column: usize) -> f64 {
    let of_name = rows.iter().filter(|row| row[0] == name);
    of_name.map(|row| row[column].parse::<f64>().unwrap()).sum()
}

#[test]
fn time_series_of_jobs_servers_and_links_add_up_on_any_threads() {
    let dir = WorkDir::new();
    for threads in [1, 3] {
        let line = format!("{IOR} --threads {threads} --series --series-links all --links");
        dir.expect_success(&format!("{line} --out out{threads} {TEST}"));
    }
    for file in ["jobs", "servers", "links"] {
        let name = format!("series-{file}.csv");
        assert!(!csv(&dir, &format!("out1/{name}")).is_empty(), "{file}");
        assert_eq!(dir.read(&format!("out1/{name}")), dir.read(&format!("out3/{name}")));
    }
    let jobs = csv(&dir, "out1/series-jobs.csv");
    // 16 MiB written and read, and messages without data.
    let delivered = sum(&jobs, "ior", 3);
    assert!((2.0..2.1).contains(&(delivered / f64::from(16 << 20))), "{delivered}");
    assert_eq!(sum(&jobs, "ior", 2), delivered);
    assert_eq!(jobs.last().unwrap()[4], "0.0", "nothing is under way at the end");
    let servers = csv(&dir, "out1/series-servers.csv");
    let names: std::collections::BTreeSet<&String> = servers.iter().map(|row| &row[0]).collect();
    assert_eq!(names.len(), 4);
    let written: f64 = names.iter().map(|name| sum(&servers, name, 2)).sum();
    assert_eq!(written, f64::from(16 << 20));
    let links = csv(&dir, "out1/series-links.csv");
    assert!(links.iter().all(|row| row.last().unwrap().parse::<f64>().unwrap() < 1.001));
    let few = format!("{IOR} --series --series-links 3 --out few {TEST}");
    dir.expect_success(&few);
    // The names of links are in quotes: they contain commas.
    let few = dir.read("few/series-links.csv");
    let names = few.lines().skip(1).filter_map(|line| line.split('"').nth(1));
    assert_eq!(names.collect::<std::collections::BTreeSet<_>>().len(), 3);
    let report = dir.read("few/report.html");
    assert!(report.contains("Busiest links"), "no charts of links");
}

/// Two processes of a node open their files at the same time, at the one server, whose metadata
/// operations take 100 us. The request of the second (128 bytes) comes 25.6 ns later, the time of the
/// first on the slowest link of their way (rank 1, 5 GB/s), and waits for the rest of the first. Nothing else waits: the processes are 100 us apart from then on, and
/// their writes have different locks and flash channels.
#[test]
fn delay_at_a_server_is_the_one_calculated_by_hand() {
    let dir = WorkDir::new();
    let run = dir.json(
        "sim ior --machine toy --nodes 1 --ppn 2 --burst-buffers 1 --delays --no-out --quiet \
         --json - -- -a POSIX -F -w -k -t 4k -b 4k",
    );
    let servers = run["points"][0]["delays"]["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 1);
    let seconds = servers[0]["seconds"][0][0].as_f64().unwrap();
    assert!((seconds - 99.9744e-6).abs() < 1e-12, "{seconds}");
}

#[test]
fn delays_name_both_jobs_and_add_up() {
    let dir = WorkDir::new();
    let line = format!("{TOGETHER} --delays --no-out --json -");
    let run = |threads| dir.json(&format!("{line} --threads {threads} -- -F -w -t 512k -b 2m"));
    let together = run(1)["ior_together"]["delays"].clone();
    assert_eq!(together, run(3)["ior_together"]["delays"]);
    assert_eq!(together["jobs"], serde_json::json!(["traffic", "ior", "ior-mpi"]));
    let mut across = 0.0;
    for class in together["network"].as_array().unwrap() {
        for (job, row) in class["seconds"].as_array().unwrap().iter().enumerate() {
            let values: Vec<f64> =
                row.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
            let total = class["total_seconds"][job].as_f64().unwrap();
            assert!((values.iter().sum::<f64>() - total).abs() <= 1e-9 * total, "{class}");
            across += values[[1, 0, 0][job]];
        }
    }
    assert!(across > 0.0, "jobs on the same links delay each other: {together}");
    let servers = together["servers"].as_array().unwrap();
    assert!(!servers.is_empty());
    assert!(servers.iter().all(|s| s["seconds"][1][1].as_f64().unwrap() > 0.0));
    let alone = format!("{IOR} --delays --no-out --json - {TEST}");
    let alone = &dir.json(&alone)["points"][0]["delays"];
    assert_eq!(alone["jobs"], serde_json::json!(["ior", "ior-mpi"]), "no traffic, no delay by it");
}

#[test]
fn barriers_of_ior_are_a_kind_of_their_own() {
    let dir = WorkDir::new();
    let run = dir.json(
        "sim ior --machine toy --nodes 4 --ppn 1 --delays --no-out --json - -- -w -F -k -t 64k -b 64k",
    );
    let delays = &run["points"][0]["delays"];
    assert_eq!(delays["jobs"], serde_json::json!(["ior", "ior-mpi"]));
    let of_nodes = &delays["network"][0];
    assert_eq!(of_nodes["class"], "node");
    // Each packet crosses the link of its node and that of its destination. A process opens, closes and
    // writes with 23 packets; three barriers have two rounds with a message of each node.
    assert_eq!(of_nodes["passages"], serde_json::json!([2 * 4 * 23, 2 * 3 * 2 * 4]));
}
