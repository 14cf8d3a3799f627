//! The accuracy table of the README is that of `forebay validate --format markdown`.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod forebay;
use forebay::WorkDir;
use forebay_app::validate::comparison::{self, Comparison};
use forebay_app::validate::published::{self, measurement};
use forebay_app::validate::status::{Status, status};
use forebay_app::validate::{markdown, messages, verdict};
use forebay_machine_file::machine::Machine;
use std::collections::BTreeSet;

/// The table in the README, without the simulated cells.
fn rows_of_readme(status: Status) -> BTreeSet<String> {
    let readme = include_str!("../../../../README.md");
    let heading = format!("**{}**", status.heading().0);
    let (_, after) = readme.split_once(&heading).unwrap_or(("", ""));
    let table = after.lines().skip(1).skip_while(|line| !line.starts_with('|')).skip(2);
    let cells = |line: &str| line.split('|').take(4).collect::<Vec<_>>().join("|") + "|";
    table.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// The rows that the program would print in a group.
fn rows_of_program(of_status: Status) -> BTreeSet<String> {
    let table = published::all().unwrap();
    let mut rows = BTreeSet::new();
    for case in comparison::all().unwrap() {
        let numbers = Machine::load(case.machine()).unwrap().provenance;
        let compared: Vec<String> = match &case {
            Comparison::Ior(case) => case.check.iter().map(verdict::compared).collect(),
            Comparison::Messages(case) => {
                case.check.iter().map(|check| check.compared.clone()).collect()
            }
        };
        for (basis, compared) in case.bases().into_iter().zip(&compared) {
            let row = measurement(basis.row, &table).unwrap();
            if status(basis, row, &numbers).0 == of_status {
                let measured = row.number();
                rows.insert(markdown::fixed_cells(basis.row, measured, &row.unit, compared));
            }
        }
    }
    rows
}

#[test]
fn readme_has_the_rows_of_each_group() {
    for status in Status::ALL {
        assert_eq!(rows_of_readme(status), rows_of_program(status), "{}", status.name());
    }
}

/// The rows of messages take seconds.
#[test]
fn readme_says_which_rows_of_messages_hold() {
    let dir = WorkDir::new();
    let mut line = "validate --quiet --no-out --json all.json".to_string();
    for case in messages::all().unwrap() {
        line.push_str(&format!(" --case {}", case.id));
    }
    dir.run(&line);
    let document: serde_json::Value = serde_json::from_str(&dir.read("all.json")).unwrap();
    let readme = include_str!("../../../../README.md");
    for row in document["rows"].as_array().unwrap() {
        let name = row["row"].as_str().unwrap();
        let line = readme.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
        let holds = line.ends_with("| holds |");
        assert!(holds || line.ends_with("| **misses** |"), "{line}");
        assert_eq!(row["met"], holds, "{row}");
        assert_eq!(row["misses"].is_null(), holds, "a row that misses has its reason: {row}");
    }
}
