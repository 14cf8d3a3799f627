//! The report of an IOR study.

use super::parts::{self, number, text};
use super::{Inputs, Page};
use crate::figures::ior::{bandwidth, best, deciding, link_use, node_rates, of_a_node, resource};
use crate::plot::palette::PAGE;
use crate::plot::svg::escape;
use crate::quantity::{percent, seconds, significant, thousands};
use crate::validate::published::Published;
use forebay_machine::results::{IorPoint, IorStudy, Phase};

/// The report of `forebay sim ior`; `published` are the measurements it can be compared with.
pub fn ior(study: &IorStudy, published: &[&Published], inputs: &Inputs) -> String {
    let mut page = Page::new(
        &format!("IOR on {}", study.machine),
        &format!(
            "{}; {} a node, {} burst-buffer nodes, {} routing, {} placement, seed {}",
            study.ior.join(" "),
            if study.ppn == 1 {
                "1 process".to_string()
            } else {
                format!("{} processes", study.ppn)
            },
            study.burst_buffers,
            study.routing,
            study.placement,
            study.seed
        ),
    );
    let figure = bandwidth(study, published).draw_plain(&PAGE);
    let caption = if published.is_empty() {
        "No published measurement of this machine matches these conditions."
    } else {
        "Filled: simulated. Hollow: published. The strip names the limiting resource."
    };
    let mut rates = parts::figure(&figure, caption);
    rates.push_str(&points(study));
    rates.push_str(&parts::figure(
        &node_rates(study, published).draw(&PAGE),
        "IOR counts all bytes over the time until the slowest process is through; a node's \
         acknowledged rate counts its own bytes over its own time from calls to their returns.",
    ));
    rates.push_str(&published_rows(published));
    page.section("bandwidth", "Bandwidth", &rates);

    let limits: Vec<Vec<(String, String)>> = study
        .points
        .iter()
        .filter_map(|p| {
            let limit = &deciding(p)?.limit;
            Some(vec![
                number(f64::from(p.nodes), thousands(p.nodes.into())),
                text(&limit.resource),
                text(&limit.because),
            ])
        })
        .collect();
    page.section(
        "limit",
        "What limited it",
        &parts::table(&["#nodes", "limit", "because"], &limits),
    );

    let links = [true, false]
        .map(|busiest| parts::figure(&link_use(study, busiest).draw(&PAGE), ""))
        .concat();
    page.section(
        "links",
        "Links by class",
        &format!("<div class=\"pair\">\n{links}</div>\n"),
    );

    let last = study.points.len().saturating_sub(1);
    let each: String = study
        .points
        .iter()
        .enumerate()
        .map(|(i, p)| point(p, i == last))
        .collect();
    page.section("points", "Each node count", &each);
    page.section("inputs", "Inputs", &parts::inputs(inputs));
    page.document()
}

fn rate(value: Option<f64>) -> (String, String) {
    match value {
        Some(v) => number(v, significant(v)),
        None => number(f64::NAN, "-".to_string()),
    }
}

fn points(study: &IorStudy) -> String {
    let rows: Vec<Vec<(String, String)>> = study
        .points
        .iter()
        .map(|p| {
            let (each, acknowledged) = of_a_node(p);
            vec![
                number(f64::from(p.nodes), thousands(p.nodes.into())),
                number(f64::from(p.processes), thousands(p.processes.into())),
                rate(p.write_gbps),
                rate(p.read_gbps),
                rate(each),
                rate(acknowledged),
                text(&p.limit),
            ]
        })
        .collect();
    parts::table(
        &[
            "#nodes",
            "#processes",
            "#write GB/s",
            "#read GB/s",
            "#GB/s a node",
            "#acknowledged",
            "limit",
        ],
        &rows,
    )
}

fn published_rows(published: &[&Published]) -> String {
    let rows: Vec<Vec<(String, String)>> = published
        .iter()
        .map(|r| {
            vec![
                text(&r.what),
                text(&r.clients),
                text(format!("{} {}", r.value, r.unit)),
                text(&r.pattern),
                text(&r.source),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Published</h3>\n{}",
        parts::table(&["what", "nodes", "value", "conditions", "source"], &rows)
    )
}

fn point(point: &IorPoint, open: bool) -> String {
    let rates: Vec<String> = [("write", point.write_gbps), ("read", point.read_gbps)]
        .into_iter()
        .filter_map(|(name, v)| Some(format!("{name} {} GB/s", significant(v?))))
        .collect();
    let phases: String = ["write", "read"]
        .into_iter()
        .filter_map(|access| best(point, access))
        .map(|p| phase(p, point.nodes))
        .collect();
    format!(
        "<details class=\"point\"{}>\n<summary><strong>{} {}</strong> {}, limited by the {}</summary>\n{}{phases}{}</details>\n",
        if open { " open" } else { "" },
        thousands(point.nodes.into()),
        if point.nodes == 1 { "node" } else { "nodes" },
        rates.join(", "),
        escape(&resource(&point.limit)),
        repetitions(point),
        parts::cost(&point.run)
    )
}

/// All phases as a table, if there are more than the one or two that are shown in full.
fn repetitions(point: &IorPoint) -> String {
    if point.phases.iter().all(|p| p.iteration == 0) {
        return String::new();
    }
    let rows: Vec<Vec<(String, String)>> = point
        .phases
        .iter()
        .map(|p| {
            vec![
                number(f64::from(p.iteration), p.iteration.to_string()),
                text(&p.access),
                number(p.gbps, significant(p.gbps)),
                number(p.seconds, seconds(p.seconds)),
            ]
        })
        .collect();
    parts::table(&["#repetition", "access", "#GB/s", "#time"], &rows)
}

pub(super) fn phase(phase: &Phase, nodes: u32) -> String {
    let (o, n) = (&phase.operation_seconds, &phase.acknowledged_node_gbps);
    let facts = parts::facts(&[
        ("rate", format!("{} GB/s", significant(phase.gbps))),
        (
            "a node, acknowledged",
            format!(
                "mean {} GB/s, median {}, slowest {}, fastest {}",
                significant(n.mean),
                significant(n.p50),
                significant(n.min),
                significant(n.max)
            ),
        ),
        ("moved", crate::quantity::bytes(phase.bytes)),
        (
            "operations",
            format!(
                "{} ({} a second)",
                thousands(phase.operations),
                crate::quantity::count(phase.iops)
            ),
        ),
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
                seconds(o.p50),
                seconds(o.p99),
                seconds(o.max)
            ),
        ),
    ]);
    let title = format!(
        "Bytes from group to group, {} on {} nodes",
        phase.access,
        thousands(nodes.into())
    );
    format!(
        "<h3>The {} phase</h3>\n{facts}{}<h4>Links</h4>\n{}<div class=\"pair\">\n<div>\n{}</div>\n{}</div>\n",
        escape(&phase.access),
        parts::limit(&phase.limit),
        parts::links(&phase.links),
        parts::over_time(&phase.series),
        parts::heat_map(&title, &phase.heat)
    )
}
