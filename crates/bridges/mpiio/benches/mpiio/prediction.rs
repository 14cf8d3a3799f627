//! The gain of the log that `forebay sim ior --log` predicts, compared with the measured one, on a variant of the
//! machine `toy` that is calibrated to this computer.
//!
//! Calibrated are the rates and times of the parts: requests to the file system of the files, writes to
//! and reads from the directory of logs, opening of a log, one logged call, one message. Compared are the
//! gains of other programs: medians of the ratios of paired runs. They agree if they differ by at most
//! [`MOST_ERROR`].

use crate::cases::{Case, compile};
use crate::options::Options;
use crate::runs::{Mode, RANKS, Site};
use crate::toy_machine::{Calibration, machine_text};
use crate::{Outcome, median};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Largest difference of the predicted gain from the measured one, as a part of the latter.
pub const MOST_ERROR: f64 = 0.25;

/// A strided test of IOR: name, bytes of a transfer, segments, collective.
type Test = (&'static str, u64, u64, bool);

/// The compared tests. None is one of the calibration. The last four were not simulated or measured before
/// the calibration was settled.
const TESTS: [Test; 10] = [
    ("independent, 16 KiB", 16 << 10, 1280, false),
    ("independent, 64 KiB", 64 << 10, 640, false),
    ("independent, 256 KiB", 256 << 10, 160, false),
    ("collective, 64 KiB", 64 << 10, 640, true),
    ("independent, 128 KiB", 128 << 10, 320, false),
    ("collective, 256 KiB", 256 << 10, 160, true),
    ("independent, 48 KiB", 48 << 10, 800, false),
    ("independent, 96 KiB", 96 << 10, 400, false),
    ("collective, 32 KiB", 32 << 10, 1280, true),
    ("collective, 128 KiB", 128 << 10, 320, true),
];

/// Arguments of the program, for the life of the process.
fn pattern(transfer: u64, segments: u64, collective: bool) -> &'static str {
    format!("{transfer},{segments},{}", u8::from(collective)).leak()
}

fn case(transfer: u64, segments: u64, collective: bool) -> Case {
    let pattern = pattern(transfer, segments, collective);
    Case { name: "prediction", program: "ior", pattern, aim: None, direct: false }
}

/// Median time of runs in one mode.
fn time(site: &Site, program: &Path, case: &Case, mode: Mode, runs: usize) -> Outcome<f64> {
    site.run(program, case, mode, false)?;
    let mut times = Vec::new();
    for _ in 0..runs {
        times.push(site.run(program, case, mode, false)?.seconds);
    }
    site.remove(mode)?;
    Ok(median(times.into_iter()))
}

/// Mean time of a write of `bytes` to a new file in `directory`.
fn write_time(directory: &Path, bytes: usize, writes: u64) -> Outcome<f64> {
    let path = directory.join("calibration");
    let file = File::create(&path)?;
    let data = vec![7; bytes];
    let started = Instant::now();
    for number in 0..writes {
        file.write_all_at(&data, number * bytes as u64)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(seconds / writes as f64)
}

/// Rate at which as many threads as processes read files of the directory of logs, in requests of 128 KiB.
fn read_rate(directory: &Path) -> Outcome<f64> {
    const REQUEST: usize = 128 << 10;
    const REQUESTS: u64 = 320;
    let files = (0..RANKS).map(|number| {
        let path = directory.join(format!("calibration.{number}"));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        for request in 0..REQUESTS {
            file.write_all_at(&[7; REQUEST], request * REQUEST as u64)?;
        }
        std::fs::remove_file(path)?;
        Ok(file)
    });
    let files: Vec<File> = files.collect::<Outcome<_>>()?;
    let read = |file: &File| {
        let mut data = vec![0; REQUEST];
        (0..REQUESTS)
            .try_for_each(|request| file.read_exact_at(&mut data, request * REQUEST as u64))
    };
    let started = Instant::now();
    std::thread::scope(|scope| -> Outcome<()> {
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(|| read(file))).collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    Ok((RANKS as u64 * REQUESTS * REQUEST as u64) as f64 / started.elapsed().as_secs_f64())
}

/// Measures the parts.
fn calibrate(site: &Site, program: &Path, runs: usize) -> Outcome<Calibration> {
    const SMALL: usize = 4 << 10;
    const LARGE: usize = 1 << 20;
    let medians = |bytes, writes| -> Outcome<f64> {
        let times: Vec<f64> =
            (0..runs).map(|_| write_time(&site.files, bytes, writes)).collect::<Outcome<_>>()?;
        Ok(median(times.into_iter()))
    };
    let (small, large) = (medians(SMALL, 100)?, medians(LARGE, 40)?);
    let pfs_rate = (LARGE - SMALL) as f64 / (large - small);
    let reads: Vec<f64> = (0..runs).map(|_| read_rate(&site.logs)).collect::<Outcome<_>>()?;
    let log = |transfer, segments| {
        time(site, program, &case(transfer, segments, false), Mode::Background, runs)
    };
    // Almost only opening and closing, of the log and of the file; calls of two lengths, for the time of
    // a call and of its bytes.
    let open = log(4 << 10, 1)?;
    let of_call = |bytes: u64, calls: u64| -> Outcome<f64> {
        Ok((log(bytes, calls)? - open).max(1e-6) / calls as f64)
    };
    let (short, long) = (1 << 10, 512 << 10);
    let (of_short, of_long) = (of_call(short, 40_000)?, of_call(long, 100)?);
    let of_byte = ((of_long - of_short) / (long - short) as f64).max(1e-12);
    let opened = time(site, program, &case(4 << 10, 1, false), Mode::Plain, runs)?;
    let pfs_open = (opened - RANKS as f64 * small).max(1e-6);
    let reduction = time(site, program, &case(0, 0, false), Mode::Plain, runs)? / 200.0;
    Ok(Calibration {
        pfs_latency: small - SMALL as f64 / pfs_rate,
        pfs_rate,
        pfs_open,
        log_rate: 1.0 / of_byte,
        // A logged file is opened, too, and the prediction counts both.
        log_open: (open - pfs_open).max(1e-6),
        log_read_rate: median(reads.into_iter()),
        logged_call: (of_short - short as f64 * of_byte).max(1e-9),
        // Two rounds for four processes.
        message: reduction / 2.0,
    })
}

/// The prediction of `forebay sim ior` for a test.
fn predict(forebay: &Path, machine: &Path, test: Test, flush: &str) -> Outcome<Value> {
    let (_, transfer, segments, collective) = test;
    let mut command = Command::new(forebay);
    command
        .args(["sim", "ior", "--quiet", "--no-out", "--json", "-", "--nodes", "1", "--ppn"])
        .arg(RANKS.to_string())
        .args(["--file-system", "pfs", "--burst-buffers", "1", "--log", flush, "--machine"])
        .arg(machine)
        .args(["--", "-a", "MPIIO", "-w", "-t", &transfer.to_string()])
        .args(["-b", &transfer.to_string(), "-s", &segments.to_string()]);
    if collective {
        command.arg("-c");
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let document: Value = serde_json::from_slice(&output.stdout)?;
    Ok(document["points"][0]["logged"].clone())
}

/// Measures a test in turn plain and logged, compares, and prints the result.
fn compare(
    site: &Site,
    program: &Path,
    (forebay, machine): (&Path, &Path),
    test: Test,
    pairs: usize,
) -> Outcome<Vec<Value>> {
    let (name, transfer, segments, collective) = test;
    let case = case(transfer, segments, collective);
    let modes = [Mode::Plain, Mode::Logged, Mode::Background];
    let mut times: Vec<[f64; 3]> = Vec::new();
    for round in 0..=pairs {
        let mut of_round = [0.0; 3];
        for (time, mode) in of_round.iter_mut().zip(modes) {
            *time = site.run(program, &case, mode, false)?.seconds;
        }
        // The first round warms up, and its files are compared.
        match round {
            0 => [Mode::Logged, Mode::Background]
                .into_iter()
                .try_for_each(|mode| site.compare(Mode::Plain, mode))?,
            _ => times.push(of_round),
        }
    }
    modes.into_iter().try_for_each(|mode| site.remove(mode))?;
    let mut results = Vec::new();
    for (index, flush) in [(1, "close"), (2, "background")] {
        let predicted = predict(forebay, machine, test, flush)?;
        let part = |field: &str| predicted[field].as_f64().unwrap_or(f64::NAN);
        let measured = median(times.iter().map(|times| times[0] / times[index]));
        let seconds = |index: usize| median(times.iter().map(|times| times[index]));
        let error = part("gain") / measured - 1.0;
        let holds = error.abs() <= MOST_ERROR;
        println!(
            "{name:<22} {flush:<11} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {measured:>9.2} {:>9.2} {:>+7.0}% {}",
            seconds(0),
            part("plain_seconds"),
            seconds(index),
            part("seconds"),
            part("gain"),
            100.0 * error,
            if holds { "within" } else { "outside" },
        );
        results.push(json!({
            "test": name,
            "flush": flush,
            "measured_gain": measured,
            "predicted_gain": part("gain"),
            "plain_seconds": seconds(0),
            "predicted_plain_seconds": part("plain_seconds"),
            "logged_seconds": seconds(index),
            "predicted_logged_seconds": part("seconds"),
            "within": holds,
        }));
    }
    Ok(results)
}

/// The tests whose gain with logs applied at close is not predicted. With logs applied in the background a
/// program waits for a few hundredths of a second, whose gain is printed only.
pub fn missed(prediction: &Value) -> Vec<String> {
    let tests = prediction["tests"].as_array().into_iter().flatten();
    let is_missed = |test: &&Value| test["flush"] == "close" && test["within"] == false;
    tests
        .filter(is_missed)
        .map(|test| test["test"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Calibrates, measures and compares. The files of `site` are on the slow file system.
pub fn compare_all(options: &Options, site: &Site, forebay: &Path) -> Outcome<Value> {
    let program = compile(&case(0, 0, false), options, false, &site.scratch)?
        .ok_or("the program was not compiled")?;
    let calibration = calibrate(site, &program, options.pairs)?;
    println!("calibrated: {calibration}");
    let machine = site.scratch.join("calibrated.toml");
    std::fs::write(&machine, machine_text(&calibration)?)?;
    println!(
        "{:<22} {:<11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "compared", "applied at", "plain", "pred.", "logged", "pred.", "gain", "pred.", "error"
    );
    let mut results = Vec::new();
    for test in TESTS {
        let site_of_test = (forebay, machine.as_path());
        results.extend(compare(site, &program, site_of_test, test, options.pairs)?);
    }
    Ok(
        json!({ "most_error": MOST_ERROR, "calibration": calibration.to_string(), "tests": results }),
    )
}
