//! The report of an IOR study.

use super::parts::{self, Cell, text};
use super::{Inputs, Page};
use crate::figures::ior::{
    bandwidth, best, deciding, link_use, node_rates, of_a_node, resource, storage,
};
use crate::plot::palette::PAGE;
use crate::validate::kinds;
use crate::validate::published::Published;
use forebay_machine::results::{IorPoint, IorStudy, LoggedWrites, Phase};
use forebay_units::human::{bytes, count, counted, grouped, number, percent, seconds};
use maud::{Markup, html};

/// The report of `forebay sim ior`, compared with the measurements `published`.
pub fn ior(study: &IorStudy, published: &[&Published], inputs: &Inputs) -> String {
    let mut page = Page::new(
        format!("IOR on {}", study.machine),
        format!(
            "{}; {} {} per node, {}, {} routing, {} placement, seed {}",
            study.ior.join(" "),
            study.ppn,
            if study.ppn == 1 { "process" } else { "processes" },
            storage(study),
            study.routing,
            study.placement,
            study.seed
        ),
    );
    page.add_section("bandwidth", "Bandwidth", rates(study, published));
    page.add_section("limit", "Limiting resource", limits(study));
    let links = parts::side_by_side(html! {
        @for busiest in [true, false] {
            (parts::figure(&link_use(study, busiest).draw(&PAGE), ""))
        }
    });
    page.add_section("links", "Links by class", links);
    let last = study.points.len().saturating_sub(1);
    let points = html! {
        @for (i, study_point) in study.points.iter().enumerate() { (point(study_point, i == last)) }
    };
    page.add_section("points", "Each node count", points);
    if let Some(fidelity) = fidelity(study) {
        page.add_section("fidelity", "Fidelity", fidelity);
    }
    page.add_section("inputs", "Inputs", parts::inputs(inputs));
    page.into_document()
}

/// The fidelity of each point, and what flows leave out; `None` if all are of packets.
fn fidelity(study: &IorStudy) -> Option<Markup> {
    let left_out = study.points.iter().map(|p| &p.left_out).find(|texts| !texts.is_empty())?;
    let rows = study.points.iter().map(|p| vec![nodes_cell(p.nodes), text(&p.fidelity)]);
    Some(html! {
        (parts::table(&["#nodes", "fidelity"], rows))
        p { "Flows have max-min fair rates. Not simulated with them:" }
        ul { @for left_out in left_out { li { (left_out) } } }
    })
}

fn rates(study: &IorStudy, published: &[&Published]) -> Markup {
    let caption = if published.is_empty() {
        "No published measurement of this machine matches these conditions."
    } else {
        "Filled: simulated. Hollow: published. The strip names the limiting resource."
    };
    let node_caption = "IOR's bandwidth divides all bytes by the time until the slowest process \
                        has finished; a node's acknowledged rate divides the node's bytes by the \
                        node's own time from calls to their returns.";
    html! {
        (parts::figure(&bandwidth(study, published).draw_plain(&PAGE), caption))
        (points(study))
        (parts::figure(&node_rates(study, published).draw(&PAGE), node_caption))
        (published_rows(published))
        @for kind in &study.published { p { strong { "Note: " } (kinds::note(kind)) } }
    }
}

fn limits(study: &IorStudy) -> Markup {
    let rows = study.points.iter().filter_map(|p| {
        let limit = &deciding(p)?.limit;
        Some(vec![nodes_cell(p.nodes), text(&limit.resource), text(&limit.because)])
    });
    parts::table(&["#nodes", "limit", "because"], rows)
}

fn nodes_cell(nodes: u32) -> Cell {
    parts::number(f64::from(nodes), grouped(nodes.into()))
}

fn rate(value: Option<f64>) -> Cell {
    let value = value.unwrap_or(f64::NAN);
    parts::number(value, number(value))
}

fn points(study: &IorStudy) -> Markup {
    let rows = study.points.iter().map(|p| {
        let (per_node, acknowledged) = of_a_node(p);
        vec![
            nodes_cell(p.nodes),
            parts::number(f64::from(p.processes), grouped(p.processes.into())),
            rate(p.write_gbps),
            rate(p.steady_gbps("write")),
            rate(p.read_gbps),
            rate(p.steady_gbps("read")),
            rate(per_node),
            rate(acknowledged),
            text(&p.limit),
        ]
    });
    let headings = [
        "#nodes",
        "#processes",
        "#write GB/s",
        "#steady write GB/s",
        "#read GB/s",
        "#steady read GB/s",
        "#GB/s per node",
        "#acknowledged",
        "limit",
    ];
    parts::table(&headings, rows)
}

fn published_rows(published: &[&Published]) -> Markup {
    let rows = published.iter().map(|r| {
        vec![
            text(&r.what),
            text(&r.clients),
            text(format!("{} {}", r.value, r.unit)),
            text(&r.pattern),
            text(&r.source),
        ]
    });
    if published.is_empty() {
        return Markup::default();
    }
    html! {
        h3 { "Published" }
        (parts::table(&["measurement", "nodes", "value", "conditions", "source"], rows))
    }
}

fn point(point: &IorPoint, open: bool) -> Markup {
    let rates: Vec<String> = [("write", point.write_gbps), ("read", point.read_gbps)]
        .into_iter()
        .filter_map(|(name, v)| Some(format!("{name} {} GB/s", number(v?))))
        .collect();
    let summary = html! {
        strong { (counted(point.nodes.into(), "node")) }
        " " (rates.join(", ")) ", limited by the " (resource(&point.limit))
    };
    let phases = ["write", "read"].into_iter().filter_map(|access| best(point, access));
    let content = html! {
        (parts::replication(point.replication.as_ref()))
        (repetitions(point))
        @for best in phases { (phase(best, point.nodes)) }
        @if let Some(logged) = &point.logged { (logged_writes(logged)) }
        (parts::observations(&point.observed, point.delays.as_ref()))
        (parts::cost(&point.run))
    };
    parts::foldable(summary, open, content)
}

/// The write phase through the log of MPI-IO.
fn logged_writes(logged: &LoggedWrites) -> Markup {
    let parts = [
        ("logging", &logged.log),
        ("reading the logs", &logged.log_read),
        ("writing the file", &logged.file_write),
    ];
    let rows = parts.into_iter().filter_map(|(name, phase)| {
        let phase = phase.as_ref()?;
        Some(vec![
            text(name),
            parts::number(phase.seconds, seconds(phase.seconds)),
            parts::number(phase.gbps, number(phase.gbps)),
            text(resource(&phase.limit.resource)),
            text(&phase.limit.because),
        ])
    });
    html! {
        h3 { "The write phase through the log of MPI-IO, applied at " (logged.flush) }
        (parts::facts([
            ("rate for the program", format!("{} GB/s", number(logged.gbps))),
            ("gain", format!("{} times", number(logged.gain))),
            ("time for the program", seconds(logged.seconds)),
            ("time without the log", seconds(logged.plain_seconds)),
            ("until the file is complete", seconds(logged.complete_seconds)),
            ("past the log", if logged.past_log { "yes" } else { "no" }.to_string()),
        ]))
        (parts::table(&["part", "#time", "#GB/s", "limit", "because"], rows))
    }
}

/// All phases as a table, if there are more than the one or two that are shown in full.
fn repetitions(point: &IorPoint) -> Markup {
    if point.phases.iter().all(|p| p.iteration == 0) {
        return Markup::default();
    }
    let rows = point.phases.iter().map(|p| {
        vec![
            parts::number(f64::from(p.iteration), p.iteration.to_string()),
            text(&p.access),
            parts::number(p.gbps, number(p.gbps)),
            parts::number(p.seconds, seconds(p.seconds)),
        ]
    });
    parts::table(&["#repetition", "access", "#GB/s", "#time"], rows)
}

pub(super) fn phase(phase: &Phase, nodes: u32) -> Markup {
    let title =
        format!("Bytes from group to group, {} on {} nodes", phase.access, grouped(nodes.into()));
    html! {
        h3 { "The " (phase.access) " phase" }
        (parts::warnings(&phase.warnings))
        (phase_facts(phase))
        (parts::limit(&phase.limit))
        h4 { "Links" }
        (parts::links(&phase.links))
        (parts::side_by_side(html! {
            div { (parts::over_time(&phase.series)) }
            (parts::heat_map(&title, &phase.heat))
        }))
    }
}

fn phase_facts(phase: &Phase) -> Markup {
    let (operation, node) = (&phase.operation_seconds, &phase.acknowledged_node_gbps);
    parts::facts([
        ("rate", format!("{} GB/s", number(phase.gbps))),
        ("steady", format!("{} GB/s", number(phase.steady_gbps.unwrap_or(f64::NAN)))),
        (
            "per node, acknowledged",
            format!(
                "mean {} GB/s, median {}, slowest {}, fastest {}",
                number(node.mean),
                number(node.p50),
                number(node.min),
                number(node.max)
            ),
        ),
        ("bytes", bytes(phase.bytes)),
        ("operations", format!("{} ({} per second)", grouped(phase.operations), count(phase.iops))),
        ("time", seconds(phase.seconds)),
        (
            "open",
            format!(
                "{} ({})",
                seconds(phase.open_seconds),
                percent(phase.open_seconds / phase.seconds)
            ),
        ),
        ("transfer", seconds(phase.transfer_seconds)),
        ("close", seconds(phase.close_seconds)),
        (
            "one transfer",
            format!(
                "median {}, 99% within {}, largest {}",
                seconds(operation.p50),
                seconds(operation.p99),
                seconds(operation.max)
            ),
        ),
    ])
}
