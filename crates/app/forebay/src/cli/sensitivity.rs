//! `forebay validate --sensitivity`.

use super::machine::load_with;
use super::options::command_line;
use super::output::{Output, OutputArgs, VERSION, to_json};
use super::replicates::{SharedProgress, run_all};
use super::validate_ior::simulate_run;
use super::validate_messages::MessageCommand;
use crate::console::print_stderr;
use crate::csv_files::to_csv;
use crate::plot::bars::{self, Bar};
use crate::plot::palette::PAPER;
use crate::plot::png;
use crate::plot::svg::Svg;
use crate::progress::Display;
use crate::sensitivity::{
    Experiment, Parameter, Sensitivity, experiments, sensitivities, settings,
};
use crate::validate::cases::{Case, Check};
use crate::validate::comparison::Comparison;
use crate::validate::messages::{self, MessageCase, MessageCheck};
use crate::validate::published::{self, Published, measurement};
use crate::validate::verdict;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::results::SCHEMA;
use forebay_machine::study::{Progress, SimOptions};
use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;
use forebay_units::human::number;
use serde::Serialize;

/// Elasticities below are not in the printed table and the picture.
const LEAST_SHOWN: f64 = 0.005;

/// The options of the study.
pub(super) struct Study<'a> {
    pub(super) cases: &'a [Comparison],
    pub(super) threads: usize,
    pub(super) seed: u64,
    /// Walks of the screening.
    pub(super) trajectories: u32,
    /// Numbers instead of the machine files'.
    pub(super) set: &'a [Setting],
    /// Only these parameters; empty: all.
    pub(super) parameters: &'a [String],
    /// Only parameters that decide a row of the case.
    pub(super) deciding: bool,
}

/// The sensitivities of one row.
#[derive(Debug, Serialize)]
struct Row {
    row: String,
    case: String,
    machine: String,
    /// Description of the value.
    quantity: String,
    /// Its value with the numbers of the machine file.
    simulated: Option<f64>,
    unit: String,
    sensitivities: Vec<Sensitivity>,
}

/// The result document.
#[derive(Debug, Serialize)]
struct SensitivityRun {
    schema: u32,
    kind: &'static str,
    version: &'static str,
    seed: u64,
    trajectories: u32,
    /// Numbers of the machine files that were replaced.
    altered: Vec<String>,
    rows: Vec<Row>,
    /// Rows that have no sensitivities: their result has no value, as of a phase that is too short.
    skipped: Vec<String>,
}

/// A case with its parameters and experiments.
struct Plan<'a> {
    case: &'a Comparison,
    parameters: Vec<Parameter>,
    experiments: Vec<Experiment>,
}

impl Plan<'_> {
    /// The simulated value of each row of the case; empty if the machine is invalid with the
    /// numbers of the experiment or the test does not fit it.
    fn simulate(
        &self,
        experiment: &Experiment,
        study: &Study<'_>,
        table: &[Published],
        progress: Progress<'_>,
    ) -> Result<Vec<Option<f64>>, Failure> {
        let changed = settings(&self.parameters, experiment);
        let kept = study.set.iter().filter(|s| changed.iter().all(|c| c.key != s.key));
        let all: Vec<Setting> = kept.chain(&changed).cloned().collect();
        let machine = match load_with(self.case.machine(), &all) {
            Ok(machine) => machine,
            Err(_) if !changed.is_empty() => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let values = match self.case {
            Comparison::Ior(case) => ior_values(case, &machine, study.seed, table, progress),
            Comparison::Messages(case) => message_values(case, &all, study.seed, table, progress),
        };
        match values {
            Err(Failure::Input(_)) if !changed.is_empty() => Ok(Vec::new()),
            values => values,
        }
    }
}

/// The value of each row of a case of IOR.
fn ior_values(
    case: &Case,
    machine: &Machine,
    seed: u64,
    table: &[Published],
    progress: Progress<'_>,
) -> Result<Vec<Option<f64>>, Failure> {
    let options = SimOptions { threads: 1, seed, ..SimOptions::default() };
    let runs = case.runs();
    let count = runs.len() as f64;
    let mut points = Vec::new();
    for (i, run) in runs.into_iter().enumerate() {
        let part = |time, done, events| progress(time, (i as f64 + done) / count, events);
        let point = simulate_run(case, &run, machine, &options, &part)?;
        points.push((run, vec![point]));
    }
    let value = |check: &Check| {
        let published = measurement(&check.row, table)?;
        let row = verdict::compare(case, check, published, &machine.provenance, &points);
        Ok(if check.measure.is_rate() { row.simulated } else { best_rate(&row) })
    };
    case.check.iter().map(value).collect()
}

/// The value of each row of a case of messages.
fn message_values(
    case: &MessageCase,
    set: &[Setting],
    seed: u64,
    table: &[Published],
    progress: Progress<'_>,
) -> Result<Vec<Option<f64>>, Failure> {
    let command = MessageCommand::new(case, set, seed)?;
    let samples = [command.quantities(0, 1, progress)?];
    let value = |check: &MessageCheck| {
        let published = measurement(&check.row, table)?;
        Ok(messages::compare(case, check, published, &[], &samples)?.simulated)
    };
    case.check.iter().map(value).collect()
}

/// Description and unit of the value of each row of a case.
fn quantities(case: &Comparison, table: &[Published]) -> Result<Vec<(String, String)>, Failure> {
    let unit = |row: &str| Ok(measurement(row, table)?.unit.clone());
    let of_ior = |check: &Check| match check.measure.is_rate() {
        true => Ok((verdict::compared(check), unit(&check.row)?)),
        false => Ok(("best rate of the sweep".to_string(), "GB/s".to_string())),
    };
    match case {
        Comparison::Ior(case) => case.check.iter().map(of_ior).collect(),
        Comparison::Messages(case) => {
            let checks = case.check.iter();
            checks.map(|check| Ok((check.compared.clone(), unit(&check.row)?))).collect()
        }
    }
}

/// The best rate of a sweep, in GB/s: for rows that compare a point of the sweep or a limit.
fn best_rate(row: &verdict::Row) -> Option<f64> {
    row.steps.iter().map(|step| step.value).max_by(f64::total_cmp)
}

/// The parameters and experiments of each case.
fn plan<'a>(study: &Study<'a>) -> Result<Vec<Plan<'a>>, Failure> {
    let mut plans = Vec::new();
    let mut known = Vec::new();
    for case in study.cases {
        let bases = case.bases();
        let named: Vec<String> = bases.iter().flat_map(|b| b.decided_by).cloned().collect();
        let machine = load_with(case.machine(), study.set)?;
        let mut parameters = Parameter::of_machine(&machine, &named);
        if study.deciding {
            parameters.retain(|p| named.contains(&p.key));
        }
        known.extend(parameters.iter().map(|p| p.key.clone()));
        if !study.parameters.is_empty() {
            parameters.retain(|p| study.parameters.contains(&p.key));
        }
        let experiments = experiments(parameters.len(), study.trajectories, study.seed);
        plans.push(Plan { case, parameters, experiments });
    }
    known.sort_unstable();
    known.dedup();
    match study.parameters.iter().find(|key| !known.contains(key)) {
        Some(key) => Err(Failure::Input(format!(
            "--parameter {key}: not an assumed or deciding number of these cases; those are {}",
            known.join(", ")
        ))),
        None => Ok(plans),
    }
}

/// Simulates all experiments of all cases on all cores, and writes the results.
pub(super) fn run(study: &Study<'_>, output: &OutputArgs) -> Result<(), Failure> {
    let plans = plan(study)?;
    let table = published::all()?;
    let mut output = output.prepare("sensitivity")?;
    let tasks: Vec<(&Plan<'_>, &Experiment)> =
        plans.iter().flat_map(|plan| plan.experiments.iter().map(move |e| (plan, e))).collect();
    if output.display != Display::Quiet {
        let runs: usize = tasks.iter().map(|(plan, _)| plan.case.simulations()).sum();
        print_stderr(format_args!(
            "sensitivity: {} machines in {} cases, {runs} simulations on {} threads",
            tasks.len(),
            plans.len(),
            study.threads
        ));
    }
    let progress = SharedProgress::start("sensitivity", tasks.len(), output.display);
    let results = run_all(tasks.len(), study.threads, |i| {
        let (plan, experiment) = tasks[i];
        let shown = |time, done, events| progress.update(i, time, done, events);
        let result = plan.simulate(experiment, study, &table, &shown);
        progress.end(i);
        result
    })?;
    drop(progress);
    let (rows, skipped) = evaluate(&plans, &results, &table)?;
    let document = SensitivityRun {
        schema: SCHEMA,
        kind: "sensitivity",
        version: VERSION,
        seed: study.seed,
        trajectories: study.trajectories,
        altered: study.set.iter().map(Setting::to_string).collect(),
        rows,
        skipped,
    };
    write(&document, &mut output)?;
    output.finish(&document)
}

/// The rows from the results of all experiments, and the names of the rows without a number.
fn evaluate(
    plans: &[Plan<'_>],
    mut results: &[Vec<Option<f64>>],
    table: &[Published],
) -> Result<(Vec<Row>, Vec<String>), Failure> {
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for Plan { case, parameters, experiments } in plans {
        let (of_case, rest) = results.split_at(experiments.len());
        results = rest;
        let described = quantities(case, table)?;
        for (i, (basis, (quantity, unit))) in case.bases().iter().zip(described).enumerate() {
            let values: Vec<Option<f64>> =
                of_case.iter().map(|values| values.get(i).copied().flatten()).collect();
            let simulated = values.first().copied().flatten();
            if simulated.is_none() {
                skipped.push(basis.row.to_string());
                continue;
            }
            rows.push(Row {
                row: basis.row.to_string(),
                case: case.id().to_string(),
                machine: case.machine().to_string(),
                quantity,
                simulated,
                unit,
                sensitivities: sorted(sensitivities(parameters, experiments, &values)),
            });
        }
    }
    Ok((rows, skipped))
}

fn write(document: &SensitivityRun, output: &mut Output) -> Result<(), Failure> {
    if !document.altered.is_empty() {
        let set = document.altered.join(", ");
        output.print_and_record(&format!("ALTERED, not the machine files: {set}\n"))?;
    }
    for row in &document.rows {
        output.print_and_record(&text(row))?;
        let svg = tornado(row).document(PAPER.surface);
        output.write("tornado", &format!("{}.png", row.row), png::render(&svg)?)?;
        output.write("tornado", &format!("{}.svg", row.row), svg)?;
    }
    if !document.skipped.is_empty() {
        let names = document.skipped.join(", ");
        output.print_and_record(&format!("without a value: {names}"))?;
    }
    output.write("", "table.txt", output.recorded())?;
    output.write("", "summary.json", to_json(document)?)?;
    output.write("", "sensitivity.csv", csv_of(&document.rows)?)?;
    output.write("", "sensitivity.md", markdown(&document.rows))?;
    output.write("", "inputs.json", to_json(&serde_json::json!({ "command": command_line() }))?)
}

/// By descending effect.
fn sorted(mut all: Vec<Sensitivity>) -> Vec<Sensitivity> {
    let effect = |s: &Sensitivity| s.elasticity.map_or(0.0, f64::abs).max(s.mu_star.unwrap_or(0.0));
    all.sort_by(|a, b| effect(b).total_cmp(&effect(a)).then(a.parameter.cmp(&b.parameter)));
    all
}

/// Whether a parameter has an effect that is worth showing.
fn is_shown(s: &Sensitivity) -> bool {
    s.elasticity.is_some_and(|e| e.abs() >= LEAST_SHOWN)
        || s.mu_star.is_some_and(|e| e >= LEAST_SHOWN)
}

fn text(row: &Row) -> String {
    let mut table = Table::new([
        Column::text("number", 40),
        Column::number("low", 8),
        Column::number("high", 8),
        Column::number("elasticity", 10),
        Column::number("Morris mu*", 10),
        Column::number("sigma", 7),
    ]);
    let ratio = |to: u64, base: u64| format!("x{}", number(to as f64 / base as f64));
    let unsigned = |v: Option<f64>| v.map_or("-".to_string(), |v| format!("{v:.2}"));
    for s in row.sensitivities.iter().filter(|s| is_shown(s)) {
        let mark = if s.central { "" } else { "*" };
        table.push([
            s.parameter.clone(),
            ratio(s.low, s.base),
            ratio(s.high, s.base),
            s.elasticity.map_or("-".to_string(), |v| format!("{v:+.2}{mark}")),
            unsigned(s.mu_star),
            unsigned(s.sigma),
        ]);
    }
    let others = row.sensitivities.iter().filter(|s| !is_shown(s)).count();
    let value = row.simulated.map_or("-".to_string(), number);
    let note = match row.sensitivities.iter().any(|s| is_shown(s) && !s.central) {
        true => "* one-sided difference: the machine is invalid with the other value\n",
        false => "",
    };
    format!(
        "{} ({}), {}: {value} {}\n{table}{note}{others} other numbers have no effect\n",
        row.row, row.machine, row.quantity, row.unit
    )
}

/// All rows as a Markdown table: the elasticities that are shown, with mu* in parentheses.
fn markdown(rows: &[Row]) -> String {
    let mut text = String::from("| row | value | elasticity |\n|---|---|---|\n");
    for row in rows {
        let shown = row.sensitivities.iter().filter(|s| is_shown(s)).map(|s| {
            let elasticity = s.elasticity.map_or("-".to_string(), |e| format!("{e:+.2}"));
            let screening = s.mu_star.map(|mu_star| format!(" ({mu_star:.2})"));
            format!("{} {elasticity}{}", s.parameter, screening.unwrap_or_default())
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        let value = row.simulated.map_or("-".to_string(), number);
        text.push_str(&format!("| {} | {value} {} | {shown} |\n", row.row, row.unit));
    }
    text
}

/// The tornado plot: a bar per parameter.
fn tornado(row: &Row) -> Svg {
    let bar = |s: &Sensitivity| {
        let elasticity = s.elasticity?;
        let screening = s.mu_star.map(|mu_star| format!("; mu* {mu_star:.2}"));
        Some(Bar {
            name: s.parameter.clone(),
            value: elasticity.abs(),
            text: format!("{elasticity:+.2}{}", screening.unwrap_or_default()),
            // The first colour raises the quantity, the second lowers it.
            series: usize::from(elasticity < 0.0),
        })
    };
    let bars: Vec<Bar> = row.sensitivities.iter().filter(|s| is_shown(s)).filter_map(bar).collect();
    bars::draw(&format!("Elasticity of {} ({})", row.row, row.machine), &bars, 760.0, &PAPER)
}

const CSV_HEADING: [&str; 14] = [
    "row",
    "case",
    "machine",
    "quantity",
    "simulated",
    "unit",
    "parameter",
    "low",
    "base",
    "high",
    "elasticity",
    "central",
    "mu_star",
    "sigma",
];

fn csv_of(rows: &[Row]) -> Result<String, Failure> {
    let cells = rows.iter().flat_map(|row| {
        row.sensitivities.iter().map(move |s| {
            (
                (&row.row, &row.case, &row.machine, &row.quantity, row.simulated, &row.unit),
                (&s.parameter, s.low, s.base, s.high),
                (s.elasticity, s.central, s.mu_star, s.sigma),
            )
        })
    });
    to_csv(&CSV_HEADING, cells)
}
