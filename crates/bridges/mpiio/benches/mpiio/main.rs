//! The speed of programs that write through the log, compared with plain MPI-IO and with the
//! burst-buffer driver of PnetCDF: medians of interleaved runs, a table and a JSON file.
//!
//! `cargo bench --package forebay-mpiio --bench mpiio [-- OPTION…]`

mod cases;
mod options;
mod prediction;
mod runs;
mod slow_pfs;
mod toy_machine;

use cases::{CASES, Case, DRIVER_CASES, compile};
use options::Options;
use runs::{Mode, RANKS, Run, Site};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Result of a step of the benchmark.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Builds the interception library. The benchmark is a release build, and so is the library.
fn library() -> Outcome<PathBuf> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package=forebay-mpiio", "--lib"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    let benchmark = std::env::current_exe()?;
    let built = benchmark
        .parent()
        .and_then(Path::parent)
        .map(|directory| directory.join("libforebay_mpiio.so"))
        .filter(|path| status.success() && path.exists());
    built.ok_or_else(|| "the interception library was not built".into())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs a case in several modes, in turn, and prints and returns the result.
fn measure(
    case: &Case,
    site: &Site,
    program: &Path,
    modes: &[Mode],
    options: &Options,
    place: &str,
) -> Outcome<Value> {
    let pnetcdf = modes.contains(&Mode::Driver);
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); modes.len()];
    // The first round warms up, and its files are compared.
    for round in 0..=options.pairs {
        for (&mode, runs) in modes.iter().zip(&mut runs) {
            let run = site.run(program, case, mode, pnetcdf)?;
            if round == 0 && mode != Mode::Plain {
                site.compare(Mode::Plain, mode)?;
            } else if round > 0 {
                runs.push(run);
                site.remove(mode)?;
            }
        }
    }
    let seconds = |mode| modes.iter().position(|m| *m == mode).map(|index| &runs[index]);
    let mut line = format!("{:<16} {place:<6}", case.name);
    let mut result = json!({
        "case": case.name,
        "mpi": options.mpi.name(),
        "files": place,
        "bytes": runs[0][0].bytes,
        "aim": case.aim,
    });
    for mode in [Mode::Plain, Mode::Logged, Mode::Background, Mode::Driver] {
        let Some(runs) = seconds(mode) else {
            line += &format!(" {:>9}", "-");
            continue;
        };
        let time = median(runs.iter().map(|run| run.seconds));
        line += &format!(" {time:>9.3}");
        result[mode.name()] = json!({
            "median_seconds": time,
            "seconds": runs.iter().map(|run| run.seconds).collect::<Vec<_>>(),
            "statistics": runs[0].statistics,
        });
    }
    for (over, under) in
        [(Mode::Plain, Mode::Logged), (Mode::Plain, Mode::Background), (Mode::Driver, Mode::Logged)]
    {
        let (Some(over_runs), Some(under_runs)) = (seconds(over), seconds(under)) else {
            line += &format!(" {:>9}", "-");
            continue;
        };
        let pairs = over_runs.iter().zip(under_runs);
        let ratio = median(pairs.map(|(over, under)| over.seconds / under.seconds));
        line += &format!(" {ratio:>9.2}");
        result[format!("{}/{}", over.name(), under.name())] = json!(ratio);
    }
    println!("{line}");
    Ok(result)
}

/// Measures all cases with files at one place.
fn measure_all(
    options: &Options,
    site: &Site,
    place: &str,
    results: &mut Vec<Value>,
) -> Outcome<()> {
    let selected = |case: &&Case| case.name.contains(&options.only);
    for case in CASES.iter().filter(selected) {
        match compile(case, options, false, &site.scratch)? {
            Some(program) => {
                let modes = [Mode::Plain, Mode::Logged, Mode::Background];
                results.push(measure(case, site, &program, &modes, options, place)?);
            }
            None => println!("{:<16} {place:<6} skipped: its library is not installed", case.name),
        }
    }
    for case in DRIVER_CASES.iter().filter(selected) {
        if options.pnetcdf.is_none() {
            println!("{:<16} {place:<6} skipped: no --pnetcdf PREFIX with the driver", case.name);
            continue;
        }
        if let Some(program) = compile(case, options, true, &site.scratch)? {
            let modes = [Mode::Plain, Mode::Logged, Mode::Background, Mode::Driver];
            results.push(measure(case, site, &program, &modes, options, place)?);
        }
    }
    Ok(())
}

fn bench() -> Outcome<()> {
    let options = options::parse(std::env::args().skip(1))?;
    if !options.mpi.is_installed() {
        println!("skipped: {} is not installed (scripts/setup.sh bench)", options.mpi.name());
        return Ok(());
    }
    let scratch = tempfile::tempdir_in(&options.directory)?;
    let logs = tempfile::tempdir_in(options.logs.as_ref().unwrap_or(&options.directory))?;
    let directory = |name: &str| -> Outcome<PathBuf> {
        let path = scratch.path().join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    };
    let (local, slow, contents) = (directory("local")?, directory("slow")?, directory("contents")?);
    let mut site = Site {
        mpi: options.mpi,
        files: local,
        logs: logs.path().to_owned(),
        scratch: scratch.path().to_owned(),
        library: library()?,
    };
    let speed = options.speed;
    println!(
        "{RANKS} processes of {}; seconds from opening to closing, medians of {} interleaved runs\n\
         files local: the disk of {}; slow: one server, which carries out requests of at most \
         {} KiB one after another, each in {} us + its bytes at {:.0} MB/s\n\
         logged: applied at close; background: after it; driver: PnetCDF's burst-buffer driver",
        options.mpi.name(),
        options.pairs,
        options.directory.display(),
        slow_pfs::LARGEST_REQUEST >> 10,
        speed.latency.as_micros(),
        speed.bytes_per_second / 1e6,
    );
    if options.forebay.is_none() {
        println!(
            "{:<16} {:<6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "case", "files", "plain", "logged", "backgr.", "driver", "pl/log", "pl/back", "drv/log"
        );
    }
    let (mut results, mut prediction) = (Vec::new(), Value::Null);
    if options.local && options.forebay.is_none() {
        measure_all(&options, &site, "local", &mut results)?;
    }
    if options.slow {
        let mounted = slow_pfs::mount(&slow, contents, speed)?;
        site.files = slow;
        let measured = match &options.forebay {
            None => measure_all(&options, &site, "slow", &mut results),
            Some(forebay) => prediction::compare_all(&options, &site, forebay).map(|compared| {
                prediction = compared;
            }),
        };
        mounted.unmount()?;
        measured?;
    }
    let report = json!({
        "ranks": RANKS,
        "latency_us": speed.latency.as_micros() as u64,
        "bytes_per_second": speed.bytes_per_second,
        "largest_request": slow_pfs::LARGEST_REQUEST,
        "results": results,
        "prediction": prediction,
    });
    std::fs::write(&options.json, serde_json::to_string_pretty(&report)? + "\n")?;
    println!("results: {}", options.json.display());
    match prediction::missed(&report["prediction"]) {
        missed if missed.is_empty() => Ok(()),
        missed => {
            let (most, missed) = (100.0 * prediction::MOST_ERROR, missed.join("; "));
            Err(format!("gains at close are not predicted within {most:.0}%: {missed}").into())
        }
    }
}

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
