//! The report of a study of collective operations.

use super::{Inputs, Page, parts};
use crate::figures::collective::{iterations, times};
use crate::plot::palette::PAGE;
use forebay_machine::results::{CollectiveRun, CollectiveTimes};
use forebay_units::human::{bytes, grouped, number, seconds};
use maud::{Markup, html};

/// The report of `forebay sim collective`.
pub fn collective(run: &CollectiveRun, inputs: &Inputs) -> String {
    let mut page = Page::new(
        format!("{} on {}", run.operation, run.machine),
        format!(
            "{} on {} processes of {} nodes ({}), by {} among the nodes",
            bytes(run.size_bytes),
            grouped(run.processes.into()),
            grouped(run.nodes.into()),
            run.placement,
            run.algorithm
        ),
    );
    page.add_section("result", "Result", result(run));
    page.add_section("alone", "Alone", details(&run.alone));
    if let Some(together) = &run.together {
        let title = format!("With {}", run.background.as_deref().unwrap_or("another job"));
        page.add_section("together", &title, details(together));
    }
    page.add_section("inputs", "Inputs", parts::inputs(inputs));
    page.into_document()
}

fn result(run: &CollectiveRun) -> Markup {
    let ratio = |value: Option<f64>| value.map_or("-".to_string(), number);
    let mut facts = vec![
        ("rounds", run.rounds.to_string()),
        ("bytes sent by all nodes in one operation", bytes(run.bytes_per_operation)),
        ("mean time alone", seconds(run.alone.mean_seconds)),
    ];
    if let Some(together) = &run.together {
        facts.push(("mean time together", seconds(together.mean_seconds)));
        facts.push(("mean, together / alone", ratio(run.mean_ratio)));
        facts.push(("99%, together / alone", ratio(run.p99_ratio)));
    }
    let figures = [times(run, &PAGE), iterations(run, &PAGE)];
    html! {
        (parts::warnings(&run.warnings))
        (parts::facts(facts))
        (parts::replication(run.replication.as_ref()))
        (parts::side_by_side(html! {
            @for figure in &figures { (parts::figure(figure, "")) }
        }))
        (parts::observations(&run.observed, run.delays.as_ref()))
    }
}

fn details(times: &CollectiveTimes) -> Markup {
    html! {
        (parts::facts([
            ("messages between nodes", grouped(times.messages)),
            ("their data", bytes(times.bytes)),
        ]))
        (parts::links(&times.links))
        (parts::over_time(&times.series))
        (parts::cost(&times.cost))
    }
}
