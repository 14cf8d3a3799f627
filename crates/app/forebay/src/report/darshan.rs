//! The report of a Darshan log.

use super::parts::{self, number, text};
use super::{Inputs, Page};
use crate::figures::darshan::phases;
use crate::plot::palette::PAGE;
use crate::validate::kinds;
use forebay_machine::results::DarshanRun;
use forebay_units::human::{self, bytes, grouped, seconds};
use maud::{Markup, html};

/// The report of `forebay sim darshan`.
pub fn darshan(run: &DarshanRun, inputs: &Inputs) -> String {
    let mut page = Page::new(
        format!("{} on {}", run.log, run.machine),
        format!(
            "{} processes on {} nodes, {}; {}",
            grouped(run.processes.into()),
            grouped(run.nodes.into()),
            run.file_system,
            run.program
        ),
    );
    page.add_section("result", "Result", result(run));
    page.add_section("phases", "Phases", phase_table(run));
    page.add_section("tests", "Tests that stand for the phases", tests(run));
    page.add_section("inputs", "Inputs", parts::inputs(inputs));
    page.into_document()
}

fn result(run: &DarshanRun) -> Markup {
    let rate =
        |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{} GB/s", human::number(rate)));
    let traces = if run.has_traces { "traces (DXT)" } else { "counters" };
    html! {
        (parts::warnings(&run.warnings))
        (parts::facts([
            ("bytes", bytes(run.bytes)),
            ("time of the slowest processes in calls, log", seconds(run.measured_seconds)),
            ("simulated", seconds(run.slowest_rank_seconds)),
            ("rate, log", rate(run.measured_gbps)),
            ("rate, simulated", rate(run.slowest_rank_gbps)),
            ("limit", run.limit.clone()),
            ("the run in the log", seconds(run.run_seconds)),
            ("the run with the simulated I/O", run.predicted_run_seconds.map_or("-".into(), seconds)),
            ("phases from", traces.into()),
        ]))
        (parts::replication(run.replication.as_ref()))
        (parts::figure(&phases(run, &PAGE), ""))
        @for kind in &run.published { p { strong { "Note: " } (kinds::note(kind)) } }
        @if !run.left_out.is_empty() {
            p { "Flows have max-min fair rates. Not simulated with them:" }
            ul { @for effect in &run.left_out { li { (effect) } } }
        }
        (parts::cost(&run.run))
    }
}

fn phase_table(run: &DarshanRun) -> Markup {
    let rows = (1u32..).zip(&run.phases).map(|(place, phase)| {
        vec![
            number(place.into(), place.to_string()),
            text(&phase.access),
            text(&phase.files),
            number(phase.file_count as f64, grouped(phase.file_count)),
            number(phase.processes.into(), grouped(phase.processes.into())),
            number(phase.begin_seconds, seconds(phase.begin_seconds)),
            number(phase.bytes as f64, bytes(phase.bytes)),
            number(phase.operations as f64, grouped(phase.operations)),
            number(phase.measured_seconds, seconds(phase.measured_seconds)),
            number(phase.slowest_rank_seconds, seconds(phase.slowest_rank_seconds)),
            text(if phase.parts.is_empty() { "left out" } else { &phase.limit }),
        ]
    });
    let headings = [
        "#phase",
        "access",
        "files",
        "#number",
        "#processes",
        "#begins at",
        "#bytes",
        "#requests",
        "#time in the log",
        "#simulated",
        "limit",
    ];
    parts::table(&headings, rows)
}

fn tests(run: &DarshanRun) -> Markup {
    let rows = (1u32..).zip(&run.phases).flat_map(|(place, phase)| {
        phase.parts.iter().map(move |part| {
            vec![
                number(place.into(), place.to_string()),
                text(part.ior.join(" ")),
                number(part.nodes.into(), grouped(part.nodes.into())),
                number(part.processes.into(), grouped(part.processes.into())),
                number(part.simulated_bytes as f64, bytes(part.simulated_bytes)),
                number(part.seconds, seconds(part.seconds)),
                text(&part.limit),
                text(&part.because),
                text(&part.fidelity),
            ]
        })
    });
    let headings = [
        "#phase",
        "IOR",
        "#nodes",
        "#processes",
        "#bytes",
        "#time",
        "limit",
        "because",
        "fidelity",
    ];
    parts::table(&headings, rows)
}
