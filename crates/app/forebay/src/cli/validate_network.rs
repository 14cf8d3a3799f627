//! `forebay validate --network`.

use super::options::{ProgressReporter, command_line, study_failure};
use super::output::{Output, OutputArgs, VERSION, to_json};
use crate::csv_files::to_csv;
use crate::plot::axis::{Scale, label};
use crate::plot::lines::{Chart, Line};
use crate::plot::palette::PAPER;
use crate::plot::svg::{Svg, TextStyle};

use crate::validate::network::{Accepted, CurvePoint, NetworkCase, Point, Row, compare};
use forebay_console::Failure;
use forebay_console::table::{self, Column};
use forebay_machine::results::SCHEMA;
use forebay_machine::study::{SimOptions, simulate_traffic};
use forebay_machine_file::machine::{Machine, Routing};
use forebay_units::human::number;
use forebay_units::{Bytes, Time};
use forebay_workload::traffic::TrafficSpec;
use serde::Serialize;

/// The result document.
#[derive(Debug, Serialize)]
struct NetworkValidation {
    schema: u32,
    kind: &'static str,
    version: &'static str,
    seed: u64,
    rows: Vec<Row>,
    curves: Vec<Curve>,
}

/// Our points of a case.
#[derive(Debug, Serialize)]
struct Curve {
    case: String,
    points: Vec<Point>,
}

const COLUMNS: [Column; 7] = [
    Column::text("case", 32),
    Column::text("quantity", 21),
    Column::number("load", 5),
    Column::number("theirs", 8),
    Column::number("ours", 8),
    Column::number("diff.", 7),
    Column::text("verdict", 10),
];

pub(super) fn run(
    cases: &[NetworkCase],
    threads: usize,
    seed: u64,
    args: &OutputArgs,
) -> Result<(), Failure> {
    let mut output = args.prepare("validate-network")?;
    output.print_and_record(&table::heading(&COLUMNS))?;
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    for case in cases {
        let machine = case.load_machine()?;
        let curve = case.load_curve()?;
        let unit = case.latency_unit.as_deref().unwrap_or("1 ns");
        let ns = quantity::<Time>(case, unit)?.0 as f64 / 1_000.0;
        let mut points = Vec::new();
        for load in case.offered_loads(&curve) {
            points.push(simulate(case, &machine, load, (threads, seed), &output)?);
        }
        let compared = compare(case, &curve, ns, &points);
        for row in &compared {
            output.print_and_record(&line(row))?;
        }
        if let Some(row) = compared.first() {
            output.print_and_record(&remarks(row, &compared))?;
        }
        if !curve.is_empty() {
            let svg = figure(case, &curve, ns, &points);
            output.write("network", &format!("{}.svg", case.id), svg.document(PAPER.surface))?;
        }
        rows.extend(compared);
        curves.push(Curve { case: case.id.clone(), points });
    }
    let missed = rows.iter().filter(|r| !r.met).count();
    let count = rows.len();
    output.print_and_record(&format!("{} of {count} rows hold", count - missed))?;
    let document = NetworkValidation {
        schema: SCHEMA,
        kind: "validate network",
        version: VERSION,
        seed,
        rows,
        curves,
    };
    output.write("", "table.txt", output.recorded())?;
    output.write("", "summary.json", to_json(&document)?)?;
    output.write("", "network.csv", csv_of(&document.rows)?)?;
    output.write("", "inputs.json", to_json(&serde_json::json!({ "command": command_line() }))?)?;
    output.finish(&document)?;
    if missed > 0 {
        return Err(Failure::Failed(format!("{missed} of {count} rows miss their tolerance")));
    }
    Ok(())
}

/// Parses a value of a case.
fn quantity<T: std::str::FromStr>(case: &NetworkCase, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| {
        Failure::Failed(format!("validation/network/cases.toml: {}: `{text}` is invalid", case.id))
    })
}

fn simulate(
    case: &NetworkCase,
    machine: &Machine,
    load: f64,
    (threads, seed): (usize, u64),
    output: &Output,
) -> Result<Point, Failure> {
    let message: Bytes = quantity(case, &case.message)?;
    let messages = match (&case.span, case.messages) {
        (Some(span), _) => {
            let seconds = quantity::<Time>(case, span)?.as_seconds();
            let bytes = seconds * load * machine.network.node.rate.0 as f64;
            (bytes / message.0 as f64).ceil() as u64
        }
        (None, messages) => messages.unwrap_or(1),
    };
    let injection = case.injection.as_deref().map(|text| quantity(case, text)).transpose()?;
    let spec = TrafficSpec::new(quantity(case, &case.pattern)?, message, load, messages)
        .map_err(|e| Failure::Failed(format!("{}: {e}", case.id)))?
        .with_injection(injection.unwrap_or_default());
    let routing = Routing::NAMES.iter().find(|(name, _)| *name == case.routing).map(|(_, r)| *r);
    let options = SimOptions { threads, seed, routing, ..SimOptions::default() };
    let progress = ProgressReporter::start(&format!("{}, load {load}", case.id), output.display);
    let run = simulate_traffic(machine, &spec, &options, &|time, done, events| {
        progress.update(time, done, events)
    })
    .map_err(|e| study_failure(&e))?;
    Ok(Point {
        offered: load,
        accepted: match case.accepted {
            Accepted::Window => run.accepted_load,
            Accepted::WholeRun => run.run_load,
        },
        latency_ns: run.latency_ns.map(|l| l.mean),
    })
}

/// A latency in ns, or a load, which is at most 1.
fn value(value: f64) -> String {
    if value <= 1.0 { format!("{value:.4}") } else { number(value) }
}

fn line(row: &Row) -> String {
    let cells = [
        row.case.clone(),
        row.quantity.clone(),
        row.load.map_or(String::new(), number),
        value(row.peer),
        row.ours.map_or("-".to_string(), value),
        row.difference_percent.map_or("-".to_string(), |d| format!("{d:+.1}%")),
        format!("{} (within {}%)", if row.met { "met" } else { "missed" }, row.tolerance_percent),
    ];
    table::line(&COLUMNS, &cells)
}

/// The remarks of a case's rows, each once.
fn remarks(row: &Row, rows: &[Row]) -> String {
    let mut text = String::new();
    let mut told = Vec::new();
    for remark in rows.iter().map(|r| &r.remarks).filter(|r| !r.is_empty()) {
        if !told.contains(&remark) {
            text.push_str(&format!("  {remark}\n"));
            told.push(remark);
        }
    }
    if !row.settled_in_view.is_empty() {
        text.push_str(&format!("  settled in view: {}\n", row.settled_in_view));
    }
    text
}

/// Latency and accepted load against offered load, ours and the peer's.
fn figure(case: &NetworkCase, curve: &[CurvePoint], ns: f64, ours: &[Point]) -> Svg {
    let chart = |title: &str, theirs: Vec<(f64, f64)>, ours: Vec<(f64, f64)>| {
        let line = |name: &str, points| Line { name: name.to_string(), points, ..Line::default() };
        Chart {
            title: title.to_string(),
            x_name: "offered load".to_string(),
            x_label: label,
            x_scale: Scale::Linear,
            x_at_points: true,
            y_top: 0.0,
            lines: vec![line("ours", ours), line("peer", theirs)],
            size: (760.0, 260.0),
        }
        .draw(&PAPER)
    };
    let mut figure = Svg::new(760.0, 40.0, &case.id);
    figure.text((16.0, 26.0), TextStyle::plain(16.0, PAPER.ink).bold(), false, &case.id);
    figure.below(&chart(
        "mean latency, us",
        curve.iter().filter_map(|p| Some((p.offered, p.latency? * ns / 1_000.0))).collect(),
        ours.iter().filter_map(|p| Some((p.offered, p.latency_ns? / 1_000.0))).collect(),
    ));
    figure.below(&chart(
        "accepted load",
        curve.iter().map(|p| (p.offered, p.accepted)).collect(),
        ours.iter().map(|p| (p.offered, p.accepted)).collect(),
    ));
    figure
}

const CSV_HEADING: [&str; 10] = [
    "case",
    "quantity",
    "load",
    "theirs",
    "ours",
    "difference_percent",
    "tolerance_percent",
    "met",
    "settled_in_view",
    "remarks",
];

fn csv_of(rows: &[Row]) -> Result<String, Failure> {
    to_csv(&CSV_HEADING, rows)
}
