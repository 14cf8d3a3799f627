//! The use of each link as CSV: one link in one phase per row.

use crate::csv_text::to_csv;
use forebay_console::Failure;
use forebay_machine::results::{InterferenceRun, IorPoint, IorStudy, LinkUse, TrafficRun};

const HEADING: [&str; 11] = [
    "run",
    "nodes",
    "access",
    "iteration",
    "class",
    "link",
    "bytes",
    "busy_seconds",
    "utilisation",
    "stall_seconds",
    "max_queue_bytes",
];

/// The phase that rows belong to: run, nodes, access, iteration.
type Phase<'a> = (&'a str, u32, &'a str, u32);

type Row<'a> = (Phase<'a>, &'a LinkUse);

fn rows_of_point<'a>(run: &'a str, point: &'a IorPoint) -> impl Iterator<Item = Row<'a>> {
    point.phases.iter().flat_map(move |p| {
        let phase = (run, point.nodes, p.access.as_str(), p.iteration);
        p.each_link.iter().map(move |link| (phase, link))
    })
}

fn rows_of_traffic<'a>(name: &'a str, run: &'a TrafficRun) -> impl Iterator<Item = Row<'a>> {
    run.each_link.iter().map(move |link| ((name, run.nodes, "", 0), link))
}

fn csv_of<'a>(rows: impl Iterator<Item = Row<'a>>) -> Result<String, Failure> {
    let flat = rows.map(|((run, nodes, access, iteration), link)| {
        (
            (run, nodes, access, iteration),
            (&link.class, &link.name, link.bytes, link.busy_seconds),
            (link.utilisation, link.stall_seconds, link.max_queue_bytes),
        )
    });
    to_csv(&HEADING, flat)
}

/// The links in all phases at all node counts.
pub fn of_study(study: &IorStudy) -> Result<String, Failure> {
    csv_of(study.points.iter().flat_map(|p| rows_of_point("ior", p)))
}

/// The links in a traffic run.
pub fn of_traffic(run: &TrafficRun) -> Result<String, Failure> {
    csv_of(rows_of_traffic("traffic", run))
}

/// The links in the four runs of an interference study.
pub fn of_interference(run: &InterferenceRun) -> Result<String, Failure> {
    csv_of(
        rows_of_point("ior-alone", &run.ior_alone)
            .chain(rows_of_point("ior-together", &run.ior_together))
            .chain(rows_of_traffic("traffic-alone", &run.traffic_alone))
            .chain(rows_of_traffic("traffic-together", &run.traffic_together)),
    )
}
