//! Random programs (`programs/random.c`): reads and files are what they must be, and the files are equal
//! to those of plain MPI-IO.

use crate::support;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use support::{Mpi, assert_has_files_of, intercept, run, statistics};

/// Processes.
const RANKS: usize = 2;

/// Programs of a test. `FOREBAY_RANDOM_PROGRAMS` sets another number.
fn programs() -> u32 {
    let wanted = std::env::var("FOREBAY_RANDOM_PROGRAMS");
    wanted.ok().and_then(|number| number.parse().ok()).unwrap_or(40)
}

/// Runs the programs, which write into `directory` of `scratch`.
fn command(mpi: Mpi, scratch: &Path, directory: &str) -> std::process::Command {
    std::fs::create_dir(scratch.join(directory)).unwrap();
    let program = mpi.compile("random.c", &[], scratch);
    let mut command = mpi.launch_for(400 + 2 * programs(), RANKS, &program);
    command.arg("0").arg(programs().to_string()).arg(directory).current_dir(scratch);
    command
}

/// The files of plain MPI-IO, without those that are not what they must be. They are MPICH's: in
/// those of Open MPI's module OMPIO preallocation destroys data, and some collective calls never
/// return.
fn plain_files() -> &'static Path {
    static FILES: OnceLock<PathBuf> = OnceLock::new();
    FILES.get_or_init(|| {
        // A temporary directory of a static would never be removed: this one is that of the last run.
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("random-programs");
        if scratch.exists() {
            std::fs::remove_dir_all(&scratch).unwrap();
        }
        std::fs::create_dir_all(&scratch).unwrap();
        run(command(Mpi::Mpich, &scratch, "plain").arg("lenient"));
        let files = scratch.join("plain");
        let right = std::fs::read_dir(&files).unwrap().count();
        assert!(right >= programs() as usize * 9 / 10, "plain MPI-IO writes {right} files");
        files
    })
}

/// Runs the programs with one MPI library, and compares.
fn check(mpi: Mpi, environment: &[(&str, &str)], counter: &str) {
    let installed = Mpi::installed();
    if !installed.contains(&mpi) || !installed.contains(&Mpi::Mpich) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let mut command = command(mpi, scratch, "logged");
    intercept(&mut command, "*/logged/*.dat", scratch);
    run(command.envs(environment.iter().copied()));
    assert_has_files_of(plain_files(), &scratch.join("logged"));
    let (statistics, programs) = (statistics(scratch), programs() as usize);
    let files = statistics.files();
    assert!(files.len() >= programs);
    let having = |counter| files.iter().filter(|file| statistics.count(file, counter) > 0).count();
    assert!(having("logged_requests") > programs / 2, "most files are logged: {statistics:?}");
    assert!(having(counter) > 0, "some files have {counter}: {statistics:?}");
}

#[test]
fn random_programs_on_mpich_leave_the_files_of_plain_mpi_io() {
    check(Mpi::Mpich, &[], "logged_requests");
}

#[test]
fn random_programs_on_open_mpi_leave_the_files_of_plain_mpi_io() {
    check(Mpi::OpenMpi, &[], "logged_requests");
}

#[test]
fn random_programs_whose_logs_are_full_leave_the_files_of_plain_mpi_io() {
    check(Mpi::OpenMpi, &[("FOREBAY_LOG_SIZE", "16384")], "past_log_requests");
}

#[test]
fn random_programs_whose_larger_writes_go_past_the_log_leave_the_files_of_plain_mpi_io() {
    check(Mpi::Mpich, &[("FOREBAY_LOG_DIRECT", "200")], "past_log_requests");
}

#[test]
fn random_programs_with_flushes_in_the_background_leave_the_files_of_plain_mpi_io() {
    let environment = [("FOREBAY_LOG_FLUSH", "background")];
    check(Mpi::OpenMpi, &environment, "background_nanoseconds");
}

#[test]
fn random_programs_whose_processes_share_a_log_leave_the_files_of_plain_mpi_io() {
    check(Mpi::OpenMpi, &[("FOREBAY_LOG_MAPPING", "node")], "logged_requests");
}

#[test]
fn random_programs_that_share_a_full_log_leave_the_files_of_plain_mpi_io() {
    let environment = [("FOREBAY_LOG_MAPPING", "node"), ("FOREBAY_LOG_SIZE", "16384")];
    check(Mpi::Mpich, &environment, "past_log_requests");
}
