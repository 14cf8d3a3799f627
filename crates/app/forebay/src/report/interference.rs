//! The report of an interference run.

use super::ior::phase;
use super::traffic::result;
use super::{Inputs, Page, parts};
use crate::figures::ior::deciding;
use crate::plot::palette::PAGE;
use forebay_machine::results::{InterferenceRun, IorPoint, TrafficRun};
use forebay_units::human::{grouped, number};
use maud::{Markup, html};

/// The report of `forebay sim interference`.
pub fn interference(run: &InterferenceRun, inputs: &Inputs) -> String {
    let mut page = Page::new(
        format!("IOR with {} traffic on {}", run.traffic_alone.pattern, run.machine),
        format!(
            "IOR on {} nodes ({}), traffic on {} nodes ({}), each also alone",
            grouped(run.ior_alone.nodes.into()),
            run.ior_placement,
            grouped(run.traffic_alone.nodes.into()),
            run.traffic_placement
        ),
    );
    page.add_section("result", "Result", ratios(run));
    page.add_section(
        "ior",
        "IOR",
        html! {
            (ior("alone", &run.ior_alone))
            (ior("with the traffic", &run.ior_together))
        },
    );
    page.add_section(
        "traffic",
        "Traffic",
        html! {
            (traffic("alone", &run.traffic_alone))
            (traffic("with IOR", &run.traffic_together))
        },
    );
    page.add_section("inputs", "Inputs", parts::inputs(inputs));
    page.into_document()
}

fn ratios(run: &InterferenceRun) -> Markup {
    let facts = [
        ("IOR's rate, together / alone", number(run.ior_rate_ratio)),
        (
            "traffic's mean latency, together / alone",
            run.traffic_latency_ratio.map_or("saturated".to_string(), number),
        ),
    ];
    let figures = crate::figures::traffic::interference(run, &PAGE);
    html! {
        (parts::facts(facts))
        (parts::replication(run.replication.as_ref()))
        (parts::side_by_side(html! {
            @for figure in &figures { (parts::figure(figure, "")) }
        }))
    }
}

fn ior(title: &str, point: &IorPoint) -> Markup {
    let content = html! {
        @if let Some(deciding) = deciding(point) { (phase(deciding, point.nodes)) }
        (parts::observations(&point.observed, point.delays.as_ref()))
        (parts::cost(&point.run))
    };
    parts::foldable(html! { strong { (title) } }, false, content)
}

fn traffic(title: &str, run: &TrafficRun) -> Markup {
    let content = html! {
        (result(run))
        (parts::links(&run.links))
        (parts::heat_map("Bytes from group to group", &run.heat))
    };
    parts::foldable(html! { strong { (title) } }, false, content)
}
