//! `forebay validate`.

use crate::forebay;
use forebay::WorkDir;
use std::collections::BTreeSet;

#[test]
fn validated_row_is_simulated_judged_and_written() {
    let dir = WorkDir::new();
    let output = dir.run("validate --case dw-write-streams --out here --json all.json");
    assert!(output.stdout.starts_with("Settled in view"), "{}{}", output.stdout, output.stderr);
    let document: serde_json::Value = serde_json::from_str(&dir.read("all.json")).unwrap();
    let row = &document["rows"][0];
    assert_eq!(row["row"], "dw-write-streams");
    assert_eq!(row["measured"], 16.0);
    assert_eq!(row["steps"].as_array().unwrap().len(), 7);
    let code = if row["met"] == true { 0 } else { 1 };
    assert_eq!(output.code, Some(code), "{}", output.stderr);
    for name in ["table.txt", "summary.json", "validation.csv", "inputs.json"] {
        assert!(!dir.read(&format!("here/{name}")).is_empty());
    }
    assert!(!dir.read_bytes("here/sweeps/dw-write-streams.png").is_empty());
}

/// As validation/accuracy.csv.
#[test]
fn simulated_values_are_printed_as_csv() {
    let dir = WorkDir::new();
    let output = dir.run("validate --case dw-best-transfer --format csv --no-out --quiet").stdout;
    let lines: Vec<&str> = output.lines().collect();
    let [heading, row] = lines.as_slice() else { panic!("{output}") };
    assert_eq!(*heading, "row,status,simulated,error_percent,holds");
    assert_eq!(*row, "dw-best-transfer,settled in view,262144.0,-50.0,true");
}

#[test]
fn unknown_case_is_refused_with_the_known_ones() {
    let dir = WorkDir::new();
    let error = dir.expect_invalid_input("validate --case moon");
    assert!(error.contains("shaheen2-write"), "{error}");
}

#[test]
fn row_with_a_replaced_number_is_marked_as_altered_and_changes() {
    let dir = WorkDir::new();
    let line = "validate --case dw-write-streams --out here --json all.json --set";
    let output = dir.run(&format!("{line} client.write_rate=0.1GB/s"));
    assert!(output.stdout.starts_with("ALTERED"), "{}", output.stdout);
    let document: serde_json::Value = serde_json::from_str(&dir.read("all.json")).unwrap();
    assert_eq!(document["altered"], serde_json::json!(["client.write_rate=0.1GB/s"]));
    let row = &document["rows"][0];
    assert_eq!((&row["status"], &row["status_reasons"]), (&"ALTERED".into(), &document["altered"]));
    // One process can use the whole of so slow a client.
    assert_eq!(row["simulated"], 1.0);
    assert!(dir.read("here/accuracy.md").contains("**ALTERED**"));
    let error = dir.expect_invalid_input("validate --case shaheen2 --set client.speed=1");
    assert!(error.contains("client.speed"), "{error}");
}

#[test]
fn sensitivity_finds_the_deciding_parameter_and_writes_table_and_pictures() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "validate --case dw-write-streams --sensitivity --trajectories 2 --out here \
         --parameter client.write_rate --parameter burst_buffer.sync",
    );
    assert!(output.stderr.contains("11 machines in 1 cases"), "{}", output.stderr);
    let document: serde_json::Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    let row = &document["rows"][0];
    assert_eq!(row["row"], "dw-write-streams");
    let found = &row["sensitivities"];
    assert_eq!(found[0]["parameter"], "client.write_rate");
    assert_eq!(found[0]["low"], 3_120_000_000_u64);
    // All processes share the node's client.
    let elasticity = found[0]["elasticity"].as_f64().unwrap();
    assert!((0.5..=1.0).contains(&elasticity), "{found}");
    assert!(found[0]["mu_star"].as_f64().unwrap() > 0.5, "{found}");
    // A test without fsync does not depend on its cost.
    assert_eq!(found[1]["parameter"], "burst_buffer.sync");
    assert_eq!((&found[1]["elasticity"], &found[1]["mu_star"]), (&0.0.into(), &0.0.into()));
    assert!(output.stdout.contains("client.write_rate"), "{}", output.stdout);
    assert_eq!(dir.read("here/sensitivity.csv").lines().count(), 3);
    assert!(dir.read("here/tornado/dw-write-streams.svg").contains("client.write_rate"));
    assert!(!dir.read_bytes("here/tornado/dw-write-streams.png").is_empty());
    let error =
        dir.expect_invalid_input("validate --case dw-write-streams --sensitivity --parameter moon");
    assert!(error.contains("client.write_rate"), "{error}");
}

#[test]
fn row_of_messages_has_the_quantity_of_its_command() {
    let dir = WorkDir::new();
    let output = dir.run("validate --case dom-allreduce-6-8B --seeds 2 --out here --json all.json");
    let document: serde_json::Value = serde_json::from_str(&dir.read("all.json")).unwrap();
    let row = &document["rows"][0];
    assert_eq!((&row["row"], &row["status"]), (&"dom-allreduce-6-8B".into(), &"calibrated".into()));
    let command = row["command"].as_str().unwrap().strip_prefix("forebay ").unwrap();
    let of_seed = |seed| {
        let run = dir.json(&format!("{command} --seed {seed} --no-out --json -"));
        run["alone"]["process_mean_seconds"].as_f64().unwrap() * 1e6
    };
    let mean = (of_seed(1) + of_seed(2)) / 2.0;
    let simulated = row["simulated"].as_f64().unwrap();
    assert!((simulated - mean).abs() < 1e-9, "{simulated}, by the command {mean}");
    assert!(row["interval"].as_f64().is_some(), "{row}");
    if row["met"] == false {
        assert!(output.stdout.contains("misses because: "), "{}", output.stdout);
    }
    assert!(dir.read("here/accuracy.md").contains("| dom-allreduce-6-8B |"));
}

/// Two overheads of 250 ns, two links of 350 ns and a router of 100 ns, and some nanoseconds for 72 bytes.
#[test]
fn message_between_neighbours_takes_the_time_of_the_white_paper() {
    let dir = WorkDir::new();
    for machine in ["edison", "piz-daint"] {
        let command = "--groups 0 --nodes 2 --size 8B --iterations 20 --no-out --json -";
        let run = dir.json(&format!("sim collective ping-pong --machine {machine} {command}"));
        let one_way = run["one_way_seconds"].as_f64().unwrap() * 1e9;
        assert!((1300.0..1315.0).contains(&one_way), "{machine}: {one_way} ns");
    }
}

#[test]
fn sensitivity_of_a_latency_is_the_share_of_its_overheads() {
    let dir = WorkDir::new();
    dir.expect_success(
        "validate --case daint-latency-8B --sensitivity --trajectories 0 --out here \
         --deciding",
    );
    let document: serde_json::Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    let row = &document["rows"][0];
    let latency = row["simulated"].as_f64().unwrap();
    let found = row["sensitivities"].as_array().unwrap();
    let keys: Vec<&str> = found.iter().map(|s| s["parameter"].as_str().unwrap()).collect();
    let deciding = ["client.mpi_overhead", "network.node.latency", "network.router_traversal"];
    assert_eq!(keys.iter().collect::<BTreeSet<_>>(), deciding.iter().collect(), "--deciding");
    assert_eq!(keys[0], "network.node.latency");
    assert!(dir.read("here/sensitivity.md").contains("| daint-latency-8B | "));
    let elasticity = found[0]["elasticity"].as_f64().unwrap();
    // Two links of 350 ns, from 280 to 437.5 ns.
    let rest = latency - 0.7;
    let by_hand = ((0.875 + rest) / (0.56 + rest)).ln() / (437.5_f64 / 280.0).ln();
    assert!((elasticity - by_hand).abs() < 0.01, "{elasticity}, by hand {by_hand}");
}

#[test]
fn network_is_compared_with_theory_and_peers() {
    let dir = WorkDir::new();
    let output = dir.run("validate --network --quick --out here --json all.json");
    let document: serde_json::Value = serde_json::from_str(&dir.read("all.json")).unwrap();
    let rows = document["rows"].as_array().unwrap();
    let theory: Vec<_> =
        rows.iter().filter(|r| r["case"].as_str().unwrap().starts_with("theory-")).collect();
    assert!(theory.len() >= 10, "{}", output.stdout);
    for row in theory {
        assert_eq!(row["met"], true, "{row}");
    }
    let code = if rows.iter().all(|r| r["met"] == true) { 0 } else { 1 };
    assert_eq!(output.code, Some(code), "{}", output.stderr);
    let svg = dir.read("here/network/booksim2-adversarial-minimal.svg");
    assert!(svg.contains("ours") && svg.contains("peer"));
    assert!(dir.read("here/network.csv").starts_with("case,quantity,load,theirs,ours"));
    let error = dir.expect_invalid_input("validate --network --case moon");
    assert!(error.contains("codes-uniform-minimal"), "{error}");
}

#[test]
fn rows_of_ior_are_judged_with_flows_and_others_are_named_as_omitted() {
    let dir = WorkDir::new();
    let line =
        "validate --fidelity flow --case dw-write-streams --case aries-latency-8B --out here";
    let output = dir.run(line);
    assert!(output.code.is_some_and(|code| code < 2), "{}", output.stderr);
    assert!(
        output.stderr.contains("aries-latency-8B is omitted: messages are packets"),
        "{}",
        output.stderr
    );
    let document: serde_json::Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    let rows: Vec<&str> =
        document["rows"].as_array().unwrap().iter().map(|r| r["row"].as_str().unwrap()).collect();
    assert_eq!(rows, ["dw-write-streams"]);
    assert!(document["rows"][0]["simulated"].as_f64().unwrap() > 0.0);
}

#[test]
fn grid_of_fidelities_refuses_options_of_the_comparison_with_measurements() {
    let dir = WorkDir::new();
    for option in ["--case shaheen2", "--set client.write_rate=1GB/s", "--seeds 3"] {
        let error = dir.expect_invalid_input(&format!("validate --fidelity both {option}"));
        assert!(error.contains("--fidelity both"), "{option}: {error}");
    }
}

#[test]
fn grid_without_a_case_is_no_success() {
    let dir = WorkDir::new();
    let error = dir.expect_invalid_input("validate --fidelity both --quick --cases test");
    assert!(error.contains("no case is of the chosen sets"), "{error}");
    assert!(dir.list_files().is_empty());
}

#[test]
fn options_of_the_grid_are_refused_without_it() {
    let dir = WorkDir::new();
    for option in ["--results here", "--case-time 1min", "--cases test", "--kinds traffic"] {
        let error = dir.expect_invalid_input(&format!("validate --quick {option}"));
        assert!(error.contains("--fidelity both"), "{option}: {error}");
    }
}
