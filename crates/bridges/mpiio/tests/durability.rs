//! Power failures: what `MPI_File_sync` has returned for is on stable storage, in a log or in the file.

use crate::support;
use forebay_mpiio_log::{ReplayOptions, replay};
use std::path::{Path, PathBuf};
use support::{Mpi, intercept, run};

/// Processes.
const RANKS: usize = 3;

/// A program that was run, and what power failures would have left of its files.
struct Run {
    /// The file.
    file: PathBuf,
    /// The data that the program has synced.
    expected: Vec<u8>,
    /// Directories with the durable contents of logs and file, one after another.
    states: Vec<PathBuf>,
}

/// Runs the program of the tests, to its end or until it is killed.
fn observe(mpi: Mpi, scratch: &Path, flush: &str, how: &str) -> Run {
    let program = mpi.compile("killed.c", &[], scratch);
    let watch = mpi.compile("power_failure.c", &["-shared", "-fPIC"], scratch);
    let (plain, file) = (scratch.join("plain"), scratch.join("logged"));
    run(mpi.launch(RANKS, &program).arg(&plain).arg("end"));
    let kept = scratch.join("kept");
    for directory in ["durable", "states"] {
        std::fs::create_dir_all(kept.join(directory)).unwrap();
    }
    let mut command = mpi.launch(RANKS, &program);
    intercept(&mut command, "logged", scratch);
    command
        .env("LD_PRELOAD", format!("{}:{}", support::library().display(), watch.display()))
        .env("FOREBAY_LOG_FLUSH", flush)
        .env("KEPT", &kept)
        .env("KEPT_FILE", &file)
        .env("SYNCED_MARK", scratch.join("mark"));
    let output = command.arg(&file).arg(how).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), how == "end", "{mpi:?}, {flush}: {text}");
    let states = std::fs::read_dir(kept.join("states")).unwrap();
    let mut states: Vec<_> = states.map(|entry| entry.unwrap().path()).collect();
    states.sort();
    Run { file, expected: std::fs::read(&plain).unwrap(), states }
}

/// The file after a power failure that left this state, and a replay; and the number of logs.
fn recovered(file: &Path, state: &Path) -> (Vec<u8>, usize) {
    let _ = std::fs::remove_file(file);
    let logs = tempfile::tempdir().unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(state).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "fblog") {
            std::fs::copy(entry.path(), logs.path().join(entry.file_name())).unwrap();
            count += 1;
        }
    }
    let kept = state.join(file.file_name().unwrap());
    if kept.exists() {
        std::fs::copy(kept, file).unwrap();
    }
    // The file is younger than its logs here.
    let options = ReplayOptions { replaced: true, ..ReplayOptions::default() };
    replay(&[logs.path().to_owned()], &options).unwrap();
    (std::fs::read(file).unwrap_or_default(), count)
}

#[test]
fn synced_data_is_in_durable_logs_when_a_program_is_killed() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let run = observe(mpi, scratch.path(), "close", "kill");
        let last = run.states.last().expect("something was synced");
        let (content, logs) = recovered(&run.file, last);
        assert_eq!(logs, RANKS, "{mpi:?}");
        assert!(content == run.expected, "{mpi:?}: {} bytes", content.len());
    }
}

#[test]
fn synced_data_is_durable_at_every_step_of_a_close() {
    for mpi in Mpi::installed() {
        for flush in ["close", "background", "stage-out"] {
            let scratch = tempfile::tempdir().unwrap();
            let run = observe(mpi, scratch.path(), flush, "end");
            let synced: Vec<_> =
                run.states.iter().filter(|state| state.join("mark").exists()).collect();
            assert!(synced.len() > RANKS, "{mpi:?}, {flush}: {} states", synced.len());
            let mut with_logs = 0;
            for state in &synced {
                let (content, logs) = recovered(&run.file, state);
                let number = state.display();
                assert!(content == run.expected, "{mpi:?}, {flush}, {number}: {logs} logs");
                with_logs += usize::from(logs > 0);
            }
            let logs_stay = flush == "stage-out";
            assert_eq!(with_logs == synced.len(), logs_stay, "{mpi:?}, {flush}");
        }
    }
}
