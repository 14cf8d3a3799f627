//! Files that are removed or renamed while their logs wait for the movers (`programs/again.c`).

use crate::support;
use forebay_mpiio_log::{Left, ReplayOptions, logs, replay};
use std::path::Path;
use support::{Mpi, intercept, run, statistics};

/// Processes.
const RANKS: usize = 2;

/// Runs a case with logs that are left for later.
fn run_case(mpi: Mpi, case: &str, scratch: &Path) {
    let program = mpi.compile("again.c", &[], scratch);
    let mut command = mpi.launch(RANKS, &program);
    intercept(command.arg(case).arg(scratch.join("data")), "data*", scratch);
    run(command.env("FOREBAY_LOG_FLUSH", "stage-out"));
    assert_eq!(std::fs::read(scratch.join("data")).unwrap_or_default(), b"", "nothing is applied");
}

#[test]
fn logs_of_a_deleted_file_are_removed_with_it() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        run_case(mpi, "delete", scratch);
        let left = logs(&scratch.join("logs")).unwrap();
        assert_eq!(left.len(), RANKS, "{mpi:?}: those of the new file: {left:?}");
        replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
        assert_eq!(std::fs::read(scratch.join("data")).unwrap(), [b'n'; 10 * RANKS], "{mpi:?}");
    }
}

#[test]
fn logs_of_a_killed_run_are_removed_when_another_program_deletes_the_file() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("killed.c", &[], scratch);
        let file = scratch.join("data");
        let mut killed = mpi.launch(RANKS, &program);
        intercept(&mut killed, "data", scratch);
        assert!(!killed.arg(&file).arg("kill").output().unwrap().status.success());
        assert_eq!(logs(&scratch.join("logs")).unwrap().len(), RANKS, "{mpi:?}");
        let program = mpi.compile("again.c", &[], scratch);
        let mut command = mpi.launch(RANKS, &program);
        intercept(command.arg("only-delete").arg(&file), "data", scratch);
        run(&mut command);
        assert!(!file.exists() && logs(&scratch.join("logs")).unwrap().is_empty(), "{mpi:?}");
    }
}

#[test]
fn logs_of_a_file_that_its_program_unlinked_are_removed() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        run_case(mpi, "unlink", scratch);
        let replayed = replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
        let left: Vec<_> = replayed.iter().map(|run| run.left).collect();
        assert_eq!(left, [None], "{mpi:?}: those of the new file: {replayed:?}");
        assert_eq!(std::fs::read(scratch.join("data")).unwrap(), [b'n'; 10 * RANKS], "{mpi:?}");
        assert!(statistics(scratch).count("data", "logged_requests") >= 2 * RANKS as u64);
    }
}

#[test]
fn logs_of_a_file_that_its_program_unlinked_last_are_removed() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        run_case(mpi, "only-unlink", scratch);
        assert!(statistics(scratch).count("data", "logged_requests") >= RANKS as u64, "{mpi:?}");
        assert!(!scratch.join("data").exists(), "{mpi:?}");
    }
}

#[test]
fn logs_of_a_file_that_was_created_again_after_the_program_are_not_applied_to_the_new_one() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        run_case(mpi, "rename", scratch);
        std::fs::remove_file(scratch.join("data.final")).unwrap();
        std::fs::write(scratch.join("data"), "new").unwrap();
        let replayed = replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
        let left: Vec<_> = replayed.iter().map(|run| run.left).collect();
        assert_eq!(left, [Some(Left::Replaced)], "{mpi:?}: {replayed:?}");
        assert_eq!(std::fs::read(scratch.join("data")).unwrap(), b"new", "{mpi:?}");
        assert_eq!(logs(&scratch.join("logs")).unwrap().len(), RANKS, "{mpi:?}: the old ones stay");
    }
}

#[test]
fn logs_are_applied_to_a_file_that_was_renamed_in_its_directory() {
    for mpi in Mpi::installed() {
        for new_file in [None, Some(b"new")] {
            let scratch = tempfile::tempdir().unwrap();
            let scratch = scratch.path();
            run_case(mpi, "rename", scratch);
            if let Some(content) = new_file {
                std::fs::write(scratch.join("data"), content).unwrap();
            }
            replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
            let renamed = std::fs::read(scratch.join("data.final")).unwrap();
            assert_eq!(renamed, [b'o'; 1000 * RANKS], "{mpi:?}");
            let named = std::fs::read(scratch.join("data")).ok();
            assert_eq!(named, new_file.map(|content| content.to_vec()), "{mpi:?}");
            assert_eq!(logs(&scratch.join("logs")).unwrap().len(), 0, "{mpi:?}");
        }
    }
}

#[test]
fn logs_of_a_file_that_has_no_name_in_its_directory_stay() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        run_case(mpi, "rename", scratch);
        let elsewhere = scratch.join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::rename(scratch.join("data.final"), elsewhere.join("data")).unwrap();
        let replayed = replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
        assert_eq!(replayed[0].left, Some(Left::Missing), "{mpi:?}");
        assert!(!scratch.join("data").exists(), "{mpi:?}: it is not created");
        assert_eq!(logs(&scratch.join("logs")).unwrap().len(), RANKS, "{mpi:?}");
    }
}

/// Otherwise a power failure could bring back a log that the kernel had written, though it was never
/// synced, and a replay would put it over what was written since.
#[test]
fn removal_of_a_log_that_was_never_synced_is_durable() {
    for mpi in Mpi::installed() {
        for flush in ["close", "background"] {
            let scratch = tempfile::tempdir().unwrap();
            let scratch = scratch.path();
            let program = mpi.compile("background.c", &[], scratch);
            let watch = mpi.compile("removals.c", &["-shared", "-fPIC", "-ldl"], scratch);
            let mut command = mpi.launch(RANKS, &program);
            intercept(command.arg(scratch.join("data")), "data", scratch);
            let preloaded = format!("{}:{}", support::library().display(), watch.display());
            command.env("LD_PRELOAD", preloaded).env("FOREBAY_LOG_FLUSH", flush);
            let output = String::from_utf8(run(&mut command).stdout).unwrap();
            let lines: Vec<&str> = output.lines().collect();
            let mut removals = 0;
            for (at, line) in lines.iter().enumerate() {
                let Some(process) = line.strip_suffix(" removes a log") else { continue };
                let synced = format!("{process} syncs a directory");
                assert!(lines[at..].contains(&&*synced), "{mpi:?}, {flush}: {output}");
                removals += 1;
            }
            assert_eq!(removals, RANKS, "{mpi:?}, {flush}: {output}");
            assert!(statistics(scratch).count("data", "logged_requests") >= RANKS as u64);
        }
    }
}
