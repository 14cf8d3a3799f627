//! `forebay sim traffic`.

use crate::forebay;
use forebay::WorkDir;
use serde_json::Value;

/// Fields that say how fast the simulator was; all others depend on the input alone.
const OF_THE_SIMULATOR: [&str; 5] =
    ["wall_seconds", "startup_seconds", "packets_per_second", "threads", "peak_rss_bytes"];

fn without_cost(mut document: Value) -> Value {
    for field in OF_THE_SIMULATOR {
        document.as_object_mut().unwrap().remove(field).unwrap();
    }
    document
}

#[test]
fn all_messages_are_delivered_and_counted() {
    let dir = WorkDir::new();
    let run = dir.json(
        "sim traffic --machine toy --pattern uniform --message 10000B --load 0.2 --messages 30 \
         --no-out --json -",
    );
    let nodes = run["nodes"].as_u64().unwrap();
    assert_eq!(run["messages_delivered"], nodes * 30);
    assert_eq!(run["packets_delivered"], nodes * 30 * 3, "10,000 bytes are three packets of 4 KiB");
    assert_eq!(run["bytes_delivered"], nodes * 30 * 10_000);
    assert_eq!(run["schema"], 2);
    assert_eq!(run["kind"], "sim traffic");
    let hops: Vec<u64> =
        run["hops_histogram"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect();
    assert_eq!(hops.iter().sum::<u64>(), nodes * 30 * 3);
    let latency = &run["latency_ns"];
    let rising = ["min", "p50", "p90", "p99", "p999", "max"].map(|f| latency[f].as_f64().unwrap());
    assert!(rising.is_sorted() && rising[0] > 0.0, "{rising:?}");
    assert!(dir.list_files().is_empty());
}

#[test]
fn result_depends_on_the_seed_but_not_on_threads() {
    let dir = WorkDir::new();
    let run = |threads: u32, seed: u32| {
        without_cost(dir.json(&format!(
            "sim traffic --machine toy --pattern hot-spot:nodes=2,share=0.3 --load 0.1 \
             --messages 50 --threads {threads} --seed {seed} --no-out --json -"
        )))
    };
    let one = run(1, 7);
    assert_eq!(one, run(2, 7));
    assert_eq!(one, run(4, 7));
    assert_ne!(one["latency_ns"], run(1, 8)["latency_ns"]);
}

#[test]
fn routing_and_packet_size_take_effect() {
    let dir = WorkDir::new();
    let run = |options: &str| {
        dir.json(&format!(
            "sim traffic --machine toy --pattern adversarial --load 0.2 --messages 150 --no-out \
             --json - {options}"
        ))
    };
    let accepted = |run: &Value| run["accepted_load"].as_f64().unwrap();
    let minimal = run("--routing minimal");
    assert_eq!(minimal["nonminimal_share"], 0.0);
    assert_eq!(minimal["routing"], "minimal");
    // 14 nodes of 8 GB/s at a load of 0.2 want 22.4 GB/s of the one global link's 20.
    assert!(accepted(&minimal) < 20.0 / (14.0 * 8.0), "{}", accepted(&minimal));
    let adaptive = run("--routing progressive-adaptive");
    let offered = adaptive["window_offered_load"].as_f64().unwrap();
    assert!(accepted(&adaptive) > 0.98 * offered, "{} of {offered}", accepted(&adaptive));
    assert_eq!(minimal["state"], "saturated");
    let valiant = run("--routing valiant");
    assert!(valiant["nonminimal_share"].as_f64().unwrap() > 0.5);
    let halves = run("--packet 2KiB");
    assert_eq!(
        halves["packets_delivered"].as_u64().unwrap(),
        2 * minimal["packets_delivered"].as_u64().unwrap()
    );
}

#[test]
fn run_shorter_than_the_latency_of_a_packet_is_not_called_saturated() {
    let dir = WorkDir::new();
    let run = |messages| {
        dir.json(&format!(
            "sim traffic --machine toy --message 64B --load 0.3 --messages {messages} --no-out --json -"
        ))
    };
    assert_eq!(run(20)["state"], "not-steady");
    let long = run(2_000);
    assert_eq!(long["state"], "steady");
    let latency = |name: &str| long["latency_ns"][name].as_f64().unwrap();
    assert!(latency("p99") <= latency("p999") && latency("p999") <= latency("max"), "{long}");
}

#[test]
fn run_directory_contains_all_files() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "sim traffic --machine toy --messages 10 --seed 3 --links --json t.json --out here",
    );
    for word in ["accepted load", "rank-1", "here/report.html", "here/plot.png", "t.json"] {
        assert!(output.stdout.contains(word), "{word}\n{}", output.stdout);
    }
    let names = [
        "here",
        "here/inputs.json",
        "here/links.csv",
        "here/machine.toml",
        "here/machine.txt",
        "here/plot.png",
        "here/plot.svg",
        "here/report.html",
        "here/series.csv",
        "here/summary.json",
        "here/table.txt",
        "t.json",
    ];
    assert_eq!(dir.list_files(), names);
    let summary: Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    assert_eq!(summary, dir.document_of("t.json", "here"));
    let inputs: Value = serde_json::from_str(&dir.read("here/inputs.json")).unwrap();
    assert_eq!(inputs["settings"]["seed"], "3");
    assert!(inputs["command"].as_array().unwrap().contains(&"--messages".into()));
    assert!(dir.read("here/machine.txt").contains("network.rank1"));
    assert_eq!(dir.read("here/machine.toml"), include_str!("../../../../machines/toy.toml"));
    // The links' own counts add up to those of their classes.
    let document: Value = serde_json::from_str(&dir.read("t.json")).unwrap();
    let mut links = csv::Reader::from_path(dir.path().join("here/links.csv")).unwrap();
    let (class_column, bytes_column) = {
        let heading = links.headers().unwrap();
        let column = |name| heading.iter().position(|cell| cell == name).unwrap();
        (column("class"), column("bytes"))
    };
    let links: Vec<csv::StringRecord> = links.records().map(Result::unwrap).collect();
    for class in document["links"].as_array().unwrap() {
        let name = class["class"].as_str().unwrap();
        let of_class = links.iter().filter(|link| &link[class_column] == name);
        let bytes = of_class.map(|link| link[bytes_column].parse::<u64>().unwrap());
        assert_eq!(bytes.sum::<u64>(), class["bytes"].as_u64().unwrap());
    }
    assert!(
        dir.read("here/series.csv").starts_with("run,nodes,access,iteration,seconds,name,value\n")
    );
    assert!(output.stdout.contains(dir.read("here/table.txt").trim_end()));
}

#[test]
fn default_run_directories_are_numbered() {
    let dir = WorkDir::new();
    for number in 1..=3 {
        let output = dir.expect_success("sim traffic --machine toy --messages 2");
        assert!(
            output.stdout.contains(&format!("runs/traffic-toy-{number}/")),
            "{}",
            output.stdout
        );
    }
}

#[test]
fn invalid_input_is_refused_and_writes_nothing() {
    let dir = WorkDir::new();
    for (options, word) in [
        ("--pattern unifrom", "unknown traffic pattern"),
        ("--pattern hot-spot:nodes=0", "nodes"),
        ("--load 1.5", "at most 1"),
        ("--load much", "saturation"),
        ("--nodes 57", "56 compute nodes"),
        ("--groups 3-9", "groups 0 to 3"),
        ("--groups 2-1", "write 1-2"),
        ("--node-kind knl", "56 compute nodes of toy are of one type"),
        ("--machine cori --node-kind milan", "haswell (2388 nodes) and knl ("),
        ("--seeds 0", "--seeds"),
        ("--set network.node.tile_rate=fast", "--set network.node.tile_rate"),
        ("--set network.nod.tile_rate=1GB/s", "`network.node.tile_rate`"),
        ("--set network.node.tile_rate", "KEY=VALUE"),
        ("--sweep load", "KEY=VALUES"),
        ("--sweep laod=0.1,0.2", "--load"),
        ("--sweep load=0.1,2", "at most 1"),
        ("--load 0", "above 0"),
        ("--message 0B", "size above zero"),
        ("--message 4KB7", "--message"),
        ("--messages 0", "at least one"),
        ("--routing shortest", "known are"),
        ("--placement anywhere", "contiguous"),
        ("--packet 1GiB", "buffer"),
        ("--packet 8B", "to 16 KiB"),
        ("--set client.control_message=5KiB", "does not fit a packet"),
        ("--set client.mpi_envelope=5KiB", "does not fit a packet"),
        ("--threads 0", "--threads"),
        ("--seed -1", "whole number from 0"),
        ("--load 1e-300", "1e-300"),
        ("--messages 18446744073709551615", "the limit is 100000 s"),
        ("--json .", "--json"),
        ("--json no/such/dir.json", "no/such/dir.json"),
        ("--out no/such/dir", "not a directory"),
        ("--frobnicate", "--frobnicate"),
    ] {
        let error = dir.expect_invalid_input(&format!("sim traffic --machine toy {options}"));
        assert!(error.contains(word), "{options}: {error}");
    }
    dir.expect_invalid_input("sim traffic");
    dir.expect_invalid_input("sim traffic --machine nowhere");
}

#[test]
fn seeds_give_means_with_intervals() {
    let dir = WorkDir::new();
    let options = "sim traffic --machine toy --load 0.2 --messages 100 --no-out";
    let run = |more: &str| dir.json(&format!("{options} --json - {more}"));
    let three = run("--seeds 3 --seed 5");
    let replication = &three["replication"];
    assert_eq!(replication["seeds"], serde_json::json!([5, 6, 7]));
    let estimates = replication["estimates"].as_array().unwrap();
    let accepted = estimates.iter().find(|e| e["name"] == "accepted_load").unwrap();
    for (value, seed) in accepted["values"].as_array().unwrap().iter().zip([5, 6, 7]) {
        assert_eq!(*value, run(&format!("--seed {seed}"))["accepted_load"]);
    }
    assert!(accepted["half_width"].as_f64().unwrap() > 0.0);
    let output = dir.expect_success(&format!("{options} --seeds 3 --quiet"));
    assert!(output.stdout.contains("±") && output.stdout.contains("3 seeds"), "{}", output.stdout);
}

#[test]
fn set_number_of_the_machine_takes_effect_and_is_recorded() {
    let dir = WorkDir::new();
    let set = "--set network.node.latency=500ns";
    let latency = |more: &str| {
        let options = "sim traffic --machine toy --load 0.05 --messages 100 --no-out --json -";
        dir.json(&format!("{options} {more}"))["latency_ns"]["min"].as_f64().unwrap()
    };
    // Two node links, each 400 ns slower.
    assert_eq!(latency(set) - latency(""), 800.0);
    dir.expect_success(&format!("sim traffic --machine toy --messages 5 --out here {set}"));
    assert!(dir.read("here/machine.txt").contains("set on the command line instead of 100 ns"));
    assert!(dir.read("here/machine.toml").contains("latency = { value = \"500ns\""));
}

#[test]
fn sweep_writes_a_row_for_each_combination() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "sim traffic --machine toy --messages 60 --seeds 2 --sweep load=0.1..0.3+0.1 \
         --sweep routing=minimal,valiant --out here --json sweep.json",
    );
    let document: Value = serde_json::from_str(&dir.read("sweep.json")).unwrap();
    assert_eq!(document["kind"], "sweep");
    let points = document["points"].as_array().unwrap();
    assert_eq!(points.len(), 6);
    assert_eq!(points[1]["settings"]["load"], "0.1");
    assert_eq!(points[1]["settings"]["routing"], "valiant");
    // A point is what the same command without a sweep gives.
    let one = dir.json(
        "sim traffic --machine toy --messages 60 --seeds 2 --load 0.1 --routing valiant --no-out \
         --json -",
    );
    assert_eq!(points[1]["estimates"], one["replication"]["estimates"]);
    let csv = dir.read("here/sweep.csv");
    assert!(csv.starts_with("load,routing,accepted_load,accepted_load_ci95,"), "{csv}");
    assert_eq!(csv.lines().count(), 7);
    assert!(output.stdout.contains("valiant"), "{}", output.stdout);
    for name in ["plot.png", "plot.svg", "table.txt", "inputs.json", "summary.json"] {
        assert!(!dir.read_bytes(&format!("here/{name}")).is_empty(), "{name}");
    }
}

#[test]
fn existing_run_directory_is_refused_and_unchanged() {
    let dir = WorkDir::new();
    dir.expect_success("sim traffic --machine toy --messages 2 --out kept");
    let before = dir.read("kept/summary.json");
    let error = dir.expect_invalid_input("sim traffic --machine toy --messages 9 --out kept");
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(dir.read("kept/summary.json"), before);
}

#[test]
fn quiet_run_writes_nothing_to_standard_error() {
    let dir = WorkDir::new();
    let output = dir.expect_success("sim traffic --machine toy --messages 10 --quiet --no-out");
    assert_eq!(output.stderr, "");
}

/// 14 nodes of a group share one link of 20 GB/s: 17.9% of their own 8 GB/s.
#[test]
fn flows_give_the_accepted_load_and_no_latency() {
    let dir = WorkDir::new();
    let line = "sim traffic --machine toy --pattern adversarial --load 0.5 --routing minimal";
    let output = dir.expect_success(&format!("{line} --fidelity flow --out here --json run.json"));
    assert!(output.stdout.contains("flows have no queues"), "{}", output.stdout);
    assert!(output.stdout.contains("left out"), "{}", output.stdout);
    assert!(dir.read("here/report.html").contains("adversarial"));
    let run: Value = serde_json::from_str(&dir.read("run.json")).unwrap();
    assert_eq!((&run["fidelity"], &run["latency_ns"]), (&"flow".into(), &Value::Null));
    let accepted = run["accepted_load"].as_f64().unwrap();
    assert!((accepted - 20.0 / 14.0 / 8.0).abs() < 1e-6, "{accepted}");
    let error = dir.expect_invalid_input(&format!("{line} --fidelity flow --links --out there"));
    assert!(error.contains("--fidelity packet"), "{error}");
}

#[test]
fn automatic_fidelity_is_named() {
    let dir = WorkDir::new();
    let line = "sim traffic --machine toy --fidelity auto --no-out --json run.json --messages";
    let few = dir.expect_success(&format!("{line} 20"));
    assert!(few.stderr.contains("--fidelity auto: packets"), "{}", few.stderr);
    let many = dir.expect_success(&format!("{line} 100000000"));
    assert!(many.stderr.contains("--fidelity auto: flows"), "{}", many.stderr);
    let run: Value = serde_json::from_str(&dir.read("run.json")).unwrap();
    assert_eq!(run["fidelity"], "flow");
}

#[test]
fn saturation_with_several_seeds_says_whose_each_load_is() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "sim traffic --machine toy --load saturation --messages 20 --seeds 2 --seed 5 --no-out --quiet",
    );
    let line = |name: &str| {
        let line = output.stdout.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{}", output.stdout)).to_owned()
    };
    assert!(line("saturation").contains(" with seed 5 ("), "{}", output.stdout);
    assert!(line("accepted load").contains(", mean of the seeds ("), "{}", output.stdout);
}
