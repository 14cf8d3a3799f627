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
