//! A plan as text.

use crate::cli::options::counted_processes;
use crate::cli::remarks;
use forebay_console::table::{Column, Table};
use forebay_plan::{Configuration, Plan, StageTime};
use forebay_units::human::{bytes, counted, percent, seconds};
use std::collections::BTreeSet;

/// The plan as text.
pub(super) fn text(plan: &Plan) -> String {
    let mut out = format!(
        "{}: {} with {} each; a burst buffer has to hold {}\n\n",
        plan.machine,
        counted(plan.nodes.into(), "node"),
        counted_processes(plan.processes_per_node),
        bytes(plan.needed_bytes)
    );
    out.push_str(&table(&plan.configurations));
    if !plan.transfers.is_empty() {
        out.push_str("\nWith other transfer sizes:\n");
        out.push_str(&table(&plan.transfers));
    }
    let advice = &plan.recommendation;
    out.push_str("\nRecommended: ");
    match (&advice.directive, advice.file_system.as_str()) {
        (Some(directive), _) => out.push_str(directive),
        (None, "pfs") => out.push_str("the parallel file system, without a burst buffer"),
        (None, _) => out.push_str("nothing"),
    }
    out.push_str(&format!("\n{}\n", sentence(&advice.reason)));
    if let Some(measured) = plan.measured_seconds {
        let time = seconds(measured);
        out.push_str(&format!("The log measured {time} in the slowest processes' calls.\n"));
    }
    let all = plan.configurations.iter().chain(&plan.transfers).flat_map(|one| &one.warnings);
    let warnings = plan.warnings.iter().chain(all.collect::<BTreeSet<_>>());
    out + &remarks::text(&remarks::remarks(warnings, &plan.published, &[]))
}

/// A reason as a sentence.
fn sentence(reason: &str) -> String {
    let mut letters = reason.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}

fn table(configurations: &[Configuration]) -> String {
    let mut table = Table::new([
        Column::text("file system", 0),
        Column::text("capacity", 0),
        Column::number("nodes", 0),
        Column::text("access", 0),
        Column::number("transfer", 0),
        Column::number("write", 0),
        Column::number("read", 0),
        Column::number("of the run", 0),
        Column::number("stage-in", 0),
        Column::number("stage-out", 0),
        Column::text("limit", 0),
    ]);
    for one in configurations {
        let at_best = if one.is_bound { "≥ " } else { "" };
        let time = |time: Option<f64>| time.map(|t| format!("{at_best}{}", seconds(t)));
        let stage = |stage: &Option<StageTime>| stage.as_ref().map(|stage| seconds(stage.seconds));
        let shown = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        let nodes = (one.storage_nodes > 0).then(|| one.storage_nodes.to_string());
        table.push([
            one.file_system.clone(),
            shown(one.capacity.clone().or(one.stripe_count.map(|count| format!("-c {count}")))),
            shown(nodes),
            shown((!one.access_modes.is_empty()).then(|| one.access_modes.join(" or "))),
            bytes(one.transfer),
            shown(time(one.write_seconds)),
            shown(time(one.read_seconds)),
            shown(one.share.map(|share| format!("{at_best}{}", percent(share)))),
            shown(stage(&one.stage_in)),
            shown(stage(&one.stage_out)),
            limits(one),
        ]);
    }
    table.to_string()
}

/// The limit of the I/O, and those of the stages.
fn limits(one: &Configuration) -> String {
    let mut limits = vec![one.limit.clone()];
    for (name, stage) in [("in", &one.stage_in), ("out", &one.stage_out)] {
        let limit = stage.as_ref().map_or("", |stage| stage.limit.as_str());
        if !limit.is_empty() {
            limits.push(format!("{name}: {limit}"));
        }
    }
    limits.join("; ")
}
