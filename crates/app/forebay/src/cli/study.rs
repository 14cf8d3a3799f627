//! `forebay study`.

use super::machine::load_with;
use super::options::{
    check_burst_buffers, check_nodes, cores, machine_text, setting, study_failure,
};
use super::output::{VERSION, to_json};
use super::replicates::run_all;
use crate::console::{print_stderr, print_stdout};
use crate::run_directory::write_file;
use clap::Args;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::observe::{ClassDelays, Delays, ObserveOptions};
use forebay_machine::results::InterferenceRun;
use forebay_machine::study::{InterferenceStudy, SimOptions, simulate_interference};
use forebay_machine_file::Setting;
use forebay_machine_file::machine::{Machine, Routing};
use forebay_units::Bytes;
use forebay_units::human::{number, percent, seconds};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::{TrafficPattern, TrafficSpec};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Most measures of a study.
const MOST_MEASURES: usize = 256;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
        forebay study examples/interference.toml --out runs/interference\n\n\
        docs/study.md describes the file. A study that was interrupted goes on where it was.")]
pub(super) struct StudyArgs {
    /// The study, a TOML file
    file: PathBuf,
    /// Directory of the results; cases that it has already are not simulated again
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Cases that are simulated at the same time [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// The file of a study: an I/O job and another job on one machine, and measures against their interference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    title: String,
    machine: String,
    #[serde(default = "one")]
    seed: u64,
    io: IoJob,
    traffic: TrafficJob,
    #[serde(default)]
    measure: Vec<Measure>,
}

fn one() -> u64 {
    1
}

/// The I/O job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IoJob {
    nodes: u32,
    #[serde(default = "one_process")]
    ppn: u32,
    /// IOR's options.
    ior: String,
}

fn one_process() -> u32 {
    1
}

/// The other job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficJob {
    nodes: u32,
    pattern: String,
    message: String,
    load: f64,
    messages: u64,
}

/// The differences of a case from the machine and its defaults.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Measure {
    name: String,
    routing: Option<String>,
    io_placement: Option<String>,
    traffic_placement: Option<String>,
    burst_buffers: Option<u32>,
    #[serde(default)]
    set: Vec<String>,
}

/// A case that can be simulated.
struct Case {
    measure: Measure,
    machine: Machine,
    jobs: InterferenceStudy,
    options: SimOptions,
    /// Everything that decides its result.
    inputs: String,
}

/// The result of a case.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct CaseResult {
    inputs: String,
    name: String,
    /// Rate of the I/O job alone and beside the other, GB/s.
    io_gbps: [f64; 2],
    /// Mean latency of the other job's messages alone and beside the I/O, seconds; absent if saturated.
    latency_seconds: Option<[f64; 2]>,
    /// Slowdown of the I/O job beside the other: rate alone / together.
    io_slowdown: f64,
    /// Slowdown of the other job's messages beside the I/O.
    traffic_slowdown: Option<f64>,
    /// Delays of the I/O job's packets by the other's, by class of links, seconds.
    io_delayed: Vec<(String, f64)>,
    /// Delays of the other's packets by the I/O job's.
    traffic_delayed: Vec<(String, f64)>,
}

/// The document of a study.
#[derive(Debug, Serialize)]
struct StudyResult<'a> {
    schema: u32,
    kind: &'static str,
    title: &'a str,
    machine: &'a str,
    cases: &'a [CaseResult],
}

impl StudyFile {
    fn read(path: &Path) -> Result<StudyFile, Failure> {
        let at = |reason: String| Failure::Input(format!("{}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
        let study: StudyFile =
            toml::from_str(&text).map_err(|error| at(error.to_string().trim_end().to_string()))?;
        if study.measure.len() > MOST_MEASURES {
            return Err(at(format!("more than {MOST_MEASURES} measures")));
        }
        let mut names: Vec<&str> =
            study.measure.iter().map(|one| one.name.as_str()).chain(["none"]).collect();
        names.sort_unstable();
        match names.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => {
                Err(at(format!("two measures are named `{}`: give each its name", two[0])))
            }
            None => Ok(study),
        }
    }

    /// The case without a measure, then those with one.
    fn cases(&self) -> Result<Vec<Case>, Failure> {
        let none = Measure { name: "none".into(), ..Measure::default() };
        std::iter::once(&none).chain(&self.measure).map(|one| self.case(one)).collect()
    }

    fn case(&self, measure: &Measure) -> Result<Case, Failure> {
        let at = |reason: String| Failure::Input(format!("measure `{}`: {reason}", measure.name));
        let set: Vec<Setting> =
            measure.set.iter().map(|text| setting(text)).collect::<Result<_, _>>().map_err(at)?;
        let machine = load_with(&self.machine, &set)?;
        let nodes = self.io.nodes.saturating_add(self.traffic.nodes);
        check_nodes(&machine, "the sum of the jobs' nodes,", nodes)?;
        let placement = |name: &Option<String>| match name {
            Some(name) => name.parse::<Placement>().map_err(|error| at(error.to_string())),
            None => Ok(Placement::Contiguous),
        };
        let jobs = InterferenceStudy {
            ior: self.test()?,
            ior_nodes: self.io.nodes,
            ppn: self.io.ppn,
            traffic: self.traffic.spec()?,
            traffic_nodes: self.traffic.nodes,
            traffic_placement: placement(&measure.traffic_placement)?,
        };
        let routing = match &measure.routing {
            None => None,
            Some(name) => {
                let found = Routing::NAMES.iter().find(|(known, _)| known == name);
                let known: Vec<&str> = Routing::NAMES.iter().map(|(known, _)| *known).collect();
                let unknown =
                    || at(format!("no routing algorithm `{name}`; there are {}", known.join(", ")));
                Some(found.ok_or_else(unknown)?.1)
            }
        };
        let options = SimOptions {
            seed: self.seed,
            routing,
            placement: placement(&measure.io_placement)?,
            burst_buffers: Some(check_burst_buffers(&machine, measure.burst_buffers)?),
            observe: ObserveOptions { delays: true, ..ObserveOptions::default() },
            ..SimOptions::default()
        };
        let inputs = format!(
            "forebay {VERSION}\n{measure:?}\n{jobs:?}\n{options:?}\n{}",
            machine_text(&machine)
        );
        Ok(Case { measure: measure.clone(), machine, jobs, options, inputs })
    }

    fn test(&self) -> Result<Ior, Failure> {
        let words: Vec<String> = self.io.ior.split_whitespace().map(str::to_owned).collect();
        let tests = Ior::parse(&words).map_err(|error| Failure::Input(error.to_string()))?;
        match <[Ior; 1]>::try_from(tests) {
            Ok([test]) => Ok(test),
            Err(tests) => Err(Failure::Input(format!(
                "`io.ior` has {} tests; a study takes one",
                tests.len()
            ))),
        }
    }
}

impl TrafficJob {
    fn spec(&self) -> Result<TrafficSpec, Failure> {
        let at = |reason: String| Failure::Input(format!("traffic: {reason}"));
        let pattern: TrafficPattern = self.pattern.parse().map_err(|e| at(format!("{e}")))?;
        let message: Bytes = self.message.parse().map_err(|e| at(format!("{e}")))?;
        TrafficSpec::new(pattern, message, self.load, self.messages).map_err(|e| at(e.to_string()))
    }
}

impl Case {
    /// Its file. Measures whose names differ only in other characters than letters and digits have
    /// files of their own.
    fn path(&self, out: &Path) -> PathBuf {
        let name = &self.measure.name;
        let safe: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        match safe == *name {
            true => out.join(format!("case-{safe}.json")),
            false => out.join(format!("case-{safe}-{:08x}.json", crc32c::crc32c(name.as_bytes()))),
        }
    }

    /// Its result in the directory, if that has one of the same inputs; else it is simulated.
    fn result(&self, out: &Path) -> Result<CaseResult, Failure> {
        let path = self.path(out);
        let known = std::fs::read_to_string(&path).ok();
        let known = known.and_then(|text| serde_json::from_str::<CaseResult>(&text).ok());
        if let Some(known) = known.filter(|known| known.inputs == self.inputs) {
            print_stderr(format_args!("{}: done before", self.measure.name));
            return Ok(known);
        }
        let run = simulate_interference(&self.machine, &self.jobs, &self.options, &|_, _, _| true)
            .map_err(|error| study_failure(&error))?;
        let result = self.of_run(&run);
        // A result is there as a whole or not at all.
        let part = path.with_extension("part");
        write_file(&part, to_json(&result)?)?;
        std::fs::rename(&part, &path)
            .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
        print_stderr(format_args!("{}: done", self.measure.name));
        Ok(result)
    }

    fn of_run(&self, run: &InterferenceRun) -> CaseResult {
        let rate = |point: &forebay_machine::results::IorPoint| {
            point.write_gbps.or(point.read_gbps).unwrap_or(0.0)
        };
        let mean = |run: &forebay_machine::results::TrafficRun| {
            run.latency_ns.as_ref().map(|latency| latency.mean * 1e-9)
        };
        let latencies = mean(&run.traffic_alone).zip(mean(&run.traffic_together));
        let delays = run.ior_together.delays.as_ref();
        let (io_delayed, traffic_delayed) = delays.map(delays_between).unwrap_or_default();
        CaseResult {
            inputs: self.inputs.clone(),
            name: self.measure.name.clone(),
            io_gbps: [rate(&run.ior_alone), rate(&run.ior_together)],
            latency_seconds: latencies.map(|(alone, together)| [alone, together]),
            io_slowdown: 1.0 / run.ior_rate_ratio.max(1e-12),
            traffic_slowdown: run.traffic_latency_ratio,
            io_delayed,
            traffic_delayed,
        }
    }
}

type ByClass = Vec<(String, f64)>;

/// Delays of the I/O job's data by the traffic, and of the traffic by them, by class of links.
fn delays_between(delays: &Delays) -> (ByClass, ByClass) {
    let place = |name: &str| delays.jobs.iter().position(|job| job == name);
    let Some((io, traffic)) = place("ior").zip(place("traffic")) else {
        return Default::default();
    };
    let of = |row: usize, column: usize| -> ByClass {
        let classes = delays.network.iter();
        let seconds = |class: &ClassDelays| Some(*class.seconds.get(row)?.get(column)?);
        classes.filter_map(|class| Some((class.class.clone(), seconds(class)?))).collect()
    };
    (of(io, traffic), of(traffic, io))
}

pub(super) fn run(args: &StudyArgs) -> Result<(), Failure> {
    let study = StudyFile::read(&args.file)?;
    // Everything is checked before anything is simulated.
    let cases = study.cases()?;
    std::fs::create_dir_all(&args.out)
        .map_err(|error| Failure::Input(format!("{}: {error}", args.out.display())))?;
    let threads = args.threads.map_or_else(cores, usize::from);
    let results = run_all(cases.len(), threads, |nth| cases[nth].result(&args.out))?;
    let report = report(&study, &results);
    let document = StudyResult {
        schema: forebay_machine::results::SCHEMA,
        kind: "study",
        title: &study.title,
        machine: &study.machine,
        cases: &results,
    };
    write_file(&args.out.join("summary.json"), to_json(&document)?)?;
    write_file(&args.out.join("report.md"), &report)?;
    print_stdout(&report)
}

/// The report, in Markdown.
fn report(study: &StudyFile, results: &[CaseResult]) -> String {
    let mut out = format!("# {}\n\n", study.title);
    let _ = writeln!(
        out,
        "{}: {} nodes with {} processes each run `ior {}`; {} nodes send {} messages of {} at a load of {}.\n",
        study.machine,
        study.io.nodes,
        study.io.ppn,
        study.io.ior,
        study.traffic.nodes,
        study.traffic.pattern,
        study.traffic.message,
        study.traffic.load
    );
    let Some(none) = results.first() else { return out };
    let _ = writeln!(out, "## Slowdown without a measure\n\n```\n{}```\n", matrix(none));
    let _ = writeln!(out, "## Measures\n\n```\n{}```\n", measures(none, results));
    let _ = writeln!(
        out,
        "## Collisions\n\nDelays of packets by those of the other job, summed over packets.\n\n```\n{}```",
        collisions(results)
    );
    out
}

/// Slowdown of the job of a row beside the job of a column.
fn matrix(none: &CaseResult) -> Table {
    let mut table = Table::new([
        Column::text("slowdown of", 0),
        Column::number("beside I/O", 0),
        Column::number("beside traffic", 0),
    ]);
    let of_traffic = none.traffic_slowdown.map_or("saturated".into(), number);
    table.push(["I/O (time)".to_string(), "–".into(), number(none.io_slowdown)]);
    table.push(["traffic (latency)".to_string(), of_traffic, "–".into()]);
    table
}

fn measures(none: &CaseResult, results: &[CaseResult]) -> Table {
    let mut table = Table::new([
        Column::text("measure", 0),
        Column::number("I/O alone GB/s", 0),
        Column::number("together", 0),
        Column::number("slowdown", 0),
        Column::number("gain", 0),
        Column::number("latency alone", 0),
        Column::number("together", 0),
        Column::number("slowdown", 0),
        Column::number("gain", 0),
    ]);
    for one in results {
        let latency =
            |which: usize| one.latency_seconds.map_or("saturated".into(), |of| seconds(of[which]));
        let gain =
            one.latency_seconds.zip(none.latency_seconds).map(|(own, base)| base[1] / own[1] - 1.0);
        table.push([
            one.name.clone(),
            number(one.io_gbps[0]),
            number(one.io_gbps[1]),
            number(one.io_slowdown),
            percent(one.io_gbps[1] / none.io_gbps[1].max(1e-12) - 1.0),
            latency(0),
            latency(1),
            one.traffic_slowdown.map_or("–".into(), number),
            gain.map_or("–".into(), percent),
        ]);
    }
    table
}

fn collisions(results: &[CaseResult]) -> Table {
    let mut table = Table::new([
        Column::text("measure", 0),
        Column::text("links", 0),
        Column::number("I/O by traffic", 0),
        Column::number("traffic by I/O", 0),
    ]);
    for one in results {
        for ((class, by_traffic), (_, by_io)) in one.io_delayed.iter().zip(&one.traffic_delayed) {
            table.push([one.name.clone(), class.clone(), seconds(*by_traffic), seconds(*by_io)]);
        }
    }
    table
}
