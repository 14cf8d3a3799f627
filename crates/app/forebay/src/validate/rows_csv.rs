//! The rows of a comparison with published measurements as CSV.

use super::verdict::Row;
use crate::csv_files::to_csv;
use forebay_console::Failure;

const HEADING: [&str; 27] = [
    "row",
    "case",
    "machine",
    "measured",
    "simulated",
    "unit",
    "compared",
    "error_percent",
    "alternative",
    "alternative_simulated",
    "alternative_error_percent",
    "interval",
    "steady_GBps",
    "limit",
    "status",
    "status_reasons",
    "decided_by",
    "p5",
    "p95",
    "tolerance",
    "met",
    "verdict",
    "misses",
    "ior",
    "command",
    "scaling",
    "source",
];

/// The rows as CSV, with a heading.
///
/// # Errors
/// [`Failure::Failed`] if they cannot be written as CSV.
pub fn csv_of(rows: &[Row]) -> Result<String, Failure> {
    let cells = rows.iter().map(|r| {
        let alternative = r.alternative.as_ref();
        (
            (&r.row, &r.case, &r.machine, r.measured, r.simulated),
            (&r.unit, &r.compared, r.error_percent),
            (
                alternative.map(|a| &a.compared),
                alternative.and_then(|a| a.simulated),
                alternative.and_then(|a| a.error_percent),
            ),
            (r.interval, r.steady_gbps, &r.limit),
            (&r.status, r.status_reasons.join("; "), r.decided_by.join(" ")),
            (r.band.map(|b| b[0]), r.band.map(|b| b[1])),
            (&r.tolerance, r.met, &r.verdict, &r.misses),
            (&r.ior, &r.command, &r.scaling, &r.source),
        )
    });
    to_csv(&HEADING, cells)
}
