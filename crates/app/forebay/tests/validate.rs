//! `forebay validate`.
#![allow(clippy::unwrap_used)]

mod forebay;
use forebay::WorkDir;

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

#[test]
fn unknown_case_is_refused_with_the_known_ones() {
    let dir = WorkDir::new();
    let error = dir.expect_invalid_input("validate --case moon");
    assert!(error.contains("shaheen2-write"), "{error}");
}

#[test]
fn row_with_a_replaced_number_is_marked_as_altered_and_changes() {
    let dir = WorkDir::new();
    let line = "validate --case trinity-client-write --no-out --json -";
    let row = |settings: &str| {
        let output = dir.run(&format!("{line} {settings}")).stdout;
        let document: serde_json::Value = serde_json::from_str(&output).unwrap();
        (document["rows"][0].clone(), document["altered"].clone())
    };
    let (original, none) = row("");
    assert_eq!((&original["status"], none), (&"settled in view".into(), serde_json::json!([])));
    let (altered, settings) = row("--set client.write_rate=1GB/s");
    assert_eq!(altered["status"], "ALTERED");
    assert_eq!(altered["status_reasons"], settings);
    assert_eq!(settings, serde_json::json!(["client.write_rate=1GB/s"]));
    assert!(altered["simulated"].as_f64() < original["simulated"].as_f64());
    let text =
        dir.run("validate --case trinity-client-write --no-out --set client.write_rate=1GB/s");
    assert!(text.stdout.starts_with("ALTERED"), "{}", text.stdout);
    let error = dir.expect_invalid_input("validate --case shaheen2 --set client.speed=1");
    assert!(error.contains("client.speed"), "{error}");
}

#[test]
fn sensitivity_finds_the_deciding_parameter_and_writes_table_and_pictures() {
    let dir = WorkDir::new();
    let output = dir.expect_success(
        "validate --case trinity-client-write --sensitivity --trajectories 2 --out here \
         --parameter client.write_rate --parameter burst_buffer.sync",
    );
    assert!(output.stderr.contains("11 machines in 1 cases"), "{}", output.stderr);
    let document: serde_json::Value = serde_json::from_str(&dir.read("here/summary.json")).unwrap();
    let row = &document["rows"][0];
    assert_eq!(row["row"], "trinity-client-write");
    let found = &row["sensitivities"];
    // A test without fsync does not depend on its cost.
    assert_eq!(found[1]["parameter"], "burst_buffer.sync");
    assert_eq!((&found[1]["elasticity"], &found[1]["mu_star"]), (&0.0.into(), &0.0.into()));
    assert_eq!(found[0]["parameter"], "client.write_rate");
    assert_eq!(found[0]["low"], 1_920_000_000_u64);
    let (elasticity, mu_star) = (&found[0]["elasticity"], &found[0]["mu_star"]);
    assert!((0.5..1.1).contains(&elasticity.as_f64().unwrap()), "{elasticity}");
    assert!((0.5..1.1).contains(&mu_star.as_f64().unwrap()), "{mu_star}");
    assert!(output.stdout.contains("client.write_rate"), "{}", output.stdout);
    assert_eq!(dir.read("here/sensitivity.csv").lines().count(), 3);
    assert!(dir.read("here/tornado/trinity-client-write.svg").contains("client.write_rate"));
    assert!(!dir.read_bytes("here/tornado/trinity-client-write.png").is_empty());
    let error = dir.expect_invalid_input(
        "validate --case trinity-client-write --sensitivity --parameter moon",
    );
    assert!(error.contains("client.write_rate"), "{error}");
}
