//! Whether a row is predicted: the sources of the parameters that decide it.

use super::published::Published;
use forebay_machine_file::machine::Provenance;

/// The standing of a row, from the least to the most that was known of it beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// No deciding parameter depends on the row.
    Predicted,
    /// A deciding parameter, or the way of comparing, was chosen when the row was known.
    SettledInView,
    /// A deciding parameter was fitted to the row or taken from its document.
    Calibrated,
    /// Numbers of the machine file were replaced: the row says nothing about the file.
    Altered,
}

impl Status {
    /// All, in the order of tables.
    pub const ALL: [Status; 4] =
        [Status::Predicted, Status::Calibrated, Status::SettledInView, Status::Altered];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Status::Predicted => "predicted",
            Status::SettledInView => "settled in view",
            Status::Calibrated => "calibrated",
            Status::Altered => "ALTERED",
        }
    }

    /// The heading and explanation of its group of rows.
    pub fn heading(self) -> (&'static str, &'static str) {
        match self {
            Status::Predicted => {
                ("Predicted", "no parameter that decides these rows depends on them")
            }
            Status::Calibrated => (
                "Calibrated",
                "a parameter that decides these rows was fitted to them or comes from their document",
            ),
            Status::SettledInView => (
                "Settled in view",
                "a parameter that decides these rows, or the comparison, was chosen when they were known",
            ),
            Status::Altered => (
                "ALTERED",
                "numbers of the machine files were replaced on the command line: no validation",
            ),
        }
    }
}

/// The parts of a comparison on which the standing of its row depends.
#[derive(Clone, Copy, Debug)]
pub struct Basis<'a> {
    /// The row's id in `published.csv`.
    pub row: &'a str,
    /// Keys of the machine file's parameters that decide the simulated value.
    pub decided_by: &'a [String],
    /// Parts of the comparison, not of the machine file, that were chosen when the row was known.
    pub settled_in_view: Option<&'a str>,
}

/// The standing of a row and the reasons for it, which are none for a predicted row.
pub fn status(
    basis: Basis<'_>,
    published: &Published,
    provenance: &[Provenance],
) -> (Status, Vec<String>) {
    let mut reasons = Vec::new();
    let documents: Vec<&str> = published.documents.split_whitespace().collect();
    for number in provenance.iter().filter(|p| basis.decided_by.contains(&p.key)) {
        let key = &number.key;
        if number.calibrated.as_deref() == Some(basis.row) {
            reasons.push((Status::Calibrated, format!("{key} was fitted to it")));
        }
        if let Some(id) = number.source_id.as_deref().filter(|id| documents.contains(id)) {
            reasons.push((Status::Calibrated, format!("{key} is from the same document ({id})")));
        }
        if number.settled_in_view.iter().any(|row| row == basis.row) {
            reasons.push((Status::SettledInView, format!("{key} was chosen when it was known")));
        }
    }
    if let Some(reason) = basis.settled_in_view {
        reasons.push((Status::SettledInView, reason.to_string()));
    }
    let status = reasons.iter().map(|(status, _)| *status).max().unwrap_or(Status::Predicted);
    let of_status = reasons.into_iter().filter(|(s, _)| *s == status);
    (status, of_status.map(|(_, reason)| reason).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::cases::{self, Check};
    use crate::validate::{comparison, published};
    use forebay_machine_file::machine::Machine;

    fn number(key: &str) -> Provenance {
        Provenance {
            key: key.into(),
            value: "1".into(),
            source: "a data sheet".into(),
            source_id: Some("sheet".into()),
            calibrated: None,
            settled_in_view: Vec::new(),
            base: None,
        }
    }

    fn check_and_row() -> (Check, Published) {
        let case = cases::all().unwrap().remove(0);
        let mut check = case.check[0].clone();
        check.decided_by = vec!["a".into(), "b".into()];
        check.settled_in_view = None;
        let table = published::all().unwrap();
        let row = published::measurement(&check.row, &table).unwrap().clone();
        (check, row)
    }

    #[test]
    fn row_is_predicted_while_no_deciding_parameter_depends_on_it() {
        let (check, row) = check_and_row();
        let mut other = number("c");
        other.calibrated = Some(check.row.clone());
        let mut elsewhere = number("b");
        elsewhere.calibrated = Some("another-row".into());
        let (status, reasons) = status(check.basis(), &row, &[number("a"), elsewhere, other]);
        assert_eq!((status, reasons.len()), (Status::Predicted, 0));
    }

    #[test]
    fn fitted_parameter_or_common_document_makes_a_row_calibrated() {
        let (check, row) = check_and_row();
        let mut fitted = number("a");
        fitted.calibrated = Some(check.row.clone());
        assert_eq!(status(check.basis(), &row, &[fitted]).0, Status::Calibrated);
        let of_document = Published { documents: "slides sheet".into(), ..row };
        let (status, reasons) = status(check.basis(), &of_document, &[number("b")]);
        assert_eq!(status, Status::Calibrated);
        assert_eq!(reasons, ["b is from the same document (sheet)"]);
    }

    #[test]
    fn choice_with_the_row_in_view_is_no_prediction() {
        let (mut check, row) = check_and_row();
        let mut settled = number("a");
        settled.settled_in_view = vec![check.row.clone()];
        assert_eq!(status(check.basis(), &row, &[settled.clone()]).0, Status::SettledInView);
        check.settled_in_view = Some("the criterion was changed".into());
        let (standing, reasons) = status(check.basis(), &row, &[]);
        assert_eq!(standing, Status::SettledInView);
        assert_eq!(reasons, ["the criterion was changed"]);
        settled.calibrated = Some(check.row.clone());
        assert_eq!(status(check.basis(), &row, &[settled]).0, Status::Calibrated);
    }

    /// Every number that is tagged with a row decides a check of that row on its machine.
    #[test]
    fn deciding_parameters_and_tagged_rows_exist() {
        let table = published::all().unwrap();
        for case in comparison::all().unwrap() {
            let machine = Machine::load(case.machine()).unwrap();
            for basis in case.bases() {
                assert!(!basis.decided_by.is_empty(), "{}", basis.row);
                for key in basis.decided_by {
                    let found = machine.provenance.iter().any(|p| p.key == *key);
                    assert!(found, "{}: {} has no {key}", basis.row, case.machine());
                }
            }
            for p in &machine.provenance {
                for row in p.settled_in_view.iter().chain(&p.calibrated) {
                    assert!(table.iter().any(|r| r.id == *row), "{}: {row}", p.key);
                }
            }
        }
    }
}
