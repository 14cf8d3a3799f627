//! Programs with many small operations on the mount, on libfuse's passthrough_ll and on the local file
//! system, in one run: `make bench`, or `cargo bench -p forebay-client --bench mounts -- [options]`.
//!
//! In each round every program runs once on each contestant, one after another, and the first contestant
//! changes from round to round. A ratio is the median of the ratios of the rounds. A program that is not
//! installed is skipped, with a message.

#[path = "../buffer/command_line.rs"]
mod command_line;
mod contestants;
mod passthrough;
#[allow(dead_code)] // the other benchmark measures the time of processors
#[path = "../buffer/process.rs"]
mod process;
mod programs;
#[allow(dead_code)] // the other benchmark has upper limits, too
#[path = "../buffer/report.rs"]
mod report;
mod score;
mod sources;

use contestants::{Contestant, Contestants};
use programs::{PROGRAMS, Program, Rate};
use report::{Line, Target, median};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
/// The rates of each case, by contestant, in the order of the rounds.
type Rates = BTreeMap<(usize, &'static str), BTreeMap<Contestant, Vec<Rate>>>;

const USAGE: &str = "usage: mounts [--disk DIRECTORY] [--rounds N] [--quick] [--only TEXT] \
    [--programs DIRECTORY] [--passthrough-options OPTIONS] [--idle-mount] [--json FILE]";

/// Options of this benchmark only.
#[derive(Default)]
struct Own {
    /// Amounts of work are divided by four.
    quick: bool,
    /// Directory in which programs are looked for before `PATH`.
    programs: Option<PathBuf>,
    /// Options of passthrough_ll.
    passthrough: String,
    /// The mount is also measured beside a second one, which does nothing.
    idle_mount: bool,
}

fn measure(arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let mut own = Own::default();
    let options =
        command_line::parse(arguments, USAGE, "mounts.json", |option, options, value| {
            match option {
                "--quick" => (own.quick, options.rounds) = (true, 1),
                "--programs" => own.programs = Some(value()?.into()),
                "--passthrough-options" => own.passthrough = value()?,
                "--idle-mount" => own.idle_mount = true,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
    let contestants = Contestants::start(&options.disk, &own.passthrough, own.idle_mount)?;
    let all = contestants.all();
    println!(
        "programs on {}; passthrough_ll with the options {:?}; load at the start {}",
        contestants.dir.display(),
        own.passthrough,
        std::fs::read_to_string("/proc/loadavg")?.trim_end()
    );
    let mut lines = Vec::new();
    let mut rates = Rates::new();
    report::print_heading();
    for (number, program) in PROGRAMS.iter().enumerate() {
        if !program.name.contains(&options.only) {
            continue;
        }
        let Some(found) = programs::find(program, own.programs.as_deref())? else { continue };
        for round in 0..options.rounds {
            for turn in 0..all.len() {
                let contestant = all[(turn + round) % all.len()];
                let dir = contestants.empty_directory(contestant)?;
                rustix::fs::sync();
                let run = Program::run(program, &found, &dir, own.quick);
                let run = run.map_err(|error| {
                    format!("{} on {}: {error}", program.name, contestant.name())
                })?;
                for rate in run {
                    let of_case = rates.entry((number, rate.case)).or_default();
                    of_case.entry(contestant).or_default().push(rate);
                }
                std::fs::remove_dir_all(&dir)?;
            }
        }
        for ((_, case), of_case) in rates.range((number, "")..(number + 1, "")) {
            for contestant in &all {
                lines.push(line(program.name, case, of_case, *contestant));
                report::print_line(&lines[lines.len() - 1]);
            }
        }
    }
    score::add_score(&rates, &all, options.rounds, &mut lines);
    contestants.stop()?;
    report::write_json("mounts", &lines, &options.json)?;
    println!("written to {}", options.json.display());
    Ok(())
}

/// The line of one contestant: its median, and the median of its ratios to another contestant.
fn line(
    program: &str,
    case: &str,
    rates: &BTreeMap<Contestant, Vec<Rate>>,
    contestant: Contestant,
) -> Line {
    let none = Vec::new();
    let own = rates.get(&contestant).unwrap_or(&none);
    let (other, target) = contestant.compared_with();
    let other = other.and_then(|other| Some((rates.get(&other)?, other.name())));
    let ratio = other.map(|(others, name)| {
        let pairs = own.iter().zip(others);
        (median(pairs.map(|(own, other)| own.ratio_to(other)).collect()), name)
    });
    Line {
        case: format!("{program}, {case}"),
        who: contestant.name().to_owned(),
        measured: median(own.iter().map(|rate| rate.value).collect()),
        unit: own.first().map_or("", |rate| rate.unit),
        target: if ratio.is_some() { target } else { Target::None },
        ratio,
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    command_line::exit_code(match arguments.peek().map(String::as_str) {
        Some("daemon") => contestants::run_daemon(arguments.skip(1)),
        Some("mount") => contestants::run_mount(arguments.skip(1)),
        _ => measure(arguments),
    })
}
