//! The JSON documents: documented field by field, and read back as they were written. The table of
//! guarantees: its tests exist. Tests: all are compiled.

use crate::sample;
use forebay_machine::results::{
    CollectiveRun, DarshanRun, InterferenceRun, IorStudy, SCHEMA, TrafficRun,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const DOCUMENTATION: &str = include_str!("../../../../docs/results.md");
const BUFFER: &str = include_str!("../../../buffer/README.md");

pub(crate) fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                fields(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|v| fields(v, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_result_documents_is_documented() {
    let mut found = BTreeSet::new();
    let documents = [
        serde_json::to_value(sample::study()),
        serde_json::to_value(sample::traffic()),
        serde_json::to_value(sample::interference()),
        serde_json::to_value(sample::collective()),
        serde_json::to_value(sample::darshan()),
        serde_json::to_value(sample::validation_row()),
    ];
    for document in documents {
        fields(&document.expect("JSON"), &mut found);
    }
    assert!(found.contains("write_GBps") && found.contains("p999") && found.contains("scaling"));
    let missing: Vec<&String> =
        found.iter().filter(|f| !DOCUMENTATION.contains(&format!("`{f}`"))).collect();
    assert!(missing.is_empty(), "docs/results.md does not name {missing:?}");
    assert!(DOCUMENTATION.contains(&format!("now {SCHEMA}.")));
}

#[test]
fn result_documents_round_trip_through_json() {
    // Not assert_eq: the two would be printed, megabytes of them.
    let study = sample::study();
    let text = serde_json::to_string(&study).expect("JSON");
    assert!(serde_json::from_str::<IorStudy>(&text).expect("a study") == study);
    let run = sample::traffic();
    let text = serde_json::to_string(&run).expect("JSON");
    assert!(serde_json::from_str::<TrafficRun>(&text).expect("a run") == run);
    let run = sample::interference();
    let text = serde_json::to_string(&run).expect("JSON");
    assert!(serde_json::from_str::<InterferenceRun>(&text).expect("a run") == run);
    let run = sample::collective();
    let text = serde_json::to_string(&run).expect("JSON");
    assert!(serde_json::from_str::<CollectiveRun>(&text).expect("a run") == run);
    let run = sample::darshan();
    let text = serde_json::to_string(&run).expect("JSON");
    assert!(serde_json::from_str::<DarshanRun>(&text).expect("a run") == run);
}

#[test]
fn tests_of_the_buffers_guarantees_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../buffer");
    let table = BUFFER.lines().skip_while(|line| !line.starts_with("| guarantee"));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    for row in rows {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        let tests: Vec<(&str, &str)> =
            tests.split('`').filter_map(|test| test.split_once("::")).collect();
        assert!(!tests.is_empty(), "no test: {row}");
        for (file, function) in tests {
            let text = std::fs::read_to_string(crates.join(file)).unwrap_or_default();
            assert!(text.contains(&format!("fn {function}(")), "no test {file}::{function}");
        }
    }
}

/// Packages whose test programs are listed, because most files are modules of one of them.
#[test]
fn every_file_of_tests_is_compiled() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut packages = 0;
    for group in std::fs::read_dir(crates).unwrap() {
        for package in std::fs::read_dir(group.unwrap().path()).unwrap() {
            let package = package.unwrap().path();
            let manifest = std::fs::read_to_string(package.join("Cargo.toml")).unwrap_or_default();
            if !manifest.contains("autotests = false") {
                continue;
            }
            packages += 1;
            let tests = package.join("tests");
            let modules = std::fs::read_to_string(tests.join("main.rs")).unwrap();
            for entry in std::fs::read_dir(&tests).unwrap() {
                let file = entry.unwrap().path();
                let name = file.file_stem().unwrap().to_str().unwrap();
                let is_target = |path: &str| manifest.contains(&format!("path = \"tests/{path}\""));
                let is_compiled = if file.is_dir() {
                    is_target(&format!("{name}/main.rs")) || !file.join("main.rs").exists()
                } else {
                    is_target(&format!("{name}.rs")) || modules.contains(&format!("mod {name};"))
                };
                let is_source = file.is_dir() || file.extension().is_some_and(|word| word == "rs");
                assert!(is_compiled || !is_source, "nothing compiles {}", file.display());
            }
        }
    }
    assert!(packages > 10, "{packages}");
}
