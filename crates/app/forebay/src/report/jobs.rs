//! The report of a job queue.

use super::{Inputs, Page, parts};
use crate::cli::jobs::document::{JobsRun, Point};
use crate::cli::jobs::{HEADINGS, machine_line, values};
use crate::figures::jobs::charts;
use crate::plot::palette::PAGE;
use forebay_units::human::grouped;
use maud::{Markup, html};

/// The report of `forebay sim jobs`.
pub(crate) fn jobs(run: &JobsRun, inputs: &Inputs) -> String {
    let jobs: u64 = run.points[0].policies.first().map_or(0, |result| result.summary.jobs);
    let mut page = Page::new(
        match &run.machine {
            Some(machine) => format!("Jobs on {machine}"),
            None => "Jobs".to_owned(),
        },
        format!("{} jobs; {}", grouped(jobs), machine_line(&run.points[0])),
    );
    page.add_section("result", "Result", result(run));
    page.add_section("traces", "Traces", traces(run));
    page.add_section("inputs", "Inputs", parts::inputs(inputs));
    page.into_document()
}

fn result(run: &JobsRun) -> Markup {
    let headings = HEADINGS.map(|heading| format!("#{heading}"));
    let mut columns = vec!["machine", "policy"];
    columns.extend(headings.iter().map(String::as_str));
    let rows = run.points.iter().flat_map(|point: &Point| {
        point.policies.iter().map(move |result| {
            let mut row = vec![parts::text(point.label()), parts::text(result.policy.name())];
            row.extend(values(result).map(|(value, shown)| parts::number(value, shown)));
            row
        })
    });
    html! {
        (parts::warnings(&run.warnings))
        @if let Some(distribution) = &run.bb_per_node {
            p { "Burst buffers are assumed, for each node of a job: " (distribution) ", seed " (run.seed) "." }
        }
        (parts::table(&columns, rows))
        @for chart in &charts(run, &PAGE) { (parts::figure(chart, "")) }
    }
}

fn traces(run: &JobsRun) -> Markup {
    let count = |value: u64| parts::number(value as f64, grouped(value));
    let rows = run.traces.iter().map(|trace| {
        vec![parts::text(&trace.file), count(trace.jobs), count(trace.left_out), count(trace.cut)]
    });
    parts::table(&["trace", "#jobs", "#left out", "#end at their limit"], rows)
}
