//! The patterns of applications (`programs/codes.c`): their files are those of plain MPI-IO.

use crate::support;
use support::{Mpi, assert_equal_files, intercept, run, statistics};

/// Processes.
const RANKS: usize = 4;

/// Runs a case with and without the library, and compares. All files must be logged.
fn check(case: &str) {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("codes.c", &[], scratch);
        for name in ["plain", "logged"] {
            std::fs::create_dir(scratch.join(name)).unwrap();
            let mut command = mpi.launch(RANKS, &program);
            command.arg(case).arg(scratch.join(name).join("data"));
            if name == "logged" {
                intercept(&mut command, "*/logged/data*", scratch);
            }
            run(&mut command);
        }
        assert_equal_files(&scratch.join("plain"), &scratch.join("logged"));
        let statistics = statistics(scratch);
        for entry in std::fs::read_dir(scratch.join("logged")).unwrap() {
            let path = entry.unwrap().path();
            let path = path.to_str().unwrap();
            assert!(statistics.count(path, "logged_requests") > 0, "{mpi:?}, {path}");
            assert_eq!(statistics.count(path, "past_log_requests"), 0, "{mpi:?}, {path}");
        }
    }
}

#[test]
fn flash_writes_the_same_file() {
    check("flash");
}

#[test]
fn btio_writes_the_same_file() {
    check("btio");
}

#[test]
fn wrf_writes_the_same_file() {
    check("wrf");
}

#[test]
fn ior_writes_the_same_files_in_all_access_modes() {
    check("ior");
}
