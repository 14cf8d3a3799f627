//! `forebay validate`, as it is used.
#![allow(clippy::unwrap_used)]

mod forebay;
use forebay::Place;

#[test]
fn one_row_is_run_judged_and_written() {
    let place = Place::new();
    let said = place.run("validate --case dw-write-streams --out here --json all.json");
    assert!(
        said.out.starts_with("published row"),
        "{}{}",
        said.out,
        said.err
    );
    let document: serde_json::Value = serde_json::from_str(&place.read("all.json")).unwrap();
    let row = &document["rows"][0];
    assert_eq!(row["row"], "dw-write-streams");
    assert_eq!(row["measured"], 16.0);
    assert_eq!(row["steps"].as_array().unwrap().len(), 7);
    let code = if row["met"] == true { 0 } else { 1 };
    assert_eq!(said.code, Some(code), "{}", said.err);
    for name in ["table.txt", "summary.json", "validation.csv", "inputs.json"] {
        assert!(!place.read(&format!("here/{name}")).is_empty());
    }
    assert!(
        !place
            .read_bytes("here/sweeps/dw-write-streams.png")
            .is_empty()
    );
}

#[test]
fn an_unknown_case_is_refused() {
    let place = Place::new();
    let error = place.refused("validate --case moon");
    assert!(error.contains("shaheen2-write"), "{error}");
}
