//! The report of a traffic run.

use super::{Inputs, Page, parts};
use crate::figures::traffic::{capitalised, hops, latency, links};
use crate::plot::palette::PAGE;
use crate::quantity::{bytes, count, percent, seconds, significant, thousands};
use forebay_machine::results::{RunCost, TrafficRun};

/// The report of `forebay sim traffic`.
pub fn traffic(run: &TrafficRun, inputs: &Inputs) -> String {
    let mut page = Page::new(
        &format!("{} traffic on {}", capitalised(&run.pattern), run.machine),
        &format!(
            "{} nodes send {} messages of {} each at {} of the node link's rate; {} routing, seed {}",
            thousands(run.nodes.into()),
            thousands(run.messages),
            bytes(run.message_bytes),
            percent(run.offered_load),
            run.routing,
            run.seed
        ),
    );
    page.section("result", "Result", &result(run));
    page.section("links", "Links by class", &parts::links(&run.links));
    page.section("time", "Over time", &parts::over_time(&run.series));
    page.section(
        "groups",
        "From group to group",
        &parts::heat_map("Bytes from group to group", &run.heat),
    );
    page.section("inputs", "Inputs", &parts::inputs(inputs));
    page.document()
}

pub(super) fn result(run: &TrafficRun) -> String {
    let facts = parts::facts(&[
        ("offered load", percent(run.offered_load)),
        ("accepted load", percent(run.accepted_load)),
        ("latency, mean", seconds(run.latency_ns.mean * 1e-9)),
        ("latency, 99%", seconds(run.latency_ns.p99 * 1e-9)),
        ("hops, mean", significant(run.hops_mean)),
        ("took a detour", percent(run.nonminimal_share)),
        ("packets", count(run.packets_delivered as f64)),
        ("bytes", bytes(run.bytes_delivered)),
    ]);
    let figures = [latency(run, &PAGE), hops(run, &PAGE), links(run, &PAGE)];
    let figures: String = figures.iter().map(|f| parts::figure(f, "")).collect();
    let cost = parts::cost(&RunCost {
        wall_seconds: run.wall_seconds,
        simulated_seconds: run.simulated_seconds,
        events: run.events,
        packets_delivered: run.packets_delivered,
        threads: run.threads,
        peak_rss_bytes: run.peak_rss_bytes,
    });
    format!("{facts}<div class=\"pair\">\n{figures}</div>\n{cost}")
}
