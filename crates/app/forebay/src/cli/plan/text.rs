//! A plan as text.

use crate::cli::options::counted_processes;
use crate::cli::remarks;
use forebay_console::table::{Column, Table};
use forebay_plan::{Configuration, Plan, StageTime};
use forebay_units::human::{bytes, counted, percent, seconds};
use std::collections::BTreeMap;

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
    let all: Vec<(String, &Configuration)> = named(plan);
    let of_all =
        all.iter().flat_map(|(name, one)| one.warnings.iter().map(move |text| (text, name)));
    let warnings = plan.warnings.iter().cloned().chain(with_names(of_all, all.len()));
    let left_out = all.iter().map(|(_, one)| &one.left_out).find(|effects| !effects.is_empty());
    let left_out = left_out.map_or(&[][..], Vec::as_slice);
    if let Some(fidelity) = fidelity(&all) {
        out.push_str(&format!("fidelity: {fidelity}\n"));
    }
    out + &remarks::text(&remarks::remarks(warnings, &plan.published, left_out))
}

/// All configurations, with names that tell them apart.
fn named(plan: &Plan) -> Vec<(String, &Configuration)> {
    let name = |one: &Configuration| match (&one.capacity, one.stripe_count) {
        (Some(capacity), _) => capacity.clone(),
        (None, Some(count)) => format!("{} -c {count}", one.file_system),
        (None, None) => one.file_system.clone(),
    };
    let own = plan.configurations.iter().map(|one| (name(one), one));
    let with_transfer = |one: &Configuration| format!("{} with {}", name(one), bytes(one.transfer));
    own.chain(plan.transfers.iter().map(|one| (with_transfer(one), one))).collect()
}

/// Each text once, with the names of the configurations that have it, unless all `count` have it.
fn with_names<'a>(
    texts: impl Iterator<Item = (&'a String, &'a String)>,
    count: usize,
) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (text, name) in texts {
        found.entry(text).or_default().push(name);
    }
    let line = |(text, names): (&str, Vec<&str>)| match names.len() == count {
        true => text.to_owned(),
        false => format!("{}: {text}", names.join(", ")),
    };
    found.into_iter().map(line).collect()
}

/// The fidelity of the simulations: one, or each with its configurations; `None` if nothing was simulated.
fn fidelity(all: &[(String, &Configuration)]) -> Option<String> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, one) in all {
        if let Some(fidelity) = &one.fidelity {
            found.entry(fidelity).or_default().push(name);
        }
    }
    let each =
        |(fidelity, names): (&&str, &Vec<&str>)| format!("{fidelity} ({})", names.join(", "));
    match found.keys().collect::<Vec<_>>()[..] {
        [] => None,
        [only] => Some(only.to_string()),
        _ => Some(found.iter().map(each).collect::<Vec<_>>().join(", ")),
    }
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
