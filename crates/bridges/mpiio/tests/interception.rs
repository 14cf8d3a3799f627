//! Interception: calls of files that are not selected pass through; those of selected files are
//! logged, whatever the interface of the program.

use crate::support;
use std::path::Path;
use support::{Mpi, Statistics, assert_equal_files, intercept, run, statistics};

/// Processes of the tests.
const RANKS: usize = 2;

/// Runs `every.c` in `directory` of `scratch`; returns its standard output.
fn run_every(mpi: Mpi, scratch: &Path, directory: &str, pattern: Option<&str>) -> Vec<u8> {
    let program = mpi.compile("every.c", &[], scratch);
    let data = scratch.join(directory);
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("deleted"), "x").unwrap();
    let mut command = mpi.launch(RANKS, &program);
    command.arg(data.join("all.dat")).arg(data.join("deleted"));
    if let Some(pattern) = pattern {
        intercept(&mut command, pattern, scratch);
    }
    let output = run(&mut command).stdout;
    assert!(!data.join("deleted").exists(), "MPI_File_delete removes the file");
    output
}

/// Functions of files that this library has under their MPI names, from its dynamic symbols.
fn exported() -> Vec<String> {
    let output = run(std::process::Command::new("nm")
        .arg("-D")
        .arg("--defined-only")
        .arg(support::library()));
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    names.filter(|name| name.starts_with("MPI_File")).map(str::to_string).collect()
}

#[test]
fn calls_on_a_file_that_is_not_selected_pass_through() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let plain = run_every(mpi, scratch, "plain", None);
        let passed = run_every(mpi, scratch, "passed", Some("*.other"));
        assert_eq!(String::from_utf8_lossy(&plain), String::from_utf8_lossy(&passed), "{mpi:?}");
        assert_equal_files(&scratch.join("plain"), &scratch.join("passed"));
        let statistics = statistics(scratch);
        assert_eq!(statistics.files(), Vec::<String>::new());
        assert_all_called(mpi, &statistics);
    }
}

/// Every function that the library exports was called, and therefore intercepted.
fn assert_all_called(mpi: Mpi, statistics: &Statistics) {
    let calls = statistics.calls();
    for name in exported() {
        if mpi == Mpi::OpenMpi && name.ends_with("_c") {
            continue;
        }
        assert!(calls.contains_key(&name), "{mpi:?}: {name} was not intercepted: {calls:?}");
    }
}

#[test]
fn every_call_on_a_logged_file_has_the_result_of_plain_mpi_io() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let plain = run_every(mpi, scratch, "plain", None);
        let logged = run_every(mpi, scratch, "logged", Some("*/logged/*.dat"));
        assert_eq!(String::from_utf8_lossy(&plain), String::from_utf8_lossy(&logged), "{mpi:?}");
        assert_equal_files(&scratch.join("plain"), &scratch.join("logged"));
        let statistics = statistics(scratch);
        let logged = statistics.count("logged/all.dat", "logged_requests");
        let least = if mpi == Mpi::Mpich { 28 } else { 14 };
        assert_eq!(logged, least * RANKS as u64, "{mpi:?}: one write of each kind and process");
        assert_eq!(statistics.count("logged/all.dat", "through_requests"), RANKS as u64);
        assert_all_called(mpi, &statistics);
    }
}

#[test]
fn fortran_programs_are_logged_with_each_of_their_interfaces() {
    for mpi in Mpi::installed() {
        for options in [&["-DMPIF"][..], &[], &["-DF08"]] {
            let scratch = tempfile::tempdir().unwrap();
            let scratch = scratch.path();
            let program = mpi.compile("fortran.F90", options, scratch);
            for name in ["plain", "logged"] {
                std::fs::create_dir(scratch.join(name)).unwrap();
                let mut command = mpi.launch(RANKS, &program);
                command.arg(scratch.join(name).join("f.dat"));
                if name == "logged" {
                    intercept(&mut command, "f.dat", scratch);
                }
                run(&mut command);
            }
            assert_equal_files(&scratch.join("plain"), &scratch.join("logged"));
            let statistics = statistics(scratch);
            let logged = statistics.count("logged/f.dat", "logged_requests");
            assert_eq!(logged, 5 * RANKS as u64, "{mpi:?} {options:?}");
            let read = statistics.count("logged/f.dat", "log_read_bytes");
            assert!(read >= 200 * RANKS as u64, "reads are served from the log: {read}");
        }
    }
}

/// The MPI library learns of a view only when it reads or writes itself, in atomic mode.
#[test]
fn views_are_those_that_the_program_has_set_with_and_without_atomic_mode() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("views.c", &[], scratch);
        let answers = |path: &str, is_logged: bool| {
            let mut command = mpi.launch(RANKS, &program);
            if is_logged {
                intercept(&mut command, "logged", scratch);
            }
            let output = run(command.arg(scratch.join(path))).stdout;
            let mut lines: Vec<String> =
                String::from_utf8(output).unwrap().lines().map(str::to_string).collect();
            lines.sort();
            (lines, std::fs::read(scratch.join(path)).unwrap())
        };
        let (plain, expected) = answers("plain", false);
        assert_eq!(plain.len(), RANKS * 9, "{mpi:?}");
        let (logged, found) = answers("logged", true);
        assert_eq!(plain, logged, "{mpi:?}");
        assert!(expected == found, "{mpi:?}: the files differ");
        let statistics = statistics(scratch);
        for counter in ["logged_requests", "through_requests"] {
            assert!(statistics.count("logged", counter) > 0, "{mpi:?}: {statistics:?}");
        }
    }
}
