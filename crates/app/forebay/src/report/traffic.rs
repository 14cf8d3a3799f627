//! The report of a traffic run.

use super::{Inputs, Page, parts};
use crate::figures::traffic::{capitalised, hops, latency, links};
use crate::plot::palette::PAGE;
use forebay_machine::results::TrafficRun;
use forebay_units::human::{bytes, count, grouped, number, percent, seconds};
use maud::{Markup, html};

/// The report of `forebay sim traffic`.
pub fn traffic(run: &TrafficRun, inputs: &Inputs) -> String {
    let mut page = Page::new(
        format!("{} traffic on {}", capitalised(&run.pattern), run.machine),
        format!(
            "{} nodes send {} messages of {} each at {} of the node link's rate; {} routing, seed {}",
            grouped(run.nodes.into()),
            grouped(run.messages),
            bytes(run.message_bytes),
            percent(run.offered_load),
            run.routing,
            run.seed
        ),
    );
    page.add_section("result", "Result", result(run));
    page.add_section("links", "Links by class", parts::links(&run.links));
    page.add_section("time", "Over time", parts::over_time(&run.series));
    page.add_section(
        "groups",
        "From group to group",
        parts::heat_map("Bytes from group to group", &run.heat),
    );
    page.add_section("inputs", "Inputs", parts::inputs(inputs));
    page.into_document()
}

pub(super) fn result(run: &TrafficRun) -> Markup {
    let facts = [
        ("offered load", percent(run.offered_load)),
        ("accepted load", percent(run.accepted_load)),
        ("latency, mean", seconds(run.latency_ns.mean * 1e-9)),
        ("latency, 99%", seconds(run.latency_ns.p99 * 1e-9)),
        ("hops, mean", number(run.hops_mean)),
        ("took a detour", percent(run.nonminimal_share)),
        ("packets", count(run.cost.packets_delivered as f64)),
        ("bytes", bytes(run.bytes_delivered)),
    ];
    let figures = [latency(run, &PAGE), hops(run, &PAGE), links(run, &PAGE)];
    html! {
        (parts::facts(facts))
        (parts::side_by_side(html! {
            @for figure in &figures { (parts::figure(figure, "")) }
        }))
        (parts::cost(&run.cost))
    }
}
