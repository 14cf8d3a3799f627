//! Random programs (`programs/random.c`) of 2 to 4 processes: reads and files are what they must be, and
//! the files are equal to those of plain MPI-IO.

use crate::support;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use support::{Mpi, assert_has_files_of, intercept, run, statistics};

/// Numbers of processes, and what part of the programs has them: one divided by this number. The
/// processes of MPICH wait for messages in loops, so that more than there are cores take long.
const RANKS: [(usize, u32); 3] = [(2, 2), (3, 4), (4, 4)];

/// Programs of a test. `FOREBAY_RANDOM_PROGRAMS` sets another number.
fn programs() -> u32 {
    let wanted = std::env::var("FOREBAY_RANDOM_PROGRAMS");
    wanted.ok().and_then(|number| number.parse().ok()).unwrap_or(40)
}

/// Commands that run the programs, which write into `directory` of `scratch`, and the number of programs
/// of each.
fn commands(mpi: Mpi, scratch: &Path, directory: &str) -> Vec<(std::process::Command, u32)> {
    std::fs::create_dir(scratch.join(directory)).unwrap();
    let program = mpi.compile("random.c", &[], scratch);
    let mut first = 0;
    let command = |(ranks, part): (usize, u32)| {
        let (count, start) = ((programs() / part).max(1), first);
        first += count;
        let mut command = mpi.launch_for(400 + 4 * count, ranks, &program);
        command.args([start.to_string(), first.to_string()]).arg(directory).current_dir(scratch);
        (command, count)
    };
    RANKS.into_iter().map(command).collect()
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
        for (mut command, _) in commands(Mpi::Mpich, &scratch, "plain") {
            run(command.arg("lenient"));
        }
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
    for (mut command, programs) in commands(mpi, scratch, "logged") {
        intercept(&mut command, "*/logged/*.dat", scratch);
        run(command.envs(environment.iter().copied()));
        let (statistics, programs) = (statistics(scratch), programs as usize);
        let files = statistics.files();
        assert!(files.len() >= programs);
        let having =
            |counter| files.iter().filter(|file| statistics.count(file, counter) > 0).count();
        assert!(having("logged_requests") > programs / 2, "most files are logged: {statistics:?}");
        assert!(having(counter) > 0, "some files have {counter}: {statistics:?}");
    }
    assert_has_files_of(plain_files(), &scratch.join("logged"));
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
