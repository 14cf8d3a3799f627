//! The report of an interference run.

use super::ior::phase;
use super::traffic::result;
use super::{Inputs, Page, parts};
use crate::figures::ior::deciding;
use crate::plot::palette::PAGE;
use crate::quantity::{significant, thousands};
use forebay_machine::results::{InterferenceRun, IorPoint, TrafficRun};

/// The report of `forebay sim interference`.
pub fn interference(run: &InterferenceRun, inputs: &Inputs) -> String {
    let mut page = Page::new(
        &format!(
            "IOR beside {} traffic on {}",
            run.traffic_alone.pattern, run.machine
        ),
        &format!(
            "IOR on {} nodes ({}), traffic on {} nodes ({}), each also alone",
            thousands(run.ior_alone.nodes.into()),
            run.ior_placement,
            thousands(run.traffic_alone.nodes.into()),
            run.traffic_placement
        ),
    );
    let facts = parts::facts(&[
        (
            "IOR's rate, together / alone",
            significant(run.ior_rate_ratio),
        ),
        (
            "traffic's mean latency, together / alone",
            significant(run.traffic_latency_ratio),
        ),
    ]);
    let figures: String = crate::figures::traffic::interference(run, &PAGE)
        .iter()
        .map(|f| parts::figure(f, ""))
        .collect();
    page.section(
        "result",
        "Result",
        &format!("{facts}<div class=\"pair\">\n{figures}</div>\n"),
    );
    let ior = |title: &str, point: &IorPoint| {
        let body = deciding(point)
            .map(|p| phase(p, point.nodes))
            .unwrap_or_default();
        format!(
            "<details class=\"point\">\n<summary><strong>{title}</strong></summary>\n{body}{}</details>\n",
            parts::cost(&point.run)
        )
    };
    page.section(
        "ior",
        "IOR",
        &[
            ior("alone", &run.ior_alone),
            ior("beside the traffic", &run.ior_together),
        ]
        .concat(),
    );
    let traffic = |title: &str, run: &TrafficRun| {
        format!(
            "<details class=\"point\">\n<summary><strong>{title}</strong></summary>\n{}{}{}</details>\n",
            result(run),
            parts::links(&run.links),
            parts::heat_map("Bytes from group to group", &run.heat)
        )
    };
    page.section(
        "traffic",
        "Traffic",
        &[
            traffic("alone", &run.traffic_alone),
            traffic("beside IOR", &run.traffic_together),
        ]
        .concat(),
    );
    page.section("inputs", "Inputs", &parts::inputs(inputs));
    page.document()
}
