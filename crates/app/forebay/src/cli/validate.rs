//! `forebay validate`.

use super::machine::load;
use super::options::{ProgressReporter, command_line, cores, seed, study_failure};
use super::output::{Output, OutputArgs, to_json};
use crate::csv_files::to_csv;
use crate::figures::ior::resource;
use crate::plot::axis;
use crate::plot::bandwidth::{Curve, Figure};
use crate::plot::palette::PAPER;
use crate::plot::png;
use crate::table::{self, Column, Table};
use crate::validate::cases::{self, Case, Run};
use crate::validate::published;
use crate::validate::verdict::{self, Row};
use clap::Args;
use forebay_console::Failure;
use forebay_machine::results::{IorPoint, SCHEMA};
use forebay_machine::study::{self, SimOptions};
use forebay_units::Bytes;
use forebay_units::human::{grouped, number};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  forebay validate\n  forebay validate --quick\n  \
        forebay validate --case shaheen2 --case cori1-fpp-write\n\n\
        Exits with 1 if a row misses its tolerance.")]
pub(super) struct ValidateArgs {
    /// Only the cases that take seconds
    #[arg(long)]
    quick: bool,
    /// Only this case or published row; may be repeated
    #[arg(long, value_name = "ID")]
    case: Vec<String>,
    /// Threads that simulate; the results do not depend on it [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = seed)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result document.
#[derive(Debug, Serialize)]
struct ValidationRun {
    schema: u32,
    kind: &'static str,
    version: &'static str,
    seed: u64,
    rows: Vec<Row>,
}

const COLUMNS: [Column; 7] = [
    Column::text("published row", 26),
    Column::number("measured", 10),
    Column::number("simulated", 10),
    Column::text("unit", 7),
    Column::number("error", 7),
    Column::text("role", 11),
    Column::text("verdict", 10),
];

pub(super) fn run(args: ValidateArgs) -> Result<(), Failure> {
    let cases = cases::chosen(&args.case, args.quick)?;
    let table = published::all()?;
    let mut output = args.output.prepare("validate")?;
    output.print_and_record(&table::heading(&COLUMNS))?;
    let mut rows = Vec::new();
    for case in &cases {
        let points = simulate(case, &args, &output)?;
        for check in &case.check {
            let row = verdict::compare(case, check, cases::measurement(check, &table)?, &points);
            output.print_and_record(&line(&row))?;
            rows.push(row);
        }
    }
    let sweeps: Vec<&Row> = rows.iter().filter(|r| r.steps.len() > 1).collect();
    for row in &sweeps {
        output.print_and_record(&sweep(row))?;
    }
    for row in &sweeps {
        let svg = figure(row).draw(&PAPER).document(PAPER.surface);
        output.write("sweeps", &format!("{}.png", row.row), png::render(&svg)?)?;
        output.write("sweeps", &format!("{}.svg", row.row), svg)?;
    }
    let missed = rows.iter().filter(|r| !r.met).count();
    let count = rows.len();
    let document = ValidationRun {
        schema: SCHEMA,
        kind: "validate",
        version: super::output::VERSION,
        seed: args.seed,
        rows,
    };
    output.write("", "table.txt", output.recorded())?;
    output.write("", "summary.json", to_json(&document)?)?;
    output.write("", "validation.csv", csv_of(&document.rows)?)?;
    output.write("", "inputs.json", to_json(&serde_json::json!({ "command": command_line() }))?)?;
    output.finish(&document)?;
    if missed > 0 {
        return Err(Failure::Failed(format!("{missed} of {count} rows miss their tolerance")));
    }
    Ok(())
}

fn simulate(
    case: &Case,
    args: &ValidateArgs,
    output: &Output,
) -> Result<Vec<(Run, IorPoint)>, Failure> {
    let machine = load(&case.machine)?;
    let options = SimOptions {
        threads: args.threads.map_or_else(cores, usize::from),
        seed: args.seed,
        burst_buffers: Some(case.burst_buffers),
        ..SimOptions::default()
    };
    let mut points = Vec::new();
    for run in case.runs() {
        let tests = super::ior::parse_tests(&run.ior)?.unwrap_or_default();
        let [test] = tests.as_slice() else {
            return Err(Failure::Failed(format!("case {} is not one IOR test", case.id)));
        };
        let label = format!("{}, {} {}", case.id, run.label, case.axis());
        let progress = ProgressReporter::start(&label, output.display);
        let point = study::simulate_ior(
            &machine,
            test,
            run.nodes,
            run.ppn,
            &options,
            &|time, done, events| progress.update(time, done, events),
        )
        .map_err(|e| study_failure(&e))?;
        points.push((run, point));
    }
    Ok(points)
}

/// A row of the table; with an alternative meaning of the measurement, also lines that say what is
/// compared.
fn line(row: &Row) -> String {
    let number = |v: Option<f64>| v.map_or("-".to_string(), number);
    let percent = |e: Option<f64>| e.map_or("-".to_string(), |e| format!("{e:+.1}%"));
    let cells = [
        row.row.clone(),
        number(row.measured),
        number(row.simulated),
        row.unit.clone(),
        percent(row.error_percent),
        row.role.clone(),
        format!("{} ({})", row.verdict, row.tolerance),
    ];
    let mut text = table::line(&COLUMNS, &cells);
    if let Some(alternative) = &row.alternative {
        text.push_str(&format!(
            "\n  compared: {}\n  alternative: {}, {} {} ({})",
            row.compared,
            alternative.compared,
            number(alternative.simulated),
            row.unit,
            percent(alternative.error_percent)
        ));
    }
    text
}

/// The table of a sweep.
fn sweep(row: &Row) -> String {
    let value = if row.unit == "op/s" { "op/s" } else { "GB/s" };
    let mut columns = vec![Column::number("", 0), Column::number(value, 10)];
    if row.alternative.is_some() {
        columns.push(Column::number("alternative", 10));
    }
    columns.push(Column::text("limit", 0));
    let mut table = Table::new(columns);
    for step in &row.steps {
        let mut cells = vec![step.label.clone(), number(step.value)];
        if row.alternative.is_some() {
            cells.push(step.alternative.map_or("-".to_string(), number));
        }
        cells.push(step.limit.clone());
        table.push(cells);
    }
    let table = table.to_string();
    format!("\n{}, by {}:\n{}", row.row, row.axis, table.trim_end())
}

fn figure(row: &Row) -> Figure {
    let x_label =
        if row.axis == "transfer" { |x: f64| Bytes(x as u64).to_string() } else { axis::label };
    let access = if row.row.contains("read") { "read" } else { "write" };
    let points = row.steps.iter().map(|s| (s.x, s.value)).collect();
    let published = match row.measured {
        Some(m) => format!("published: {} {}", grouped(m as u64), row.unit),
        None => row.what.clone(),
    };
    Figure {
        title: format!("{} ({})", row.row, row.machine),
        subtitle: format!("{}; {published}", row.ior),
        x_name: row.axis.clone(),
        x_label,
        curves: vec![Curve { name: access.to_string(), points, half_widths: Vec::new() }],
        marks: Vec::new(),
        limits: row.steps.iter().map(|s| (s.x, resource(&s.limit))).collect(),
    }
}

const CSV_HEADING: [&str; 18] = [
    "row",
    "case",
    "machine",
    "measured",
    "simulated",
    "unit",
    "compared",
    "error_percent",
    "alternative",
    "alternative_simulated",
    "alternative_error_percent",
    "role",
    "tolerance",
    "met",
    "verdict",
    "ior",
    "scaling",
    "source",
];

fn csv_of(rows: &[Row]) -> Result<String, Failure> {
    let cells = rows.iter().map(|r| {
        let alternative = r.alternative.as_ref();
        (
            (&r.row, &r.case, &r.machine, r.measured, r.simulated),
            (&r.unit, &r.compared, r.error_percent),
            (
                alternative.map(|a| &a.compared),
                alternative.and_then(|a| a.simulated),
                alternative.and_then(|a| a.error_percent),
            ),
            (&r.role, &r.tolerance, r.met, &r.verdict),
            (&r.ior, &r.scaling, &r.source),
        )
    });
    to_csv(&CSV_HEADING, cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::verdict::{Alternative, Step};

    #[test]
    fn row_with_alternative_says_what_is_compared() {
        let mut row = Row {
            case: "c".into(),
            row: "client-write".into(),
            machine: "toy".into(),
            what: "w".into(),
            measured: Some(2.0),
            simulated: Some(1.84),
            unit: "GB/s".into(),
            compared: "rate of a node".into(),
            alternative: None,
            error_percent: Some(-8.0),
            role: "validation".into(),
            tolerance: "within 10%".into(),
            met: true,
            verdict: "met".into(),
            axis: "nodes".into(),
            steps: vec![Step {
                x: 256.0,
                label: "256".into(),
                value: 1.84,
                alternative: Some(1.73),
                limit: "client".into(),
            }],
            ior: "-w".into(),
            scaling: "s".into(),
            source: "paper".into(),
        };
        assert_eq!(line(&row).lines().count(), 1);
        assert!(!sweep(&row).contains("1.73"));
        row.alternative = Some(Alternative {
            compared: "IOR's bandwidth / nodes".into(),
            simulated: Some(1.73),
            error_percent: Some(-13.5),
        });
        let text = line(&row);
        assert!(text.ends_with(
            "met (within 10%)\n  compared: rate of a node\n  \
             alternative: IOR's bandwidth / nodes, 1.73 GB/s (-13.5%)"
        ));
        assert!(sweep(&row).contains("1.73"), "{}", sweep(&row));
        let csv = csv_of(&[row]).unwrap();
        assert!(csv.contains("IOR's bandwidth / nodes,1.73,-13.5"), "{csv}");
    }
}
