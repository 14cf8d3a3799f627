//! The report of a traffic run.

use super::{Inputs, Page, parts};
use crate::figures::traffic::{capitalised, hops, latency, links};
use crate::plot::palette::PAGE;
use forebay_machine::results::{LatencyNs, TrafficRun};
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
    page.add_section(
        "time",
        "Over time",
        html! {
            (parts::over_time(&run.series))
            (parts::observations(&run.observed, run.delays.as_ref()))
        },
    );
    page.add_section(
        "groups",
        "From group to group",
        parts::heat_map("Bytes from group to group", &run.heat),
    );
    page.add_section("inputs", "Inputs", parts::inputs(inputs));
    page.into_document()
}

pub(super) fn result(run: &TrafficRun) -> Markup {
    let latency_of = |of: fn(&LatencyNs) -> f64| {
        run.latency_ns.as_ref().map_or("-".to_string(), |l| seconds(of(l) * 1e-9))
    };
    let [from, to] = run.window_seconds;
    let facts = [
        ("state", run.state.clone()),
        ("measured", format!("from {} to {}", seconds(from), seconds(to))),
        ("offered load", percent(run.offered_load)),
        ("accepted load", percent(run.accepted_load)),
        ("load of the whole run", percent(run.run_load)),
        ("latency, mean", latency_of(|l| l.mean)),
        ("latency, 99%", latency_of(|l| l.p99)),
        ("hops, mean", number(run.hops_mean)),
        ("took a detour", percent(run.nonminimal_share)),
        ("packets", count(run.cost.packets_delivered as f64)),
        ("bytes", bytes(run.bytes_delivered)),
    ];
    let figures = [latency(run, &PAGE), hops(run, &PAGE), links(run, &PAGE)];
    html! {
        (parts::warnings(&run.warnings))
        (parts::facts(facts))
        (parts::replication(run.replication.as_ref()))
        (saturation(run))
        (parts::side_by_side(html! {
            @for figure in &figures { (parts::figure(figure, "")) }
        }))
        (parts::cost(&run.cost))
    }
}

/// The search for the saturation load.
fn saturation(run: &TrafficRun) -> Markup {
    let Some(search) = &run.saturation else {
        return Markup::default();
    };
    let rows = search.steps.iter().map(|step| {
        let latency = step.latency_mean_ns.unwrap_or(f64::NAN);
        vec![
            parts::number(step.offered_load, percent(step.offered_load)),
            parts::number(step.accepted_load, percent(step.accepted_load)),
            parts::number(latency, seconds(latency * 1e-9)),
            parts::text(&step.state),
        ]
    });
    html! {
        h3 { "Search for saturation" }
        (parts::table(&["#offered", "#accepted", "#mean latency", "state"], rows))
    }
}
