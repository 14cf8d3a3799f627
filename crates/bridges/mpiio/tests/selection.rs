//! Selection of files by hint, environment and the policy of a directory, and logs for the movers.

use crate::support;
use forebay_mpiio_log::{ReplayOptions, replay};
use std::path::Path;
use support::{Mpi, intercept, run, statistics};

/// Processes.
const RANKS: usize = 2;

/// Runs `killed.c` to its end on `scratch`/data; returns whether it was logged.
fn is_logged(mpi: Mpi, scratch: &Path, pattern: &str, hint: Option<&str>) -> bool {
    let program = mpi.compile("killed.c", &[], scratch);
    let mut command = mpi.launch(RANKS, &program);
    intercept(&mut command, pattern, scratch);
    command.arg(scratch.join("data")).arg("end");
    if let Some(value) = hint {
        command.args(["forebay_log", value]);
    }
    run(&mut command);
    let statistics = statistics(scratch);
    let files = statistics.files();
    assert!(files.iter().all(|file| statistics.count(file, "logged_requests") > 0));
    !files.is_empty()
}

#[test]
fn a_hint_selects_a_file_and_excludes_one_that_a_pattern_matches() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        assert!(is_logged(mpi, scratch, "data", None), "{mpi:?}: a pattern of the name");
        let path = format!("*{}/d?ta", scratch.file_name().unwrap().to_str().unwrap());
        assert!(is_logged(mpi, scratch, &format!("other:{path}"), None), "{mpi:?}: of the path");
        assert!(!is_logged(mpi, scratch, "other", None), "{mpi:?}: neither");
        assert!(is_logged(mpi, scratch, "other", Some("enable")), "{mpi:?}: a hint");
        assert!(!is_logged(mpi, scratch, "data", Some("disable")), "{mpi:?}: the hint decides");
    }
}

#[test]
fn a_file_whose_log_cannot_be_created_is_reported_and_passed_on() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("killed.c", &[], scratch);
        let (plain, passed) = (scratch.join("plain"), scratch.join("passed"));
        run(mpi.launch(RANKS, &program).arg(&plain).arg("end"));
        let mut command = mpi.launch(RANKS, &program);
        intercept(&mut command, "passed", scratch);
        command.env("FOREBAY_LOG_DIR", scratch.join("missing"));
        let output = run(command.arg(&passed).arg("end"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("cannot log the writes to"), "{mpi:?}: {errors}");
        assert!(errors.contains("missing"), "{mpi:?}: the directory is named: {errors}");
        assert!(std::fs::read(&passed).unwrap() == std::fs::read(&plain).unwrap(), "{mpi:?}");
        assert_eq!(statistics(scratch).files(), Vec::<String>::new(), "{mpi:?}");
    }
}

#[test]
fn the_policy_of_the_nearest_directory_selects_files() {
    let Some(mpi) = Mpi::installed().pop() else { return };
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let scratch = scratch.path();
    let set = |directory: &Path, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(directory, "user.forebay.log", value, flags)
    };
    if set(scratch, b"enable").is_err() {
        eprintln!("{} has no extended attributes; the test is skipped", scratch.display());
        return;
    }
    assert!(is_logged(mpi, scratch, "", None), "the directory's policy");
    set(scratch, b"disable").unwrap();
    assert!(!is_logged(mpi, scratch, "", None), "the policy excludes");
    assert!(is_logged(mpi, scratch, "data", None), "a pattern precedes the policy");
}

#[test]
fn a_log_for_the_movers_stays_and_brings_the_file_when_it_is_applied() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("killed.c", &[], scratch);
        let (plain, logged) = (scratch.join("plain"), scratch.join("logged"));
        run(mpi.launch(RANKS, &program).arg(&plain).arg("end"));
        let mut command = mpi.launch(RANKS, &program);
        intercept(&mut command, "logged", scratch);
        command.env("FOREBAY_LOG_FLUSH", "stage-out");
        run(command.arg(&logged).arg("end"));
        assert_eq!(std::fs::read(&logged).unwrap(), b"", "{mpi:?}: the program applies nothing");
        let replayed = replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
        assert_eq!(replayed.iter().map(|file| file.logs).sum::<usize>(), RANKS, "{mpi:?}");
        assert!(std::fs::read(&logged).unwrap() == std::fs::read(&plain).unwrap(), "{mpi:?}");
        let logged = statistics(scratch).count("logged", "logged_requests");
        assert!(logged > 200 * RANKS as u64, "{mpi:?}: {logged} writes");
    }
}
