//! Table, CSV files, pictures and report of `forebay sim jobs`.

use super::document::{JobsRun, Point, PolicyResult};
use crate::cli::output::{Output, to_json};
use crate::cli::remarks;
use crate::csv_files::to_csv;
use crate::figures::jobs as figures;
use crate::plot::palette::PAPER;
use crate::report::{self, Inputs};
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_schedule::time::Millis;
use forebay_units::Bytes;
use forebay_units::human::{bytes, counted, grouped, number, percent, seconds};

/// Intervals of the series.
const INTERVALS: u32 = 400;

pub(super) fn write(run: &JobsRun, inputs: &Inputs, mut output: Output) -> Result<(), Failure> {
    let table = table(run);
    output.print_and_record(table.trim_end())?;
    if output.has_directory() {
        output.write_inputs("", inputs)?;
        output.write("", "summary.json", to_json(run)?)?;
        output.write("", "table.txt", &table)?;
        output.write("", "jobs.csv", jobs_csv(run)?)?;
        output.write("", "series.csv", series_csv(run)?)?;
        output.write_plot("", &figures::overview(run, &PAPER))?;
        output.write("", "report.html", report::jobs(run, inputs))?;
    }
    output.finish(run)
}

/// A size, exactly if that is short.
fn shown(size: u64) -> String {
    let exact = Bytes(size).to_string();
    if exact.len() <= 8 { exact } else { bytes(size) }
}

/// The machine of a point, in one line.
pub(crate) fn machine_line(point: &Point) -> String {
    let mut text = counted(point.nodes.into(), "node");
    if point.storage_nodes > 0 {
        text.push_str(&format!(
            ", {} with {} in granules of {}",
            counted(point.storage_nodes.into(), "storage node"),
            shown(point.capacity_bytes),
            shown(point.granularity_bytes),
        ));
    }
    let rate = |name: &str, gbps: Option<f64>| {
        gbps.map_or(String::new(), |gbps| format!("; {name} {} GB/s", number(gbps)))
    };
    text.push_str(&rate("a storage node takes", point.storage_in_gbps));
    text.push_str(&rate("gives", point.storage_out_gbps));
    text.push_str(&rate("parallel file system", point.pfs_gbps));
    text
}

/// Headings of the columns about a policy.
pub(crate) const HEADINGS: [&str; 9] = [
    "mean wait",
    "median",
    "95%",
    "bounded slowdown",
    "nodes used",
    "buffer used",
    "delayed by buffer",
    "by stage-in",
    "makespan",
];

/// Values of these columns, as numbers and as texts.
pub(crate) fn values(result: &PolicyResult) -> [(f64, String); 9] {
    let of = &result.summary;
    let time = |value: f64| (value, seconds(value));
    let share = |value: f64| (value, percent(value));
    let count = |value: u64| (value as f64, grouped(value));
    [
        time(of.mean_wait_seconds),
        time(of.median_wait_seconds),
        time(of.p95_wait_seconds),
        (of.mean_bounded_slowdown, number(of.mean_bounded_slowdown)),
        share(of.node_utilization),
        share(of.buffer_utilization),
        count(of.buffer_delayed_jobs),
        count(of.stage_delayed_jobs),
        time(of.makespan_seconds),
    ]
}

fn table(run: &JobsRun) -> String {
    let is_swept = run.points.len() > 1;
    let mut text = String::new();
    let jobs: u64 = run.points[0].policies.first().map_or(0, |result| result.summary.jobs);
    text.push_str(&format!(
        "{} of {}\n",
        counted(jobs, "job"),
        match run.traces.as_slice() {
            [one] => one.file.clone(),
            several => format!("{} traces, each simulated alone", several.len()),
        }
    ));
    if let Some(distribution) = &run.bb_per_node {
        text.push_str(&format!(
            "burst buffers are assumed, for each node of a job: {distribution}, seed {}\n",
            run.seed
        ));
    }
    if !is_swept {
        text.push_str(&format!("{}\n", machine_line(&run.points[0])));
    }
    let mut columns = Vec::new();
    if is_swept {
        columns.push(Column::text("", 0));
    }
    columns.push(Column::text("policy", 0));
    columns.extend(HEADINGS.map(|name| Column::number(name, 0)));
    let mut table = Table::new(columns);
    for point in &run.points {
        for result in &point.policies {
            let mut row = Vec::new();
            if is_swept {
                row.push(point.label());
            }
            row.push(result.policy.to_string());
            row.extend(values(result).map(|(_, text)| text));
            table.push(row);
        }
    }
    text.push_str(&format!("\n{table}"));
    text + &remarks::text(&remarks::remarks(&run.warnings, &[], &[]))
}

/// Each job under each policy.
fn jobs_csv(run: &JobsRun) -> Result<String, Failure> {
    let heading = [
        "settings",
        "policy",
        "trace",
        "job",
        "nodes",
        "granules",
        "storage_nodes",
        "arrival_seconds",
        "begin_seconds",
        "ready_seconds",
        "start_seconds",
        "end_seconds",
        "done_seconds",
        "wait_seconds",
        "bounded_slowdown",
        "buffer_delay_seconds",
        "stage_delay_seconds",
    ];
    let bound = Millis::of_seconds(run.bound_seconds).unwrap_or_default();
    let rows = all(run).flat_map(|(label, result, trace, history)| {
        history.jobs.iter().map(move |job| {
            (
                (label.clone(), result.policy.name(), trace, job.id, job.nodes, job.granules),
                (
                    job.storage_nodes,
                    job.arrival.seconds(),
                    job.begin.seconds(),
                    job.ready.seconds(),
                ),
                (job.start.seconds(), job.end.seconds(), job.done.seconds()),
                (job.waiting().seconds(), job.bounded_slowdown(bound)),
                (job.buffer_delay.seconds(), job.stage_delay.seconds()),
            )
        })
    });
    to_csv(&heading, rows)
}

/// Nodes and granules in use and waiting jobs over time.
fn series_csv(run: &JobsRun) -> Result<String, Failure> {
    let heading =
        ["settings", "policy", "trace", "until_seconds", "nodes", "granules", "waiting_jobs"];
    let rows = all(run).flat_map(|(label, result, trace, history)| {
        forebay_schedule::usage::means(&history.usage, INTERVALS).into_iter().map(move |mean| {
            let until = mean.until.seconds();
            let values = (mean.nodes, mean.granules, mean.waiting);
            (label.clone(), result.policy.name(), trace, until, values)
        })
    });
    to_csv(&heading, rows)
}

/// Every simulation of a run, with the values of its swept keys, and its trace.
fn all(
    run: &JobsRun,
) -> impl Iterator<Item = (String, &PolicyResult, &str, &forebay_schedule::simulation::History)> {
    run.points.iter().flat_map(move |point| {
        point.policies.iter().flat_map(move |result| {
            let files = run.traces.iter().map(|trace| trace.file.as_str());
            let label = point.label();
            files
                .zip(&result.histories)
                .map(move |(trace, history)| (label.clone(), result, trace, history))
        })
    })
}
