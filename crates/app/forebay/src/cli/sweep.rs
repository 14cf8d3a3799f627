//! `--sweep`: a simulation at each combination of values of options and machine parameters.

use super::options::SimArgs;
use super::output::{Output, OutputArgs, VERSION, to_json};
use super::remarks;
use super::replicates::{SharedProgress, joined_notes, run_all, threads_of_each};
use super::sweep_values::{MAX_POINTS, Sweep};
use super::{Cli, Command, SimCommand};
use crate::csv_files::to_csv;
use crate::figures::sweep as figures;
use crate::plot::palette::PAPER;
use clap::Parser;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::estimate::{Quantity, Replication};
use forebay_machine::results::SCHEMA;
use forebay_machine::study::Progress;
use forebay_machine_file::Setting;
use forebay_units::human::number;
use forebay_workload::ior;
use serde::Serialize;
use std::collections::BTreeMap;

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
pub(super) fn combinations(sweeps: &[Sweep]) -> Result<Vec<Settings>, Failure> {
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

/// Remarks on options of IOR's command line that the sweeps replace.
fn replaced(words: &[String], sweeps: &[Sweep]) -> Vec<String> {
    let given: Vec<String> =
        words.iter().skip_while(|word| *word != "--").skip(1).cloned().collect();
    let remark = |Sweep { key, .. }: &Sweep| {
        let letter = key.strip_prefix("ior.")?.chars().next()?;
        let value = ior::value_given(&given, letter)?;
        Some(format!("note: --sweep {key} replaces -{letter} {value} of IOR's options"))
    };
    sweeps.iter().filter_map(remark).collect()
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

/// A command with the options that all simulations of a machine share.
pub(super) trait CommonOptions: Sync {
    fn sim(&self) -> &SimArgs;
    fn output(&self) -> &OutputArgs;
}

/// A command that a sweep can run.
pub(super) trait Swept: CommonOptions {
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

/// Runs the sweeps of a command of this name.
pub(super) fn run(args: &impl Swept, name: &str) -> Result<(), Failure> {
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
    let mut output = args.output().prepare(&format!("sweep-{name}-{}", args.sim().stem()))?;
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
    let replaced = replaced(&words, sweeps);
    let points = combinations
        .into_iter()
        .zip(samples.chunks(seeds as usize))
        .map(|(settings, samples)| SweepPoint {
            settings: settings.into_iter().collect(),
            note: joined_notes(samples.iter().map(|s| s.note.as_str())),
            fidelity: joined_notes(samples.iter().map(|s| s.fidelity.as_str())),
            remarks: distinct(replaced.iter().chain(samples.iter().flat_map(|s| &s.remarks))),
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
    let table = format!("{}{}", table(document), remarks::text(&remarks::of_sweep(document)));
    output.print_and_record(table.trim_end())?;
    output.write(
        "",
        "inputs.json",
        to_json(&serde_json::json!({ "command": document.command }))?,
    )?;
    output.write("", "table.txt", &table)?;
    output.write("", "summary.json", to_json(document)?)?;
    output.write("", "sweep.csv", csv_of(document)?)?;
    output.write_plot("", &figures::overview(document, &PAPER))
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
            SimCommand::Darshan(args) => args,
            SimCommand::Traffic(args) => args,
            SimCommand::Collective(args) => args,
            SimCommand::Interference(args) => args,
            SimCommand::Jobs(_) => unreachable!("sim jobs simulates its combinations itself"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
