//! Programs that are killed: what they have synced is in their logs, and a rerun is not disturbed.

use crate::support;
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
fn rerun_finds_what_a_killed_run_has_synced_and_nothing_is_left_to_be_replayed_over_it() {
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
        // A program that only opens and closes the file.
        let order = mpi.compile("order.c", &[], scratch);
        let mut rerun = mpi.launch(RANKS, &order);
        intercept(&mut rerun, "logged", scratch);
        let output = run(rerun.arg("nothing").arg(&logged));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("writes of an earlier run from 3 logs"), "{mpi:?}: {errors}");
        assert!(std::fs::read(&logged).unwrap() == expected, "{mpi:?}: synced data is back");
        // No logs are left.
        assert!(!statistics(scratch).files().is_empty());
    }
}

#[test]
fn rerun_with_a_new_file_is_not_changed_by_a_replay_of_the_logs_of_a_killed_run() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("killed.c", &[], scratch);
        let logged = scratch.join("logged");
        let mut killed = mpi.launch(RANKS, &program);
        intercept(&mut killed, "logged", scratch);
        assert!(!killed.arg(&logged).arg("kill").output().unwrap().status.success());
        // The file of the rerun is created at once, perhaps with the inode number of the old one.
        std::fs::remove_file(&logged).unwrap();
        let order = mpi.compile("order.c", &[], scratch);
        let mut rerun = mpi.launch(RANKS, &order);
        intercept(&mut rerun, "logged", scratch);
        let output = run(rerun.arg("error").arg(&logged));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("was created after 3 logs"), "{mpi:?}: {errors}");
        let written = std::fs::read(&logged).unwrap();
        assert!(written[100..1000].iter().all(|byte| *byte == 0), "{mpi:?}: an old write");
        replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
        assert!(std::fs::read(&logged).unwrap() == written, "{mpi:?}: the file is as it was");
    }
}

#[test]
fn close_that_fails_frees_its_communicator_and_leaves_the_logs() {
    const RANKS: usize = 2;
    for mpi in Mpi::installed() {
        for (flush, before) in
            [("close", 0), ("background", 0), ("background", 1), ("stage-out", 0)]
        {
            let scratch = tempfile::tempdir().unwrap();
            let scratch = scratch.path();
            let program = mpi.compile("failed_close.c", &[], scratch);
            let between = mpi.compile("communicators.c", &["-shared", "-fPIC", "-ldl"], scratch);
            let logged = scratch.join("logged");
            let mut command = mpi.launch(RANKS, &program);
            intercept(command.arg(&logged), "logged", scratch);
            let preloaded = format!("{}:{}", support::library().display(), between.display());
            command
                .env("LD_PRELOAD", preloaded)
                .env("FOREBAY_LOG_FLUSH", flush)
                .env("MESSAGES_BEFORE", before.to_string());
            let output = String::from_utf8(run(&mut command).stdout).unwrap();
            let name = format!("{mpi:?}, {flush}, {before}");
            assert_eq!(output.matches("close fails").count(), RANKS, "{name}: {output}");
            assert!(output.matches("kept 0").count() >= RANKS, "{name}: {output}");
            assert!(!output.contains("kept 1"), "{name}: {output}");
            let replayed = replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
            assert_eq!(
                replayed.iter().map(|file| file.entries).sum::<u64>(),
                RANKS as u64,
                "{name}"
            );
            assert_eq!(std::fs::read(&logged).unwrap(), [[b'a'; 1000], [b'b'; 1000]].concat());
        }
    }
}
