//! The simulated values of the published rows: `validation/accuracy.csv`, embedded.

use super::verdict::Row;
use crate::csv_files::to_csv;
use forebay_console::Failure;
use serde::Deserialize;

const TEXT: &str = include_str!("../../../../../validation/accuracy.csv");

const HEADING: [&str; 5] = ["row", "status", "simulated", "error_percent", "holds"];

/// A published row as it was simulated last, with packets.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Simulated {
    /// Its id.
    pub row: String,
    /// `predicted`, `calibrated` or `settled in view`.
    pub status: String,
    /// The simulated value, if it is a number.
    pub simulated: Option<f64>,
    /// 100 × (simulated − measured) / measured.
    pub error_percent: Option<f64>,
    /// Whether it is within the accepted range.
    pub holds: bool,
}

/// All of them.
///
/// # Errors
/// [`Failure::Failed`] if the embedded file is wrong.
pub fn all() -> Result<Vec<Simulated>, Failure> {
    csv::Reader::from_reader(TEXT.as_bytes())
        .deserialize()
        .collect::<Result<_, csv::Error>>()
        .map_err(|e| Failure::Failed(format!("validation/accuracy.csv: {e}")))
}

/// The file for these rows.
///
/// # Errors
/// [`Failure::Failed`] if they cannot be written as CSV.
pub fn csv_of(rows: &[Row]) -> Result<String, Failure> {
    to_csv(&HEADING, rows.iter().map(|r| (&r.row, &r.status, r.simulated, r.error_percent, r.met)))
}
