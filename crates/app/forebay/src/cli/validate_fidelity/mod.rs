//! `forebay validate --fidelity both`: flows beside packets on a grid of cases.

mod case;
mod network_case;

use super::options::command_line;
use super::output::{Output, OutputArgs, VERSION, to_json};
use super::replicates::{SharedProgress, run_all};
use crate::console::print_stderr;
use crate::csv_files::to_csv;
use crate::progress::Display;
use crate::validate::fidelity::{CaseKind, GridCase, NetworkCase, Set};
use crate::validate::packet_results::PacketResults;
use case::{Compared, GridTest, Row, TimedOut, file_system_text};
use clap::Args;
use forebay_console::Failure;
use forebay_console::table::{self, Column};
use forebay_machine::results::SCHEMA;
use forebay_plan::parse_duration;
use forebay_units::human::{counted, number};
use network_case::{Figure, FigureKind};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Greatest median and greatest single difference that are accepted in the test set, percent.
const MOST_MEDIAN: f64 = 5.0;
const MOST: f64 = 20.0;

const COLUMNS: [Column; 11] = [
    Column::text("set", 5),
    Column::text("machine", 14),
    Column::number("nodes", 5),
    Column::number("ppn", 3),
    Column::text("files on", 12),
    Column::text("access", 6),
    Column::number("packet GB/s", 11),
    Column::number("flow GB/s", 9),
    Column::number("diff.", 7),
    Column::text("limits", 25),
    Column::text("IOR", 0),
];

const FIGURE_COLUMNS: [Column; 7] = [
    Column::text("set", 5),
    Column::text("machine", 14),
    Column::text("figure", 13),
    Column::number("packet", 7),
    Column::number("flow", 7),
    Column::number("diff.", 7),
    Column::text("case", 0),
];

/// The differences of a set, in percent without their signs: of the rates of IOR or, with a figure, of this one.
#[derive(Debug, Serialize)]
struct Summary {
    set: Set,
    figure: Option<FigureKind>,
    rows: usize,
    median: f64,
    percentile_90: f64,
    greatest: f64,
}

/// The result document.
#[derive(Debug, Serialize)]
struct FidelityRun {
    schema: u32,
    kind: &'static str,
    version: &'static str,
    seed: u64,
    sets: Vec<Summary>,
    rows: Vec<Row>,
    /// Of traffic alone, and of jobs beside others.
    figures: Vec<Figure>,
    timed_out: Vec<TimedOut>,
}

/// The options of the grid.
#[derive(Debug, Args)]
pub(super) struct GridArgs {
    /// Directory of the packets' results of `--fidelity both`: a case of one job that is there is not simulated again
    /// with packets, so that an interrupted comparison goes on. Delete it when packets are simulated
    /// differently
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Longest time of one simulation of `--fidelity both`, such as 10min; a case that takes longer is named
    /// and has no comparison [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    case_time: Option<f64>,
    /// The sets of cases of `--fidelity both` [default: all]
    #[arg(long, value_enum, value_name = "SET", value_delimiter = ',')]
    cases: Vec<Set>,
    /// The kinds of cases of `--fidelity both` [default: all]
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<CaseKind>,
}

impl GridArgs {
    /// Whether any of them was given.
    pub(super) fn is_any(&self) -> bool {
        let is_chosen = !self.cases.is_empty() || !self.kinds.is_empty();
        self.results.is_some() || self.case_time.is_some() || is_chosen
    }

    /// Whether cases of a set and a kind are chosen.
    pub(super) fn has(&self, set: Set, kind: CaseKind) -> bool {
        (self.cases.is_empty() || self.cases.contains(&set))
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
    }
}

/// Simulates the cases on `threads` threads, each case on one, those with the fewest packets first, and traffic and pairs
/// of jobs after the others.
pub(super) fn run(
    (cases, network_cases): (&[GridCase], &[NetworkCase]),
    (threads, seed): (usize, u64),
    options: &GridArgs,
    args: &OutputArgs,
) -> Result<(), Failure> {
    let case_time = options.case_time.map(Duration::from_secs_f64);
    let packets = options.results.as_deref().map(PacketResults::open).transpose()?;
    let mut tests = Vec::with_capacity(cases.len());
    for case in cases {
        tests.push(GridTest::new(case, seed)?);
    }
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by(|a, b| tests[*a].events.total_cmp(&tests[*b].events).then(a.cmp(b)));
    let mut output = args.prepare("validate-fidelity")?;
    let progress = SharedProgress::start("grid", cases.len(), output.display);
    let ended = AtomicUsize::new(0);
    let mut found = run_all(cases.len(), threads, |task| {
        let shown = |time, done, events| progress.update(task, time, done, events);
        let test = &tests[order[task]];
        let rows = test.compare(packets.as_ref(), case_time, &shown)?;
        progress.end(task);
        let count = ended.fetch_add(1, Ordering::Relaxed) + 1;
        if output.display != Display::Quiet {
            let line = test.line(&rows);
            print_stderr(format_args!("{count} of {}: {line}", cases.len()));
        }
        Ok((order[task], rows))
    })?;
    drop(progress);
    let figures = figures_of(network_cases, (threads, seed), case_time, output.display)?;
    found.sort_by_key(|(case, _)| *case);
    let (mut rows, mut timed_out): (Vec<Row>, Vec<TimedOut>) = (Vec::new(), Vec::new());
    for (_, of_case) in found {
        match of_case {
            Compared::Rows(of_case) => rows.extend(of_case),
            Compared::TimedOut(case) => timed_out.push(case),
        }
    }
    let sets = summaries(&rows, &figures);
    let document = FidelityRun {
        schema: SCHEMA,
        kind: "validate fidelity",
        version: VERSION,
        seed,
        sets,
        rows,
        figures,
        timed_out,
    };
    write(&document, &mut output)?;
    output.finish(&document)?;
    verdict(&document)
}

/// Simulates traffic and pairs of jobs on `threads` threads, each case on one.
fn figures_of(
    cases: &[NetworkCase],
    (threads, seed): (usize, u64),
    case_time: Option<Duration>,
    display: Display,
) -> Result<Vec<Figure>, Failure> {
    let progress = SharedProgress::start("traffic and pairs", cases.len(), display);
    let found = run_all(cases.len(), threads, |task| {
        let shown = |time, done, events| progress.update(task, time, done, events);
        let figures = network_case::compare(&cases[task], seed, case_time, &shown)?;
        progress.end(task);
        Ok(figures)
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// The failure of a grid with too great differences in the test set, or with cases that were not compared.
/// Fails if the test set exceeds the accepted differences, or cases have no comparison.
fn verdict(document: &FidelityRun) -> Result<(), Failure> {
    // A difference that is no number is not within the limits.
    let is_within = |s: &Summary| s.median <= MOST_MEDIAN && s.greatest <= MOST;
    let missed = |s: &&Summary| s.set == Set::Test && !is_within(s);
    if document.sets.iter().any(|set| missed(&set)) {
        return Err(Failure::Failed(format!(
            "the differences in the test set exceed {MOST_MEDIAN}% in the median, or {MOST}%"
        )));
    }
    let without = document.figures.iter().filter(|one| one.difference_percent.is_none()).count();
    match document.timed_out.len() + without {
        0 => Ok(()),
        count => Err(Failure::Failed(format!(
            "{} took longer than --case-time and had no comparison",
            counted(count as u64, "case")
        ))),
    }
}

/// The differences of each set, of the rates of IOR and of each other figure.
fn summaries(rows: &[Row], figures: &[Figure]) -> Vec<Summary> {
    let of_rows = |set: Set| {
        let of_set = rows.iter().filter(|row| row.set == set);
        summary((set, None), of_set.map(|row| row.difference_percent))
    };
    let of_figures = |(set, kind): (Set, FigureKind)| {
        let of_set = figures.iter().filter(|one| (one.set, one.figure) == (set, kind));
        summary((set, Some(kind)), of_set.filter_map(|one| one.difference_percent))
    };
    let kinds = |set: Set| FigureKind::ALL.into_iter().map(move |kind| (set, kind));
    let rates = Set::ALL.into_iter().filter_map(of_rows);
    rates.chain(Set::ALL.into_iter().flat_map(kinds).filter_map(of_figures)).collect()
}

/// A summary of differences; `None` if there are none.
fn summary(
    (set, figure): (Set, Option<FigureKind>),
    differences: impl Iterator<Item = f64>,
) -> Option<Summary> {
    let mut differences: Vec<f64> = differences.map(f64::abs).collect();
    differences.sort_by(f64::total_cmp);
    let count = differences.len();
    // Of the nearest rank.
    let at = |percent: usize| {
        let rank = (count * percent).div_ceil(100).saturating_sub(1);
        differences.get(rank).copied()
    };
    let (median, percentile_90, greatest) = (at(50)?, at(90)?, at(100)?);
    Some(Summary { set, figure, rows: count, median, percentile_90, greatest })
}

fn write(document: &FidelityRun, output: &mut Output) -> Result<(), Failure> {
    if !document.rows.is_empty() {
        output.print_and_record(&table::heading(&COLUMNS))?;
    }
    for row in &document.rows {
        output.print_and_record(&table::line(&COLUMNS, &cells(row)))?;
    }
    if !document.figures.is_empty() {
        output.print_and_record(&table::heading(&FIGURE_COLUMNS))?;
    }
    for figure in &document.figures {
        output.print_and_record(&table::line(&FIGURE_COLUMNS, &cells_of_figure(figure)))?;
    }
    for s in &document.sets {
        let rows = counted(s.rows as u64, "row");
        let figure = s.figure.map_or("rate of IOR", FigureKind::name);
        output.print_and_record(&format!(
            "{} set, {figure}, {rows}: median difference {:.1}%, 90th percentile {:.1}%, greatest {:.1}%",
            s.set.name(),
            s.median,
            s.percentile_90,
            s.greatest
        ))?;
    }
    for case in &document.timed_out {
        output.print_and_record(&format!(
            "{} set, {}, {} nodes x {}, {}, {}: no comparison, {} took too long",
            case.set.name(),
            case.machine,
            case.nodes,
            case.ppn,
            file_system_text(case.stripe_count),
            case.ior,
            case.fidelity
        ))?;
    }
    output.write("", "table.txt", output.recorded())?;
    output.write("", "summary.json", to_json(document)?)?;
    output.write("", "inputs.json", to_json(&serde_json::json!({ "command": command_line() }))?)?;
    let heading = [
        "set",
        "machine",
        "nodes",
        "ppn",
        "stripe_count",
        "ior",
        "access",
        "packet_GBps",
        "flow_GBps",
    ];
    let csv = to_csv(
        &heading,
        document.rows.iter().map(|r| {
            let case = (r.set.name(), &r.machine, r.nodes, r.ppn, r.stripe_count, &r.ior);
            (case, &r.access, r.packet_gbps, r.flow_gbps)
        }),
    )?;
    output.write("", "fidelity.csv", csv)
}

fn cells_of_figure(figure: &Figure) -> Vec<String> {
    let value = |value: Option<f64>| value.map_or("–".to_string(), number);
    let difference =
        figure.difference_percent.map_or("–".to_string(), |one| format!("{one:+.1}%"));
    vec![
        figure.set.name().to_string(),
        figure.machine.clone(),
        figure.figure.name().to_string(),
        value(figure.packet),
        value(figure.flow),
        difference,
        figure.case.clone(),
    ]
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.set.name().to_string(),
        row.machine.clone(),
        row.nodes.to_string(),
        row.ppn.to_string(),
        file_system_text(row.stripe_count),
        row.access.clone(),
        number(row.packet_gbps),
        number(row.flow_gbps),
        format!("{:+.1}%", row.difference_percent),
        format!("{}, {}", row.packet_limit, row.flow_limit),
        row.ior.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(set: Set, difference_percent: f64) -> Row {
        Row {
            set,
            machine: "toy".into(),
            nodes: 1,
            ppn: 1,
            stripe_count: None,
            ior: "-w".into(),
            access: "write".into(),
            packet_gbps: 1.0,
            flow_gbps: 1.0,
            difference_percent,
            packet_limit: "client".into(),
            flow_limit: "client".into(),
            packet_seconds: 1.0,
            flow_seconds: 1.0,
        }
    }

    #[test]
    fn summary_is_of_the_differences_of_its_set_without_their_signs() {
        let rows = [
            row(Set::Test, -9.0),
            row(Set::Build, 50.0),
            row(Set::Test, 1.0),
            row(Set::Test, -3.0),
        ];
        let found = summaries(&rows, &[]);
        let of = |set: Set| found.iter().find(|one| one.set == set);
        let test = of(Set::Test).unwrap();
        assert_eq!((test.rows, test.median, test.greatest), (3, 3.0, 9.0));
        assert!(of(Set::Seen).is_none() && of(Set::Build).is_some());
    }

    fn figure(figure: FigureKind, difference_percent: Option<f64>) -> Figure {
        let (packet, flow) = (Some(1.0), difference_percent.map(|one| 1.0 + one / 100.0));
        let (set, machine, case) = (Set::Test, "toy".into(), "uniform at 0.2".into());
        Figure { set, machine, case, figure, packet, flow, difference_percent }
    }

    #[test]
    fn verdict_is_of_each_figure_too() {
        let of = |figures: &[(FigureKind, Option<f64>)]| {
            let figures = figures.iter().map(|(kind, difference)| figure(*kind, *difference));
            let run = run_of(vec![row(Set::Test, 1.0)], Vec::new());
            let figures: Vec<Figure> = figures.collect();
            verdict(&FidelityRun { sets: summaries(&run.rows, &figures), figures, ..run })
        };
        let (load, slowdown) = (FigureKind::AcceptedLoad, FigureKind::Slowdown);
        assert!(of(&[(load, Some(4.0)), (slowdown, Some(-5.0))]).is_ok());
        assert!(of(&[(load, Some(4.0)), (slowdown, Some(-5.1))]).is_err());
        assert!(of(&[(load, Some(0.0)), (load, Some(1.0)), (load, Some(20.1))]).is_err());
        assert!(of(&[(load, None)]).is_err(), "no comparison");
    }

    fn run_of(rows: Vec<Row>, timed_out: Vec<TimedOut>) -> FidelityRun {
        let sets = summaries(&rows, &[]);
        let (kind, version) = ("validate fidelity", VERSION);
        FidelityRun {
            schema: SCHEMA,
            kind,
            version,
            seed: 1,
            sets,
            rows,
            figures: Vec::new(),
            timed_out,
        }
    }

    #[test]
    fn verdict_is_of_the_test_set_and_of_cases_without_a_comparison() {
        let of = |rows: &[(Set, f64)]| {
            let rows = rows.iter().map(|(set, difference)| row(*set, *difference));
            verdict(&run_of(rows.collect(), Vec::new()))
        };
        assert!(of(&[(Set::Test, 5.0), (Set::Test, -4.0), (Set::Test, 20.0)]).is_ok());
        assert!(of(&[(Set::Build, 90.0), (Set::Test, 1.0)]).is_ok());
        assert!(of(&[(Set::Test, 1.0), (Set::Test, 1.0), (Set::Test, -20.1)]).is_err());
        assert!(of(&[(Set::Test, -5.1), (Set::Test, 6.0), (Set::Test, 1.0)]).is_err());
        assert!(of(&[(Set::Test, 1.0), (Set::Test, 1.0), (Set::Test, f64::NAN)]).is_err());
        let late = TimedOut {
            set: Set::Test,
            machine: "toy".into(),
            nodes: 1,
            ppn: 1,
            stripe_count: None,
            ior: "-w".into(),
            fidelity: "packet",
        };
        assert!(verdict(&run_of(vec![row(Set::Test, 1.0)], vec![late])).is_err());
    }
}
