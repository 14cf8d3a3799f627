//! `forebay validate`.

use super::machine::load_with;
use super::options::{command_line, cores, seed, setting};
use super::output::{Output, OutputArgs, to_json};
use super::sensitivity::{self, Study};
use super::validate_fidelity::{self, GridArgs};
use super::{validate_ior, validate_messages, validate_network};
use crate::console::print_stderr;
use crate::figures::ior::resource;
use crate::plot::axis;
use crate::plot::bandwidth::{Curve, Figure};
use crate::plot::palette::PAPER;
use crate::plot::png;
use crate::validate::accuracy;
use crate::validate::comparison::{self, Comparison};
use crate::validate::fidelity::{CaseKind, grid, network_cases};
use crate::validate::markdown;
use crate::validate::network;
use crate::validate::published;
use crate::validate::rows_csv::csv_of;
use crate::validate::status::Status;
use crate::validate::verdict::Row;
use clap::Args;
use forebay_console::Failure;
use forebay_console::table::{self, Column, Table};
use forebay_machine::results::SCHEMA;
use forebay_machine::study::{Fidelity, SimOptions};
use forebay_machine_file::Setting;
use forebay_units::Bytes;
use forebay_units::human::{grouped, number};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  forebay validate\n  forebay validate --quick\n  \
        forebay validate --network --quick\n  forebay validate --fidelity flow\n  \
        forebay validate --fidelity both --quick\n  \
        forebay validate --fidelity both --results runs/grid --case-time 20min\n  \
        forebay validate --case shaheen2 --case cori1-fpp-write\n  \
        forebay validate --case trinity-client --set client.write_rate=3GB/s\n  \
        forebay validate --case trinity-client-write --sensitivity --parameter client.write_rate\n  \
        forebay validate --quick --sensitivity --deciding --trajectories 0\n\n\
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
    /// Simulate with this many seeds, from --seed on; the table has means and 95% confidence intervals.
    /// A run of IOR that is the same with the first two is not simulated with others
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    seeds: u16,
    /// A number of the machines instead of their files', as burst_buffer.card_write=1.5GB/s; may be
    /// repeated. All rows are marked as altered: they say nothing about the machine files
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<Setting>,
    /// Instead of measurements: compare the packet network with theory and with the latency-load
    /// curves of peer simulators (validation/network)
    #[arg(long, conflicts_with_all = ["sensitivity", "seeds", "format", "set"])]
    network: bool,
    /// Level of detail of the IOR rows: packets; flows, which omit the other rows and those that flows cannot
    /// represent; or auto: packets up to 50 million estimated events, else flows. `both`: instead of measurements, compare flows with packets on a grid of cases
    /// (validation/flow.toml)
    #[arg(long, value_enum, default_value_t = FidelityArg::Packet, conflicts_with_all = ["network", "sensitivity"])]
    fidelity: FidelityArg,
    #[command(flatten)]
    grid: GridArgs,
    /// Instead of the comparison: the elasticity of each row with respect to each number that is
    /// assumed or decides it (central differences between four fifths and five fourths of the
    /// number, of sizes between half and twice), and Morris screening
    #[arg(long, conflicts_with_all = ["seeds", "format"])]
    sensitivity: bool,
    /// Walks of the Morris screening, each of one simulation per number and one more; 0: none
    #[arg(long, value_name = "N", default_value_t = 4, requires = "sensitivity", value_parser = clap::value_parser!(u32).range(0..=1000))]
    trajectories: u32,
    /// Only the sensitivity to this number of the machine; may be repeated
    #[arg(long = "parameter", value_name = "KEY", requires = "sensitivity")]
    parameters: Vec<String>,
    /// Only the sensitivity to the numbers that decide the rows: some ten simulations a case instead of
    /// a hundred
    #[arg(long, requires = "sensitivity", conflicts_with = "parameters")]
    deciding: bool,
    /// Format of the table; `markdown` is that of docs/accuracy.md, `csv` that of validation/accuracy.csv
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    output: OutputArgs,
}

/// Level of detail of the simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FidelityArg {
    /// Each packet at each link
    Packet,
    /// Max-min fair rates
    Flow,
    /// Packets if that is fast, else flows
    Auto,
    /// Flows beside packets
    Both,
}

/// Format of the table of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Columns of text
    Text,
    /// Markdown
    Markdown,
    /// CSV of the simulated values
    Csv,
}

/// The result document.
#[derive(Debug, Serialize)]
struct ValidationRun {
    schema: u32,
    kind: &'static str,
    version: &'static str,
    seed: u64,
    /// Numbers of the machine files that were replaced.
    altered: Vec<String>,
    rows: Vec<Row>,
}

const COLUMNS: [Column; 8] = [
    Column::text("published row", 30),
    Column::number("measured", 10),
    Column::number("simulated", 10),
    Column::number("±", 7),
    Column::text("unit", 7),
    Column::number("error", 7),
    Column::text("limit", 11),
    Column::text("verdict", 10),
];

pub(super) fn run(args: ValidateArgs) -> Result<(), Failure> {
    if args.network {
        let cases = network::chosen(&args.case, args.quick)?;
        let threads = args.threads.map_or_else(cores, usize::from);
        return validate_network::run(&cases, threads, args.seed, &args.output);
    }
    let fidelity = match args.fidelity {
        FidelityArg::Packet => Fidelity::Packet,
        FidelityArg::Flow => Fidelity::Flow,
        FidelityArg::Auto => Fidelity::Auto,
        FidelityArg::Both => return compare_fidelities(&args),
    };
    if args.grid.is_any() {
        return Err(Failure::Input(
            "--results, --case-time, --cases and --kinds are for the grid of --fidelity both"
                .to_string(),
        ));
    }
    let cases = comparison::chosen(&args.case, args.quick)?;
    if args.sensitivity {
        let study = Study {
            cases: &cases,
            threads: args.threads.map_or_else(cores, usize::from),
            seed: args.seed,
            trajectories: args.trajectories,
            set: &args.set,
            parameters: &args.parameters,
            deciding: args.deciding,
        };
        return sensitivity::run(&study, &args.output);
    }
    let altered: Vec<String> = args.set.iter().map(Setting::to_string).collect();
    // A setting that one of the machines refuses is an error before anything is written.
    for case in &cases {
        load_with(case.machine(), &args.set)?;
    }
    let table = published::all()?;
    let mut output = args.output.prepare("validate")?;
    let threads = args.threads.map_or_else(cores, usize::from);
    let seeds = (args.seed, args.seeds.into());
    let mut rows = Vec::new();
    for case in &cases {
        let of_case = match case {
            Comparison::Ior(case) => {
                let options = SimOptions { seed: args.seed, fidelity, ..SimOptions::default() };
                let count = args.seeds.into();
                match validate_ior::rows(
                    case,
                    &args.set,
                    (&options, count),
                    threads,
                    &table,
                    &output,
                ) {
                    // The cases are valid input, except for flows.
                    Err(Failure::Input(reason)) if fidelity == Fidelity::Flow => {
                        print_stderr(format_args!("{} is omitted: {reason}", case.id));
                        continue;
                    }
                    rows => rows?,
                }
            }
            Comparison::Messages(case) if fidelity == Fidelity::Flow => {
                print_stderr(format_args!("{} is omitted: messages are packets", case.id));
                continue;
            }
            Comparison::Messages(case) => {
                validate_messages::rows(case, &args.set, seeds, threads, &table, &output)?
            }
        };
        rows.extend(of_case.into_iter().map(|row| row.with_settings(&altered)));
    }
    match args.format {
        Format::Text => print_text(&rows, &mut output)?,
        Format::Csv => output.print_and_record(accuracy::csv_of(&rows)?.trim_end())?,
        Format::Markdown => output.print_and_record(markdown::tables(&rows).trim_end())?,
    }
    output.write("", "accuracy.md", markdown::tables(&rows))?;
    let sweeps: Vec<&Row> = rows.iter().filter(|r| r.steps.len() > 1).collect();
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
        altered,
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

/// Compares flows with packets.
fn compare_fidelities(args: &ValidateArgs) -> Result<(), Failure> {
    let unused = !args.case.is_empty() || !args.set.is_empty() || args.seeds > 1;
    if unused || args.format != Format::Text {
        return Err(Failure::Input(
            "--fidelity both simulates its own grid: without --case, --set, --seeds and --format"
                .to_string(),
        ));
    }
    let mut cases = grid(args.quick)?;
    cases.retain(|case| args.grid.has(case.set, CaseKind::Ior));
    let mut of_network = if args.quick { Vec::new() } else { network_cases()? };
    of_network.retain(|case| args.grid.has(case.set, case.kind()));
    if cases.is_empty() && of_network.is_empty() {
        return Err(Failure::Input(
            "no case is of the chosen sets and kinds: with --quick there are few of `build` and `seen`, and none of `test`"
                .to_string(),
        ));
    }
    let threads = args.threads.map_or_else(cores, usize::from);
    validate_fidelity::run((&cases, &of_network), (threads, args.seed), &args.grid, &args.output)
}

/// Prints the rows in groups by status, then the sweeps.
fn print_text(rows: &[Row], output: &mut Output) -> Result<(), Failure> {
    for status in Status::ALL {
        let group: Vec<&Row> = rows.iter().filter(|r| r.status == status.name()).collect();
        if group.is_empty() {
            continue;
        }
        let met = group.iter().filter(|r| r.met).count();
        let (heading, explanation) = status.heading();
        let count = group.len();
        output.print_and_record(&format!("{heading} ({met} of {count} hold): {explanation}"))?;
        output.print_and_record(&table::heading(&COLUMNS))?;
        for row in group {
            output.print_and_record(&line(row))?;
        }
        output.print_and_record("")?;
    }
    for row in rows.iter().filter(|r| r.steps.len() > 1) {
        output.print_and_record(&sweep(row))?;
    }
    Ok(())
}

/// A row of the table, followed by what is compared and the reasons why it is not predicted.
fn line(row: &Row) -> String {
    let number = |v: Option<f64>| v.map_or("-".to_string(), number);
    let percent = |e: Option<f64>| e.map_or("-".to_string(), |e| format!("{e:+.1}%"));
    let interval = row.simulated.zip(row.interval);
    let cells = [
        row.row.clone(),
        number(row.measured),
        number(row.simulated),
        interval.map_or("-".to_string(), |(value, half)| markdown::half_width(value, half)),
        row.unit.clone(),
        percent(row.error_percent),
        row.limit.clone(),
        format!("{} ({})", row.verdict, row.tolerance),
    ];
    let mut text = table::line(&COLUMNS, &cells);
    text.push_str(&format!(
        "\n  compared: {}; decided by {}",
        row.compared,
        row.decided_by.join(", ")
    ));
    if let Some(steady) = row.steady_gbps {
        text.push_str(&format!("\n  steady rate: {} GB/s", number(Some(steady))));
    }
    if !row.status_reasons.is_empty() {
        text.push_str(&format!("\n  {}: {}", row.status, row.status_reasons.join("; ")));
    }
    if let Some(reason) = &row.misses {
        text.push_str(&format!("\n  misses because: {reason}"));
    }
    for warning in &row.warnings {
        text.push_str(&format!("\n  warning: {warning}"));
    }
    if let Some(alternative) = &row.alternative {
        text.push_str(&format!(
            "\n  alternative: {}, {} {} ({})",
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
            interval: Some(0.02),
            band: None,
            status: "settled in view".into(),
            status_reasons: vec!["processes per node were chosen".into()],
            decided_by: vec!["client.write_rate".into()],
            steady_gbps: Some(2.5),
            limit: "client".into(),
            tolerance: "within 10%".into(),
            met: true,
            verdict: "met".into(),
            misses: None,
            warnings: Vec::new(),
            axis: "nodes".into(),
            steps: vec![Step {
                x: 256.0,
                label: "256".into(),
                value: 1.84,
                half_width: Some(0.02),
                alternative: Some(1.73),
                steady_gbps: Some(2.5),
                limit: "client".into(),
            }],
            ior: "-w".into(),
            command: String::new(),
            scaling: "s".into(),
            source: "paper".into(),
        };
        assert_eq!(line(&row).lines().count(), 4);
        assert!(line(&row).contains("settled in view: processes per node were chosen"));
        assert!(!sweep(&row).contains("1.73"));
        row.warnings = vec!["few transfers".into()];
        assert_eq!(line(&row).lines().nth(4), Some("  warning: few transfers"));
        row.warnings.clear();
        row.alternative = Some(Alternative {
            compared: "IOR's bandwidth / nodes".into(),
            simulated: Some(1.73),
            error_percent: Some(-13.5),
        });
        let text = line(&row);
        assert!(text.contains("met (within 10%)\n  compared: rate of a node"));
        assert!(text.ends_with("alternative: IOR's bandwidth / nodes, 1.73 GB/s (-13.5%)"));
        assert!(sweep(&row).contains("1.73"), "{}", sweep(&row));
        let csv = csv_of(&[row]).unwrap();
        assert!(csv.contains("IOR's bandwidth / nodes,1.73,-13.5"), "{csv}");
    }
}
