//! `forebay study`.

mod case;
mod file;
mod report;
mod summary;

use super::ior::FidelityArg;
use super::options::cores;
use super::output::to_json;
use super::replicates::{SharedProgress, run_all};
use crate::console::{print_stderr, print_stdout};
use crate::progress::Display;
use crate::run_directory::write_file;
use case::{Case, CaseResult};
use clap::Args;
use file::StudyFile;
use forebay_console::Failure;
use forebay_machine::study::WarmUps;
use std::path::PathBuf;
use summary::Summary;

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
    /// Level of detail, instead of that of the file: packets, flows of several I/O jobs (docs/flow.md), or
    /// packets where they are cheap
    #[arg(long, value_enum)]
    fidelity: Option<FidelityArg>,
}

pub(super) fn run(args: &StudyArgs) -> Result<(), Failure> {
    let mut study = StudyFile::read(&args.file)?;
    if let Some(fidelity) = args.fidelity {
        study.fidelity = Some(fidelity.fidelity().name().into());
    }
    // Everything is checked before anything is simulated.
    let cases = study.cases()?;
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::io("create", &args.out, error))?;
    let threads = args.threads.map_or_else(cores, usize::from);
    let progress = SharedProgress::start("study", cases.len(), Display::choose(false));
    let result_of = |nth: usize, warm_ups: &WarmUps| {
        let shown = |time, done, events| progress.update(nth, time, done, events);
        let result = cases[nth].result(&args.out, warm_ups, &shown);
        progress.end(nth);
        result
    };
    let results = match study.warm_up().map_err(Failure::Input)? {
        None => run_all(cases.len(), threads, |nth| result_of(nth, &WarmUps::none()))?,
        Some(time) => results_after(&WarmUps::shared(time), &cases, threads, &result_of)?,
    };
    drop(progress);
    let summary = Summary::of(&study, &results);
    let report = report::report(&study, &summary);
    write_file(&args.out.join("summary.json"), to_json(&summary)?)?;
    write_file(&args.out.join("report.md"), &report)?;
    print_stdout(&report)
}

/// The results of the cases in their order. Cases with the same seed, which can have the same warm-ups, are
/// simulated one after another.
fn results_after(
    warm_ups: &WarmUps,
    cases: &[Case],
    threads: usize,
    result_of: &(dyn Fn(usize, &WarmUps) -> Result<CaseResult, Failure> + Sync),
) -> Result<Vec<CaseResult>, Failure> {
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|nth| cases[*nth].seed);
    let of_case = |nth: usize| Ok((order[nth], result_of(order[nth], warm_ups)?));
    let mut results = run_all(cases.len(), threads, of_case)?;
    results.sort_by_key(|(nth, _)| *nth);
    let (simulated, copied) = warm_ups.counts();
    print_stderr(format_args!("{simulated} warm-ups for {copied} simulations"));
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
