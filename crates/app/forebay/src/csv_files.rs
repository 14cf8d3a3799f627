//! Results as CSV files with one value or one link per row, so that any tool can filter and pivot
//! them.

use forebay_console::Failure;
use forebay_machine::results::{
    CollectiveRun, InterferenceRun, IorPoint, IorStudy, LinkUse, Series, TrafficRun,
};
use serde::Serialize;

/// The part of a run to which rows belong.
pub struct Part<'a> {
    run: &'a str,
    nodes: u32,
    access: &'a str,
    iteration: u32,
    series: &'a Series,
    links: &'a [LinkUse],
}

/// The phases of an IOR run.
fn parts_of_point<'a>(run: &'a str, point: &'a IorPoint) -> impl Iterator<Item = Part<'a>> {
    point.phases.iter().map(move |phase| Part {
        run,
        nodes: point.nodes,
        access: &phase.access,
        iteration: phase.iteration,
        series: &phase.series,
        links: &phase.each_link,
    })
}

fn part_of_traffic<'a>(name: &'a str, run: &'a TrafficRun) -> Part<'a> {
    let (series, links) = (&run.series, &run.each_link);
    Part { run: name, nodes: run.nodes, access: "", iteration: 0, series, links }
}

/// All phases at all node counts.
pub fn parts_of_study(study: &IorStudy) -> Vec<Part<'_>> {
    study.points.iter().flat_map(|point| parts_of_point("ior", point)).collect()
}

/// A traffic run.
pub fn parts_of_traffic(run: &TrafficRun) -> Vec<Part<'_>> {
    vec![part_of_traffic("traffic", run)]
}

/// The four runs of an interference study.
pub fn parts_of_interference(run: &InterferenceRun) -> Vec<Part<'_>> {
    let ior = parts_of_point("ior-alone", &run.ior_alone)
        .chain(parts_of_point("ior-together", &run.ior_together));
    let traffic = [
        part_of_traffic("traffic-alone", &run.traffic_alone),
        part_of_traffic("traffic-together", &run.traffic_together),
    ];
    ior.chain(traffic).collect()
}

/// The runs of a study of collective operations.
pub fn parts_of_collective(run: &CollectiveRun) -> Vec<Part<'_>> {
    let runs = std::iter::once(("alone", &run.alone))
        .chain(run.together.iter().map(|times| ("together", times)));
    runs.map(|(name, times)| Part {
        run: name,
        nodes: run.nodes,
        access: "",
        iteration: 0,
        series: &times.series,
        links: &times.each_link,
    })
    .collect()
}

/// The time series.
pub fn series(parts: &[Part<'_>]) -> Result<String, Failure> {
    let heading = ["run", "nodes", "access", "iteration", "seconds", "name", "value"];
    let rows = parts.iter().flat_map(|part| {
        part.series.columns.iter().flat_map(move |(name, values)| {
            let timed = part.series.seconds.iter().zip(values);
            timed.map(move |(seconds, value)| {
                (part.run, part.nodes, part.access, part.iteration, seconds, name, value)
            })
        })
    });
    to_csv(&heading, rows)
}

/// The use of each link.
pub fn links(parts: &[Part<'_>]) -> Result<String, Failure> {
    let heading = [
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
    let rows = parts.iter().flat_map(|part| {
        part.links.iter().map(move |link| {
            (
                (part.run, part.nodes, part.access, part.iteration),
                (&link.class, &link.name, link.bytes, link.busy_seconds),
                (link.utilisation, link.stall_seconds, link.max_queue_bytes),
            )
        })
    });
    to_csv(&heading, rows)
}

/// The rows as CSV; a row is a tuple with a field for each word of the heading.
pub fn to_csv<R: Serialize>(
    heading: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> Result<String, Failure> {
    let failed = |error: String| Failure::Failed(format!("cannot write CSV: {error}"));
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(heading).map_err(|error| failed(error.to_string()))?;
    for row in rows {
        writer.serialize(row).map_err(|error| failed(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}
