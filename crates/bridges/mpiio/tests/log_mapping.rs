//! Logs of processes, and logs that the processes of a node share.

use crate::support;
use forebay_mpiio_log::{ReplayOptions, replay};
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{Mpi, intercept, run, statistics};

/// Processes.
const RANKS: usize = 3;

/// The logs of a run.
fn logs(scratch: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(scratch.join("logs")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "fblog")).collect()
}

/// Runs `killed.c` on `scratch`/data with a mapping and other variables; `ending` is `end` or `kill`.
fn write(mpi: Mpi, scratch: &Path, mapping: &str, more: &[(&str, &str)], ending: &str) -> Output {
    let program = mpi.compile("killed.c", &[], scratch);
    let mut command = mpi.launch(RANKS, &program);
    intercept(&mut command, "data", scratch);
    command.env("FOREBAY_LOG_MAPPING", mapping).envs(more.iter().copied());
    command.arg(scratch.join("data")).arg(ending).output().unwrap()
}

/// As [`write`], to the end.
fn write_all(mpi: Mpi, scratch: &Path, mapping: &str, more: &[(&str, &str)]) {
    let output = write(mpi, scratch, mapping, more, "end");
    assert!(output.status.success(), "{mpi:?}, {more:?}: {output:?}");
}

/// The file that plain MPI-IO writes.
fn expected(mpi: Mpi, scratch: &Path) -> Vec<u8> {
    let program = mpi.compile("killed.c", &[], scratch);
    let plain = scratch.join("plain");
    run(mpi.launch(RANKS, &program).arg(&plain).arg("end"));
    std::fs::read(&plain).unwrap()
}

#[test]
fn processes_of_a_node_share_a_log_and_a_replay_has_what_each_has_synced() {
    for mpi in Mpi::installed() {
        // The directory is on a local file system, where `auto` gives each process a log.
        for (mapping, files) in [("node", 1), ("process", RANKS), ("auto", RANKS)] {
            let scratch = tempfile::tempdir().unwrap();
            let scratch = scratch.path();
            let expected = expected(mpi, scratch);
            assert!(!write(mpi, scratch, mapping, &[], "kill").status.success());
            assert_eq!(logs(scratch).len(), files, "{mpi:?}, {mapping}");
            let replayed = replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
            assert!(replayed.iter().any(|file| file.entries > 0), "{mpi:?}, {mapping}");
            assert!(std::fs::read(scratch.join("data")).unwrap() == expected, "{mpi:?}, {mapping}");
            assert_eq!(logs(scratch).len(), 0, "{mpi:?}, {mapping}: replayed logs are removed");
        }
    }
}

#[test]
fn shared_log_is_applied_and_removed_at_close() {
    for mpi in Mpi::installed() {
        for flush in ["close", "background"] {
            let scratch = tempfile::tempdir().unwrap();
            let scratch = scratch.path();
            let expected = expected(mpi, scratch);
            write_all(mpi, scratch, "node", &[("FOREBAY_LOG_FLUSH", flush)]);
            assert!(std::fs::read(scratch.join("data")).unwrap() == expected, "{mpi:?}, {flush}");
            // No logs are left.
            assert!(statistics(scratch).count("data", "logged_requests") > 0, "{mpi:?}");
        }
    }
}

#[test]
fn shared_log_is_left_to_the_movers_with_the_writes_of_all_processes() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let expected = expected(mpi, scratch);
        write_all(mpi, scratch, "node", &[("FOREBAY_LOG_FLUSH", "stage-out")]);
        assert_eq!(logs(scratch).len(), 1, "{mpi:?}");
        replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
        assert!(std::fs::read(scratch.join("data")).unwrap() == expected, "{mpi:?}");
    }
}
