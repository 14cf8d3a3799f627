//! `forebay study`.

mod case;
mod file;
mod report;
mod summary;

use super::ior::FidelityArg;
use super::options::cores;
use super::output::to_json;
use super::replicates::run_all;
use crate::console::print_stdout;
use crate::run_directory::write_file;
use clap::Args;
use file::StudyFile;
use forebay_console::Failure;
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
    std::fs::create_dir_all(&args.out)
        .map_err(|error| Failure::Input(format!("{}: {error}", args.out.display())))?;
    let threads = args.threads.map_or_else(cores, usize::from);
    let results = run_all(cases.len(), threads, |nth| cases[nth].result(&args.out))?;
    let summary = Summary::of(&study, &results);
    let report = report::report(&study, &summary);
    write_file(&args.out.join("summary.json"), to_json(&summary)?)?;
    write_file(&args.out.join("report.md"), &report)?;
    print_stdout(&report)
}
