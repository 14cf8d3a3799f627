//! Remarks on results: warnings, what published measurements say of them, what was not simulated.

use super::ior::notes;
use super::sweep::{SweepPoint, SweepRun};
use forebay_machine::results::{
    CollectiveRun, InterferenceRun, IorPoint, PublishedKind, TrafficRun,
};
use forebay_units::human::counted;

/// Maximum number of lines with remarks on a sweep; the document has all of them.
const MAX_LINES: usize = 20;
/// Maximum number of combinations that a line names.
const MAX_NAMED: usize = 3;

/// The warnings about a test of IOR at one node count, without the repetitions of its iterations.
pub(super) fn ior_warnings(point: &IorPoint) -> impl Iterator<Item = &String> {
    point.phases.iter().filter(|phase| phase.iteration == 0).flat_map(|phase| &phase.warnings)
}

/// Remarks on a test of IOR.
pub(super) fn of_ior(point: &IorPoint, published: &[PublishedKind]) -> Vec<String> {
    let warnings = ior_warnings(point).map(|warning| format!("warning: {warning}"));
    warnings.chain(notes(published)).chain(not_simulated(&point.left_out)).collect()
}

/// Remarks on traffic.
pub(super) fn of_traffic(run: &TrafficRun) -> Vec<String> {
    let warnings = run.warnings.iter().map(|warning| format!("warning: {warning}"));
    warnings.chain(not_simulated(&run.left_out)).collect()
}

/// Warnings about a collective operation and the traffic beside it.
pub(super) fn of_collective(run: &CollectiveRun) -> Vec<String> {
    let traffic = run.traffic_together.iter().flat_map(|traffic| &traffic.warnings);
    let of_traffic = traffic.map(|warning| format!("warning: the traffic: {warning}"));
    run.warnings.iter().map(|warning| format!("warning: {warning}")).chain(of_traffic).collect()
}

/// Warnings about IOR and traffic, alone and together.
pub(super) fn of_interference(run: &InterferenceRun) -> Vec<String> {
    let mut all = Vec::new();
    for (when, point) in [("alone", &run.ior_alone), ("together", &run.ior_together)] {
        let warnings = point.phases.iter().flat_map(|phase| &phase.warnings);
        all.extend(warnings.map(|warning| format!("warning: IOR {when}: {warning}")));
    }
    for (when, traffic) in [("alone", &run.traffic_alone), ("together", &run.traffic_together)] {
        let warnings = traffic.warnings.iter();
        all.extend(warnings.map(|warning| format!("warning: traffic {when}: {warning}")));
    }
    all
}

/// The remark that names the effects which a fidelity leaves out.
pub(super) fn not_simulated(left_out: &[String]) -> Option<String> {
    (!left_out.is_empty()).then(|| format!("not simulated: {}", left_out.join("; ")))
}

/// The lines below the table of a sweep: its fidelity, and each remark with the combinations that
/// have it.
pub(super) fn lines(run: &SweepRun) -> Vec<String> {
    let by_fidelity = values_with_points(run, |point| vec![point.fidelity.as_str()]);
    let mut lines: Vec<String> = by_fidelity
        .into_iter()
        .map(|(fidelity, points)| format!("fidelity: {fidelity}{}", at(run, &points)))
        .collect();
    let mut remarks =
        values_with_points(run, |point| point.remarks.iter().map(String::as_str).collect());
    // Warnings first; what was not simulated, which is long, last.
    remarks.sort_by_key(|(remark, _)| (!remark.starts_with("warning"), remark.starts_with("not")));
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
