//! Remarks on results: warnings, what published measurements say of them, what was not simulated.

use super::sweep::{SweepPoint, SweepRun};
use crate::validate::kinds;
use forebay_machine::results::PublishedKind;
use forebay_units::human::counted;
use std::fmt::Display;

/// Maximum number of lines with remarks on a sweep; the document has all of them.
const MAX_LINES: usize = 20;
/// Maximum number of combinations that a line names.
const MAX_NAMED: usize = 3;
/// The beginning of the remark on effects that are left out.
const NOT_SIMULATED: &str = "not simulated: ";

/// Remarks: warnings, then what published measurements say of such rates, then the effects that a fidelity leaves out.
pub(super) fn remarks(
    warnings: impl IntoIterator<Item = impl Display>,
    published: &[PublishedKind],
    left_out: &[String],
) -> Vec<String> {
    let warnings = warnings.into_iter().map(|warning| format!("warning: {warning}"));
    let notes = published.iter().map(|kind| format!("note: {}", kinds::note(kind)));
    let left_out =
        (!left_out.is_empty()).then(|| format!("{NOT_SIMULATED}{}", left_out.join("; ")));
    warnings.chain(notes).chain(left_out).collect()
}

/// Remarks as the lines below a table.
pub(super) fn text(remarks: &[String]) -> String {
    remarks.iter().map(|remark| format!("{remark}\n")).collect()
}

/// Remarks on a sweep: its fidelity, and each remark with the combinations that have it.
pub(super) fn of_sweep(run: &SweepRun) -> Vec<String> {
    let by_fidelity = values_with_points(run, |point| vec![point.fidelity.as_str()]);
    let mut lines: Vec<String> = by_fidelity
        .into_iter()
        .map(|(fidelity, points)| format!("fidelity: {fidelity}{}", at(run, &points)))
        .collect();
    let mut remarks =
        values_with_points(run, |point| point.remarks.iter().map(String::as_str).collect());
    // Warnings first; what was not simulated, which is long, last.
    remarks.sort_by_key(|(remark, _)| {
        (!remark.starts_with("warning"), remark.starts_with(NOT_SIMULATED))
    });
    let count = remarks.len();
    let shown = remarks.into_iter().take(MAX_LINES);
    lines.extend(shown.map(|(remark, points)| format!("{remark}{}", at(run, &points))));
    if count > MAX_LINES {
        let more = counted((count - MAX_LINES) as u64, "other remark");
        lines.push(format!("{more}: `remarks` of the result document"));
    }
    lines
}

/// Each text with the points that have it, in the order of the first ones.
fn values_with_points<'a>(
    run: &'a SweepRun,
    texts: impl Fn(&'a SweepPoint) -> Vec<&'a str>,
) -> Vec<(&'a str, Vec<&'a SweepPoint>)> {
    let mut found: Vec<(&str, Vec<&SweepPoint>)> = Vec::new();
    for point in &run.points {
        for text in texts(point) {
            match found.iter_mut().find(|(known, _)| *known == text) {
                Some((_, points)) => points.push(point),
                None => found.push((text, vec![point])),
            }
        }
    }
    found
}

/// ` (at nodes=8; at nodes=16)`; empty if these are all points.
fn at(run: &SweepRun, points: &[&SweepPoint]) -> String {
    if points.len() == run.points.len() {
        return String::new();
    }
    let name = |point: &&SweepPoint| {
        let settings = run.keys.iter().filter_map(|key| Some((key, point.settings.get(key)?)));
        let pairs: Vec<String> = settings.map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(" ")
    };
    let mut named: Vec<String> = points.iter().take(MAX_NAMED).map(name).collect();
    if points.len() > MAX_NAMED {
        named.push(counted((points.len() - MAX_NAMED) as u64, "other"));
    }
    format!(" (at {})", named.join(", "))
}
