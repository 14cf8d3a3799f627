//! Time series as CSV: one value per row, so that any tool can filter and pivot them.

use crate::csv_text::to_csv;
use forebay_console::Failure;
use forebay_machine::results::{InterferenceRun, IorPoint, IorStudy, Series, TrafficRun};

const HEADING: [&str; 7] = ["run", "nodes", "access", "iteration", "seconds", "name", "value"];

type Row<'a> = (&'a str, u32, &'a str, u32, f64, &'a str, f64);

fn rows<'a>(
    run: &'a str,
    nodes: u32,
    access: &'a str,
    iteration: u32,
    series: &'a Series,
) -> impl Iterator<Item = Row<'a>> {
    series.columns.iter().flat_map(move |(name, values)| {
        let timed = series.seconds.iter().zip(values);
        timed.map(move |(s, value)| (run, nodes, access, iteration, *s, name.as_str(), *value))
    })
}

fn rows_of_point<'a>(run: &'a str, point: &'a IorPoint) -> impl Iterator<Item = Row<'a>> {
    let phases = point.phases.iter();
    phases.flat_map(move |p| rows(run, point.nodes, &p.access, p.iteration, &p.series))
}

fn rows_of_traffic<'a>(name: &'a str, run: &'a TrafficRun) -> impl Iterator<Item = Row<'a>> {
    rows(name, run.nodes, "", 0, &run.series)
}

/// The series of all phases at all node counts.
pub fn of_study(study: &IorStudy) -> Result<String, Failure> {
    let points = study.points.iter();
    to_csv(&HEADING, points.flat_map(|p| rows_of_point("ior", p)))
}

/// The series of a traffic run.
pub fn of_traffic(run: &TrafficRun) -> Result<String, Failure> {
    to_csv(&HEADING, rows_of_traffic("traffic", run))
}

/// The series of the four runs of an interference study.
pub fn of_interference(run: &InterferenceRun) -> Result<String, Failure> {
    to_csv(
        &HEADING,
        rows_of_point("ior-alone", &run.ior_alone)
            .chain(rows_of_point("ior-together", &run.ior_together))
            .chain(rows_of_traffic("traffic-alone", &run.traffic_alone))
            .chain(rows_of_traffic("traffic-together", &run.traffic_together)),
    )
}
