//! Programs that are killed: what they have synced is in their logs, and a rerun is not disturbed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use forebay_mpiio_log::{ReplayOptions, replay};
use support::{Mpi, intercept, run, statistics};

/// Processes.
const RANKS: usize = 3;

#[test]
fn what_a_killed_program_has_synced_is_replayed_in_its_order_and_twice_is_the_same() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("killed.c", &[], scratch);
        let (plain, logged) = (scratch.join("plain"), scratch.join("logged"));
        run(mpi.launch(RANKS, &program).arg(&plain).arg("end"));
        let expected = std::fs::read(&plain).unwrap();

        let mut killed = mpi.launch(RANKS, &program);
        intercept(&mut killed, "logged", scratch);
        assert!(!killed.arg(&logged).arg("kill").output().unwrap().status.success());
        assert_eq!(std::fs::read(&logged).unwrap(), b"", "all data is in the logs");

        let logs = scratch.join("logs");
        let left = || std::fs::read_dir(&logs).unwrap().flatten().map(|entry| entry.path());
        let copy = scratch.join("copy");
        std::fs::create_dir(&copy).unwrap();
        for log in left() {
            std::fs::copy(&log, copy.join(log.file_name().unwrap())).unwrap();
        }
        for logs in [logs.clone(), copy] {
            let replayed = replay(&[logs], &ReplayOptions::default()).unwrap();
            assert_eq!(replayed.iter().map(|file| file.logs).sum::<usize>(), RANKS, "{mpi:?}");
            assert!(std::fs::read(&logged).unwrap() == expected, "{mpi:?}: synced data is back");
        }
        assert_eq!(left().count(), 0, "replayed logs are removed");
    }
}

#[test]
fn a_rerun_succeeds_beside_the_logs_of_a_killed_run() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("killed.c", &[], scratch);
        let (plain, logged) = (scratch.join("plain"), scratch.join("logged"));
        run(mpi.launch(RANKS, &program).arg(&plain).arg("end"));
        let mut killed = mpi.launch(RANKS, &program);
        intercept(&mut killed, "logged", scratch);
        assert!(!killed.arg(&logged).arg("kill").output().unwrap().status.success());
        let mut rerun = mpi.launch(RANKS, &program);
        intercept(&mut rerun, "logged", scratch);
        run(rerun.arg(&logged).arg("end"));
        assert!(std::fs::read(&logged).unwrap() == std::fs::read(&plain).unwrap(), "{mpi:?}");
        let old = std::fs::read_dir(scratch.join("logs")).unwrap().flatten();
        old.for_each(|log| std::fs::remove_file(log.path()).unwrap());
        assert!(statistics(scratch).count("logged", "logged_requests") > 0);
    }
}
