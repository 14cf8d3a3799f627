//! `--sweep`: a simulation at each combination of values of options and machine parameters.

use super::options::SimArgs;
use super::output::{Output, OutputArgs, VERSION, to_json};
use super::remarks;
use super::replicates::{SharedProgress, joined_notes, run_all, threads_of_each};
use super::{Cli, Command, SimCommand};
use crate::csv_files::to_csv;
use crate::figures::sweep as figures;
use crate::plot::palette::PAPER;
use crate::plot::png;
use clap::Parser;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::estimate::{Quantity, Replication};
use forebay_machine::results::SCHEMA;
use forebay_machine::study::Progress;
use forebay_machine_file::Setting;
use forebay_units::Bytes;
use forebay_units::human::number;
use serde::Serialize;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Maximum number of combinations.
const MAX_POINTS: usize = 10_000;
/// Options without meaning in a sweep.
const NOT_SWEPT: [&str; 8] =
    ["out", "no-out", "json", "quiet", "sweep", "links", "ior-output", "threads"];

/// A swept option or parameter, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    key: String,
    values: Vec<String>,
}

impl FromStr for Sweep {
    type Err = String;

    /// Parses `KEY=VALUES`; values are a list, `a..b` (doublings) or `a..b+step`.
    fn from_str(text: &str) -> Result<Sweep, String> {
        let Some((key, values)) = text.split_once('=') else {
            return Err(format!(
                "{text:?} has no values; write KEY=VALUES, as nodes=64..1024 or \
                 burst_buffer.threads=8,16,32"
            ));
        };
        let key = key.trim().trim_start_matches("--").to_string();
        if NOT_SWEPT.contains(&key.as_str()) {
            return Err(format!("{key} does not change a result and cannot be swept"));
        }
        let mut list = Vec::new();
        // A pattern's own parameters contain commas: halo:x=2,y=2,z=2.
        let parts: Vec<&str> = if values.contains(';') {
            values.split(';').collect()
        } else {
            values.split(',').collect()
        };
        for part in parts.into_iter().map(str::trim) {
            match part.split_once("..") {
                Some((from, to)) => list.extend(range(from, to)?),
                None if part.is_empty() => return Err(format!("{text:?} has an empty value")),
                None => list.push(part.to_string()),
            }
        }
        Ok(Sweep { key, values: list })
    }
}

/// A number and the unit that follows it.
fn quantity(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (value, unit) = text.split_at(end);
    match value.parse::<f64>() {
        Ok(value) => Ok((value, unit)),
        Err(_) => Err(format!(
            "{text:?} is not a number; ranges are as 64..1024 (doublings), 4KiB..1MiB or \
             0.1..0.9+0.1 (steps)"
        )),
    }
}

/// The values of a range: doublings, or steps if `to` has some, as `0.9+0.1`.
fn range(from: &str, to: &str) -> Result<Vec<String>, String> {
    let (to, step) = match to.split_once('+') {
        Some((to, step)) => (to, Some(step)),
        None => (to, None),
    };
    let (first, unit) = quantity(from)?;
    let (last, last_unit) = quantity(to)?;
    if unit.trim() != last_unit.trim() {
        let (Ok(first), Ok(last), None) = (from.parse::<Bytes>(), to.parse::<Bytes>(), step) else {
            return Err(format!("{from}..{to}: both ends need the same unit, or to be sizes"));
        };
        let values = range(&first.0.to_string(), &last.0.to_string())?;
        let size = |bytes: String| Bytes(bytes.parse().unwrap_or(last.0)).to_string();
        return Ok(values.into_iter().map(size).collect());
    }
    if first > last {
        return Err(format!("the range {from}..{to} runs backwards; write {to}..{from}"));
    }
    let mut values = Vec::new();
    match step {
        Some(step) => {
            let (step, step_unit) = quantity(step)?;
            if step <= 0.0 || (!step_unit.is_empty() && step_unit.trim() != unit.trim()) {
                return Err(format!(
                    "{from}..{to}+{step}: the step must be above 0, in the same unit"
                ));
            }
            // Rounding of the sums must not drop the last value.
            let count = ((last - first) / step + 1e-9) as usize + 1;
            if count > MAX_POINTS {
                return Err(format!("the range has {count} values, more than {MAX_POINTS}"));
            }
            values.extend((0..count).map(|i| first + step * i as f64));
        }
        None if first <= 0.0 => {
            return Err(format!("{from}..{to}: doublings begin above 0; add a step, as +0.1"));
        }
        None => {
            let mut value = first;
            while value < last {
                values.push(value);
                value *= 2.0;
            }
            values.push(last);
        }
    }
    // Without the noise of binary fractions: 0.1 + 2 * 0.1 is 0.3.
    let text = |v: f64| format!("{}{unit}", (v * 1e9).round() / 1e9);
    Ok(values.into_iter().map(text).collect())
}

/// One combination: key and value of each sweep.
type Settings = Vec<(String, String)>;

/// Checks that each key has its values from one place: a later setting would replace an earlier one.
fn check_keys(sweeps: &[Sweep], set: &[Setting]) -> Result<(), Failure> {
    for (index, Sweep { key, .. }) in sweeps.iter().enumerate() {
        if sweeps[..index].iter().any(|earlier| earlier.key == *key) {
            return Err(Failure::Input(format!(
                "--sweep {key} is given twice; write all its values in one, as {key}=1,2,4"
            )));
        }
        if set.iter().any(|setting| setting.key == *key) {
            return Err(Failure::Input(format!(
                "--sweep {key} and --set {key} are both given; leave out one of them"
            )));
        }
    }
    Ok(())
}

/// All combinations; the last key varies fastest.
fn combinations(sweeps: &[Sweep]) -> Result<Vec<Settings>, Failure> {
    let count = sweeps.iter().try_fold(1_usize, |n, s| n.checked_mul(s.values.len()));
    if count.is_none_or(|count| count > MAX_POINTS) {
        return Err(Failure::Input(format!("--sweep: more than {MAX_POINTS} combinations")));
    }
    let mut all: Vec<Settings> = vec![Vec::new()];
    for sweep in sweeps {
        let one = |value: &String, before: &Settings| {
            let mut settings = before.clone();
            settings.push((sweep.key.clone(), value.clone()));
            settings
        };
        all = all.iter().flat_map(|s| sweep.values.iter().map(move |v| one(v, s))).collect();
    }
    Ok(all)
}

/// The words of a command line without its sweeps and with the settings instead.
fn with_settings(words: &[String], settings: &Settings) -> Vec<String> {
    let end = words.iter().position(|w| w == "--").unwrap_or(words.len());
    let mut all = Vec::new();
    let mut before = words[..end].iter();
    while let Some(word) = before.next() {
        if word == "--sweep" {
            before.next();
        } else if !word.starts_with("--sweep=") {
            all.push(word.clone());
        }
    }
    let mut ior: Vec<String> = words.get(end + 1..).unwrap_or_default().to_vec();
    for (key, value) in settings {
        match key.strip_prefix("ior.") {
            Some(option) => ior.extend([format!("-{option}"), value.clone()]),
            None if key.contains('.') => all.extend(["--set".into(), format!("{key}={value}")]),
            None => all.push(format!("--{key}={value}")),
        }
    }
    if !ior.is_empty() {
        all.push("--".to_string());
        all.extend(ior);
    }
    all
}

/// The command of a combination.
fn command(words: &[String], settings: &Settings) -> Result<SimCommand, Failure> {
    let what = || {
        let pairs: Vec<String> = settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(", ")
    };
    match Cli::try_parse_from(with_settings(words, settings)) {
        Ok(Cli { command: Command::Sim(command), .. }) => Ok(*command),
        Ok(_) => unreachable!("the words of a simulation are one"),
        Err(e) => {
            let text = e.render().to_string();
            let reason = text.trim_start_matches("error: ").split("\n\nUsage").next();
            Err(Failure::Input(format!("--sweep: with {}: {}", what(), reason.unwrap_or_default())))
        }
    }
}

/// One run of a command for a sweep.
#[derive(Debug)]
pub(super) struct Sample {
    /// Its main quantities.
    pub(super) quantities: Vec<Quantity>,
    /// The limiting resource, or the state of the traffic.
    pub(super) note: String,
    /// `packet` or `flow`.
    pub(super) fidelity: String,
    /// Warnings, and other remarks on the results.
    pub(super) remarks: Vec<String>,
}

/// A command that a sweep can run.
pub(super) trait Swept: Sync {
    fn sim(&self) -> &SimArgs;
    fn output(&self) -> &OutputArgs;
    /// Checks the input, without simulating.
    fn check(&self) -> Result<(), Failure>;
    /// Simulates with the seed number `replicate`, on `threads` threads.
    fn sample(
        &self,
        replicate: u32,
        threads: usize,
        progress: Progress<'_>,
    ) -> Result<Sample, Failure>;
}

/// One combination's results.
#[derive(Debug, Serialize)]
pub struct SweepPoint {
    /// Value of each swept key.
    pub settings: BTreeMap<String, String>,
    /// Limiting resource or state.
    pub note: String,
    /// `packet` or `flow`.
    pub fidelity: String,
    /// Warnings, what published measurements say, and what was not simulated.
    pub remarks: Vec<String>,
    /// Means and confidence intervals.
    #[serde(flatten)]
    pub replication: Replication,
}

/// The result document of a sweep.
#[derive(Debug, Serialize)]
pub struct SweepRun {
    /// Version of this document.
    pub schema: u32,
    /// `sweep`.
    pub kind: &'static str,
    /// Version of forebay.
    pub version: &'static str,
    /// The machine; with a swept `machine` that of the command line.
    pub machine: String,
    /// The command line.
    pub command: Vec<String>,
    /// Swept keys, in the order given.
    pub keys: Vec<String>,
    /// One entry per combination; the last key varies fastest.
    pub points: Vec<SweepPoint>,
}

/// Runs the sweeps of a command.
pub(super) fn run(args: &impl Swept, stem: &str) -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().collect();
    let sweeps = &args.sim().sweep;
    check_keys(sweeps, &args.sim().set)?;
    let combinations = combinations(sweeps)?;
    let commands: Vec<SimCommand> =
        combinations.iter().map(|s| command(&words, s)).collect::<Result<_, _>>()?;
    let commands: Vec<&dyn Swept> = commands.iter().map(SimCommand::swept).collect();
    for command in &commands {
        command.check()?;
    }
    let mut output = args.output().prepare(stem)?;
    let seeds = args.sim().seeds;
    let tasks = commands.len() * seeds as usize;
    let threads = args.sim().thread_count();
    let progress = SharedProgress::start("sweep", tasks, output.display);
    let samples = run_all(tasks, threads, |task| {
        let (point, replicate) = (task / seeds as usize, task % seeds as usize);
        let sample = commands[point].sample(
            replicate as u32,
            threads_of_each(threads, tasks),
            &|time, done, events| progress.update(task, time, done, events),
        );
        progress.end(task);
        sample
    })?;
    drop(progress);
    let points = combinations
        .into_iter()
        .zip(samples.chunks(seeds as usize))
        .map(|(settings, samples)| SweepPoint {
            settings: settings.into_iter().collect(),
            note: joined_notes(samples.iter().map(|s| s.note.as_str())),
            fidelity: joined_notes(samples.iter().map(|s| s.fidelity.as_str())),
            remarks: distinct(samples.iter().flat_map(|s| &s.remarks)),
            replication: Replication::of(
                (0..seeds).map(|i| args.sim().seed.wrapping_add(i.into())).collect(),
                &samples.iter().map(|s| s.quantities.clone()).collect::<Vec<_>>(),
            ),
        })
        .collect();
    let document = SweepRun {
        schema: SCHEMA,
        kind: "sweep",
        version: VERSION,
        machine: args.sim().stem().to_owned(),
        command: super::options::command_line(),
        keys: sweeps.iter().map(|s| s.key.clone()).collect(),
        points,
    };
    write(&document, &mut output)?;
    output.finish(&document)
}

fn write(document: &SweepRun, output: &mut Output) -> Result<(), Failure> {
    let mut table = table(document).to_string();
    for remark in remarks::lines(document) {
        table.push_str(&format!("{remark}\n"));
    }
    output.print_and_record(table.trim_end())?;
    output.write(
        "",
        "inputs.json",
        to_json(&serde_json::json!({ "command": document.command }))?,
    )?;
    output.write("", "table.txt", &table)?;
    output.write("", "summary.json", to_json(document)?)?;
    output.write("", "sweep.csv", csv_of(document)?)?;
    let svg = figures::overview(document, &PAPER).document(PAPER.surface);
    output.write("", "plot.png", png::render(&svg)?)?;
    output.write("", "plot.svg", svg)
}

/// The texts without repetitions, in the order of the first ones.
fn distinct<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for text in texts {
        if !found.contains(text) {
            found.push(text.clone());
        }
    }
    found
}

/// Names and units of the quantities that have a value somewhere, in order.
pub(crate) fn quantities_of(run: &SweepRun) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = Vec::new();
    for estimate in run.points.iter().flat_map(|p| &p.replication.estimates) {
        if !names.iter().any(|(name, _)| *name == estimate.name) {
            names.push((estimate.name.clone(), estimate.unit.clone()));
        }
    }
    names
}

/// The table: a row per combination.
fn table(run: &SweepRun) -> Table {
    let names = quantities_of(run);
    // The headings of a column are constants of the program elsewhere; here they are data.
    let mut rows = vec![run.keys.clone()];
    rows[0].extend(names.iter().map(|(name, unit)| match unit.as_str() {
        "" => name.clone(),
        unit if name.contains("GBps") && unit == "GB/s" => name.replace("GBps", "GB/s"),
        unit => format!("{name} {unit}"),
    }));
    rows[0].push("note".to_string());
    for point in &run.points {
        let mut row: Vec<String> =
            run.keys.iter().map(|k| point.settings.get(k).cloned().unwrap_or_default()).collect();
        row.extend(names.iter().map(|(name, _)| {
            super::replicates::with_interval(Some(&point.replication), name, None, number)
        }));
        row.push(point.note.clone());
        rows.push(row);
    }
    let columns = rows[0].len();
    let kind = |i: usize| {
        if i + 1 == columns { Column::text("", 0) } else { Column::number("", 0) }
    };
    let mut table = Table::new((0..columns).map(kind).collect::<Vec<_>>());
    rows.into_iter().for_each(|row| table.push(row));
    table
}

fn csv_of(run: &SweepRun) -> Result<String, Failure> {
    let names = quantities_of(run);
    let mut heading: Vec<String> = run.keys.clone();
    for (name, _) in &names {
        heading.extend([name.clone(), format!("{name}_ci95")]);
    }
    heading.extend(["seeds", "note", "fidelity"].map(str::to_owned));
    let rows = run.points.iter().map(|point| {
        let mut row: Vec<String> =
            run.keys.iter().map(|k| point.settings.get(k).cloned().unwrap_or_default()).collect();
        for (name, _) in &names {
            let estimate = point.replication.estimate(name);
            let text = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
            row.push(text(estimate.map(|e| e.mean)));
            row.push(text(estimate.and_then(|e| e.half_width)));
        }
        row.extend([point.replication.seeds.len().to_string(), point.note.clone()]);
        row.push(point.fidelity.clone());
        row
    });
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    to_csv(&heading, rows)
}

impl SimCommand {
    /// The command as one that runs many times.
    pub(super) fn swept(&self) -> &dyn Swept {
        match self {
            SimCommand::Ior(args) => args,
            SimCommand::Traffic(args) => args,
            SimCommand::Collective(args) => args,
            SimCommand::Interference(args) => args,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        text.parse::<Sweep>().unwrap().values
    }

    #[test]
    fn values_are_lists_doublings_and_steps() {
        assert_eq!(values("nodes=64..1024"), ["64", "128", "256", "512", "1024"]);
        assert_eq!(values("nodes=3..10"), ["3", "6", "10"]);
        assert_eq!(values("burst_buffer.threads=8,16, 32"), ["8", "16", "32"]);
        assert_eq!(values("load=0.1..0.5+0.1"), ["0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(values("message=4KiB..16KiB"), ["4KiB", "8KiB", "16KiB"]);
        let sizes =
            ["256 B", "512 B", "1 KiB", "2 KiB", "3000 B"].map(|size| size.parse().unwrap());
        let range: Vec<Bytes> =
            values("size=256B..3kB").iter().map(|size| size.parse().unwrap()).collect();
        assert_eq!(range, sizes);
        assert_eq!(values("pattern=uniform,adversarial"), ["uniform", "adversarial"]);
        assert_eq!(values("pattern=uniform;halo:x=2,y=2,z=2"), ["uniform", "halo:x=2,y=2,z=2"]);
    }

    #[test]
    fn invalid_sweeps_are_refused_with_the_reason() {
        for (text, word) in [
            ("nodes", "KEY=VALUES"),
            ("nodes=8..1", "1..8"),
            ("nodes=1,,2", "empty"),
            ("message=4KiB..2GB/s", "same unit"),
            ("message=4KiB..1MiB+4KiB", "same unit"),
            ("load=0..1", "add a step"),
            ("load=0..1+0", "above 0"),
            ("load=0..1+0.0000001", "has 10000001 values, more than"),
            ("nodes=a..b", "not a number"),
            ("json=a,b", "cannot be swept"),
        ] {
            let error = text.parse::<Sweep>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn combination_replaces_the_sweeps_in_the_command_line() {
        let words: Vec<String> =
            "forebay sim ior --machine toy --sweep nodes=1,2 --sweep=ior.t=1m,2m --nodes 4 -- -F -w"
                .split(' ')
                .map(String::from)
                .collect();
        let sweeps: Vec<Sweep> = ["nodes=1,2", "ior.t=1m,2m", "burst_buffer.threads=8"]
            .map(|s| s.parse().unwrap())
            .to_vec();
        let all = combinations(&sweeps).unwrap();
        assert_eq!(all.len(), 4);
        let text = with_settings(&words, &all[1]).join(" ");
        assert_eq!(
            text,
            "forebay sim ior --machine toy --nodes 4 --nodes=1 --set burst_buffer.threads=8 \
             -- -F -w -t 2m"
        );
        assert!(command(&words, &all[1]).is_ok());
        let wrong = vec![("nodez".to_string(), "1".to_string())];
        let error = command(&words, &wrong).unwrap_err().to_string();
        assert!(error.contains("nodez=1") && error.contains("--nodez"), "{error}");
    }
}
