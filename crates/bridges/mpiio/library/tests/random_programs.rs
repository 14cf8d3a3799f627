//! Random programs (`programs/random.c`): what they read is what they wrote, and their files are equal
//! to those of plain MPI-IO.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::Path;
use support::{Mpi, assert_equal_files, intercept, run, statistics};

/// Programs of a test. `FOREBAY_RANDOM_PROGRAMS` sets another number.
fn programs(default: u32) -> u32 {
    let wanted = std::env::var("FOREBAY_RANDOM_PROGRAMS");
    wanted.ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// The files of plain MPI-IO. MPICH's are those that MPI demands; Open MPI's own module OMPIO has
/// defects (preallocation destroys data, some collective calls never return).
fn plain_files(scratch: &Path, ranks: usize, count: u32) {
    std::fs::create_dir(scratch.join("plain")).unwrap();
    let program = Mpi::Mpich.compile("random.c", &[], scratch);
    run(Mpi::Mpich
        .launch(ranks, &program)
        .arg("0")
        .arg(count.to_string())
        .arg("plain")
        .arg("lenient")
        .current_dir(scratch));
}

/// Runs the programs with one MPI library, and compares.
fn check(mpi: Mpi, ranks: usize, count: u32, environment: &[(&str, &str)], counter: &str) {
    let installed = Mpi::installed();
    if !installed.contains(&mpi) || !installed.contains(&Mpi::Mpich) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    plain_files(scratch, ranks, count);
    std::fs::create_dir(scratch.join("logged")).unwrap();
    let program = mpi.compile("random.c", &[], scratch);
    let mut command = mpi.launch(ranks, &program);
    command.arg("0").arg(count.to_string()).arg("logged").current_dir(scratch);
    intercept(&mut command, "*/logged/*.dat", scratch);
    command.envs(environment.iter().copied());
    run(&mut command);
    assert_equal_files(&scratch.join("plain"), &scratch.join("logged"));
    let statistics = statistics(scratch);
    let files = statistics.files();
    assert!(files.len() >= count as usize);
    let counted = files.iter().filter(|file| statistics.count(file, counter) > 0).count();
    assert!(counted > count as usize / 2, "most programs have {counter}: {statistics:?}");
}

#[test]
fn random_programs_on_mpich_leave_the_files_of_plain_mpi_io() {
    check(Mpi::Mpich, 2, programs(60), &[], "logged_requests");
}

#[test]
fn random_programs_on_open_mpi_leave_the_files_of_plain_mpi_io() {
    check(Mpi::OpenMpi, 3, programs(60), &[], "logged_requests");
}

#[test]
fn random_programs_whose_logs_are_full_leave_the_files_of_plain_mpi_io() {
    check(Mpi::OpenMpi, 2, programs(40), &[("FOREBAY_LOG_SIZE", "16384")], "logged_requests");
}

#[test]
fn random_programs_with_flushes_in_the_background_leave_the_files_of_plain_mpi_io() {
    let environment = [("FOREBAY_LOG_FLUSH", "background")];
    check(Mpi::OpenMpi, 2, programs(40), &environment, "background_nanoseconds");
}
