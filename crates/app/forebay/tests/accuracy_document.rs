//! The table of docs/accuracy.md is that of `forebay validate --format markdown`, and the README sums it up.

use crate::forebay;
use forebay::WorkDir;
use forebay_app::validate::accuracy;
use forebay_app::validate::comparison::{self, Comparison};
use forebay_app::validate::published::{self, measurement};
use forebay_app::validate::status::{Status, status};
use forebay_app::validate::{markdown, messages, verdict};
use forebay_machine_file::machine::Machine;
use forebay_units::human::number;
use std::collections::BTreeSet;

const ACCURACY: &str = include_str!("../../../../docs/accuracy.md");
const SENSITIVITY: &str = include_str!("../../../../validation/sensitivity.md");
const README: &str = include_str!("../../../../README.md");

/// The lines of the table after a text, without its head.
fn table_after(document: &'static str, text: &str) -> Vec<&'static str> {
    let (_, after) = document.split_once(text).unwrap_or(("", ""));
    let table = after.lines().skip(1).skip_while(|line| !line.starts_with('|')).skip(2);
    table.take_while(|line| line.starts_with('|')).collect()
}

/// The lines of a group in the document.
fn lines_of_document(status: Status) -> Vec<&'static str> {
    table_after(ACCURACY, &format!("**{}**", status.heading().0))
}

/// A group in the document, without the simulated cells.
fn rows_of_document(status: Status) -> BTreeSet<String> {
    let cells = |line: &str| line.split('|').take(4).collect::<Vec<_>>().join("|") + "|";
    lines_of_document(status).into_iter().map(cells).collect()
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
fn document_has_the_rows_of_each_group() {
    for status in Status::ALL {
        assert_eq!(rows_of_document(status), rows_of_program(status), "{}", status.name());
    }
}

/// The values from which notes about predictions are derived are those of the table.
#[test]
fn simulated_values_are_those_of_the_document() {
    let simulated = accuracy::all().unwrap();
    let mut lines = 0;
    for status in Status::ALL {
        for line in lines_of_document(status) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let found: Vec<_> = simulated.iter().filter(|one| one.row == cells[1]).collect();
            let [one] = found.as_slice() else { panic!("{line}: {found:?}") };
            let shown = |value: Option<String>| value.unwrap_or_else(|| "–".into());
            let value = shown(one.simulated.map(number));
            let error = shown(one.error_percent.map(|error| format!("{error:+.1}%")));
            assert_eq!((value.as_str(), error.as_str()), (cells[4], cells[5]), "{line}");
            assert_eq!(one.status, status.name(), "{line}");
            assert_eq!(one.holds, cells[8] == "holds", "{line}");
            lines += 1;
        }
    }
    assert_eq!(lines, simulated.len());
}

/// Beginnings of the keys of the numbers that decide a row which a resource limits.
fn numbers_of(limit: &str) -> &'static [&'static str] {
    match limit {
        "node-link" => &["network.node."],
        "global-link" => &["network.global.", "network.cables_per_group_pair"],
        "client" => &["client.", "pfs.lustre."],
        "ssd" => &["burst_buffer.card_"],
        "ost" => &["pfs.lustre.target_"],
        "server" => &[
            "burst_buffer.data_rate",
            "burst_buffer.dispatch",
            "burst_buffer.lock_",
            "pfs.lustre.dispatch",
            "pfs.lustre.server_rate",
            "pfs.lustre.lock_callback",
            "pfs.lustre.target_latency",
        ],
        _ => panic!("{limit}"),
    }
}

#[test]
fn numbers_of_the_limiting_resource_decide_a_row() {
    let bases = comparison::all().unwrap();
    let decided_by = |row: &str| {
        let basis = bases.iter().flat_map(|case| case.bases()).find(|basis| basis.row == row);
        basis.unwrap().decided_by.to_vec()
    };
    for line in Status::ALL.into_iter().flat_map(lines_of_document) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells[7] == "–" {
            continue;
        }
        let known = numbers_of(cells[7]);
        let decided_by = decided_by(cells[1]);
        let named = decided_by.iter().any(|key| known.iter().any(|one| key.starts_with(one)));
        assert!(named, "{line}: {known:?} decide it, {decided_by:?} are named");
    }
}

/// Rows of a sweep have the best rate there, and another quantity in the table.
#[test]
fn rows_have_the_same_values_in_the_table_of_sensitivities() {
    let simulated = accuracy::all().unwrap();
    let mut compared = 0;
    for line in SENSITIVITY.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let one = simulated.iter().find(|one| one.row == cells[1]).unwrap();
        if !one.row.starts_with("dw-") {
            let value = cells[2].split(' ').next();
            assert_eq!(value, one.simulated.map(number).as_deref(), "{line}");
            compared += 1;
        }
    }
    let of_messages = messages::all().unwrap();
    assert_eq!(compared, of_messages.iter().map(|case| case.check.len()).sum::<usize>());
}

/// Numbers of rows of a group in the document: those that hold, and all.
fn count(status: Status) -> (usize, usize) {
    let lines = lines_of_document(status);
    (lines.iter().filter(|line| line.ends_with("| holds |")).count(), lines.len())
}

#[test]
fn readme_has_the_numbers_of_the_document() {
    for status in Status::ALL {
        let (holds, all) = count(status);
        if all == 0 {
            continue;
        }
        assert!(README.contains(&format!("{holds} of {all}")), "{}", status.name());
        let heading = format!("**{}** ({holds} of {all} rows hold)", status.heading().0);
        assert!(ACCURACY.contains(&heading), "{heading}");
    }
    let cell = |line: &str| {
        let (holds, all) = line.split('|').nth(2).unwrap().trim().split_once(" of ").unwrap();
        (holds.parse::<usize>().unwrap(), all.parse::<usize>().unwrap())
    };
    let cells = table_after(README, "## Accuracy of the twin\n").into_iter().map(cell);
    let sum = cells.fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    assert_eq!(sum, count(Status::Predicted));
}

/// The rows of messages take seconds.
#[test]
fn document_says_which_rows_of_messages_hold() {
    let dir = WorkDir::new();
    let mut line = "validate --quiet --no-out --json all.json".to_string();
    for case in messages::all().unwrap() {
        line.push_str(&format!(" --case {}", case.id));
    }
    dir.run(&line);
    let document: serde_json::Value = serde_json::from_str(&dir.read("all.json")).unwrap();
    for row in document["rows"].as_array().unwrap() {
        let name = row["row"].as_str().unwrap();
        let line = ACCURACY.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
        let holds = line.ends_with("| holds |");
        assert!(holds || line.ends_with("| **misses** |"), "{line}");
        assert_eq!(row["met"], holds, "{row}");
        assert_eq!(row["misses"].is_null(), holds, "a row that misses has its reason: {row}");
    }
}
