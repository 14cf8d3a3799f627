//! `forebay validate --fidelity both`: flows beside packets on a grid of cases.

use super::ior::parse_tests;
use super::options::{command_line, study_failure};
use super::output::{Output, OutputArgs, VERSION, to_json};
use super::replicates::{SharedProgress, run_all};
use crate::csv_files::to_csv;
use crate::validate::fidelity::{GridCase, Set};
use forebay_console::Failure;
use forebay_console::table::{self, Column};
use forebay_machine::results::{IorPoint, Phase, SCHEMA};
use forebay_machine::study::{Fidelity, FileSystem, Progress, SimOptions, simulate_ior};
use forebay_machine_file::machine::Machine;
use forebay_units::human::{counted, number};
use serde::Serialize;

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

/// One phase of one case at both fidelities.
#[derive(Debug, Serialize)]
struct Row {
    set: Set,
    machine: String,
    nodes: u32,
    ppn: u32,
    /// Targets of a file on the parallel file system; `None`: the burst buffer.
    stripe_count: Option<u32>,
    ior: String,
    access: String,
    #[serde(rename = "packet_GBps")]
    packet_gbps: f64,
    #[serde(rename = "flow_GBps")]
    flow_gbps: f64,
    difference_percent: f64,
    packet_limit: String,
    flow_limit: String,
    packet_seconds: f64,
    flow_seconds: f64,
}

/// The differences of a set, in percent without their signs.
#[derive(Debug, Serialize)]
struct Summary {
    set: Set,
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
}

/// Simulates the cases on `threads` threads, each case on one.
pub(super) fn run(
    cases: &[GridCase],
    threads: usize,
    seed: u64,
    args: &OutputArgs,
) -> Result<(), Failure> {
    let mut output = args.prepare("validate-fidelity")?;
    let progress = SharedProgress::start("grid", cases.len(), output.display);
    let rows = run_all(cases.len(), threads, |task| {
        let shown = |time, done, events| progress.update(task, time, done, events);
        let rows = compare(&cases[task], seed, &shown);
        progress.end(task);
        rows
    })?;
    drop(progress);
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    let sets: Vec<Summary> = Set::ALL.into_iter().filter_map(|set| summary(set, &rows)).collect();
    let document = FidelityRun {
        schema: SCHEMA,
        kind: "validate fidelity",
        version: VERSION,
        seed,
        sets,
        rows,
    };
    write(&document, &mut output)?;
    output.finish(&document)?;
    let missed = |s: &&Summary| s.set == Set::Test && (s.median > MOST_MEDIAN || s.greatest > MOST);
    match document.sets.iter().find(missed) {
        None => Ok(()),
        Some(_) => Err(Failure::Failed(format!(
            "the differences in the test set exceed {MOST_MEDIAN}% in the median, or {MOST}%"
        ))),
    }
}

/// Simulates a case at both fidelities; a row for each phase.
fn compare(case: &GridCase, seed: u64, progress: Progress<'_>) -> Result<Vec<Row>, Failure> {
    let machine = Machine::load(&case.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    let words: Vec<String> = case.ior.split_whitespace().map(String::from).collect();
    let tests = parse_tests(&words)?.unwrap_or_default();
    let [test] = tests.as_slice() else {
        return Err(Failure::Failed(format!("{case:?} is not one IOR test")));
    };
    let simulate = |fidelity: Fidelity| {
        let file_system = match case.stripe_count {
            None => FileSystem::BurstBuffer,
            count => FileSystem::Parallel { stripe_count: count, stripe: None },
        };
        let options = SimOptions { seed, fidelity, file_system, ..SimOptions::default() };
        simulate_ior(&machine, test, case.nodes, case.ppn, &options, progress)
            .map_err(|e| study_failure(&e))
    };
    let (packet, flow) = (simulate(Fidelity::Packet)?, simulate(Fidelity::Flow)?);
    Ok(rows(case, &packet, &flow))
}

fn rows(case: &GridCase, packet: &IorPoint, flow: &IorPoint) -> Vec<Row> {
    let phases = packet.phases.iter().zip(&flow.phases);
    let row = |(of_packet, of_flow): (&Phase, &Phase)| Row {
        set: case.set,
        machine: case.machine.clone(),
        nodes: case.nodes,
        ppn: case.ppn,
        stripe_count: case.stripe_count,
        ior: case.ior.clone(),
        access: of_packet.access.clone(),
        packet_gbps: of_packet.gbps,
        flow_gbps: of_flow.gbps,
        difference_percent: (of_flow.gbps / of_packet.gbps - 1.0) * 100.0,
        packet_limit: of_packet.limit.resource.clone(),
        flow_limit: of_flow.limit.resource.clone(),
        packet_seconds: packet.run.wall_seconds,
        flow_seconds: flow.run.wall_seconds,
    };
    phases.map(row).collect()
}

/// The differences of a set; `None` if it has no rows.
fn summary(set: Set, rows: &[Row]) -> Option<Summary> {
    let of_set = rows.iter().filter(|row| row.set == set);
    let mut differences: Vec<f64> = of_set.map(|row| row.difference_percent.abs()).collect();
    differences.sort_by(f64::total_cmp);
    let count = differences.len();
    // Of the nearest rank.
    let at = |percent: usize| {
        let rank = (count * percent).div_ceil(100).saturating_sub(1);
        differences.get(rank).copied()
    };
    Some(Summary { set, rows: count, median: at(50)?, percentile_90: at(90)?, greatest: at(100)? })
}

fn write(document: &FidelityRun, output: &mut Output) -> Result<(), Failure> {
    output.print_and_record(&table::heading(&COLUMNS))?;
    for row in &document.rows {
        output.print_and_record(&table::line(&COLUMNS, &cells(row)))?;
    }
    for s in &document.sets {
        let rows = counted(s.rows as u64, "row");
        output.print_and_record(&format!(
            "{} set, {rows}: median difference {:.1}%, 90th percentile {:.1}%, greatest {:.1}%",
            s.set.name(),
            s.median,
            s.percentile_90,
            s.greatest
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

/// The file system of a case: `burst buffer`, or `pfs -c 4`.
fn file_system_text(stripe_count: Option<u32>) -> String {
    match stripe_count {
        None => "burst buffer".to_string(),
        Some(count) => format!("pfs -c {count}"),
    }
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
        let found = summary(Set::Test, &rows).unwrap();
        assert_eq!((found.rows, found.median, found.greatest), (3, 3.0, 9.0));
        assert!(summary(Set::Build, &rows[..1]).is_none());
    }

    #[test]
    fn case_is_simulated_at_both_fidelities() {
        let case = GridCase {
            set: Set::Build,
            machine: "toy".into(),
            nodes: 1,
            ppn: 1,
            ior: "-F -w -r -t 512k -b 4m".into(),
            stripe_count: None,
        };
        let rows = compare(&case, 1, &|_, _, _| true).unwrap();
        assert_eq!(rows.iter().map(|r| r.access.as_str()).collect::<Vec<_>>(), ["write", "read"]);
        assert!(rows.iter().all(|r| r.difference_percent.abs() < 5.0), "{rows:?}");
    }
}
