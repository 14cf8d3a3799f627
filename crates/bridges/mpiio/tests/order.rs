//! The order of writes of different processes, handles and names of a file (`programs/order.c`).

use crate::support;
use std::path::Path;
use support::{Mpi, Statistics, intercept, run, statistics};

/// Processes.
const RANKS: usize = 2;

/// Runs a case of `order.c` with a small log and returns the file that it wrote.
fn file_of(mpi: Mpi, case: &str, scratch: &Path) -> (Vec<u8>, Statistics) {
    let program = mpi.compile("order.c", &[], scratch);
    let mut command = mpi.launch(RANKS, &program);
    intercept(&mut command, "*data*", scratch);
    command.env("FOREBAY_LOG_SIZE", "32768").env("FOREBAY_LOG_DIRECT", "4096");
    let path = scratch.join("data");
    run(command.arg(case).arg(&path));
    (std::fs::read(path).unwrap(), statistics(scratch))
}

#[test]
fn full_log_does_not_replace_what_another_process_wrote_after_a_collective_call() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, statistics) = file_of(mpi, "early", scratch.path());
        assert!(file[..4096].iter().all(|byte| *byte == b'b'), "{mpi:?}: {:?}", file[0] as char);
        assert!(
            file[2 << 20..].iter().all(|byte| *byte == b'd') && file.len() == (2 << 20) + 40_000
        );
        assert!(statistics.count("data", "logged_requests") > 10);
        assert!(statistics.count("data", "past_log_requests") > 1, "the log was full");
    }
}

#[test]
fn collective_calls_that_fail_on_one_rank_do_not_change_the_order_of_later_writes() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, statistics) = file_of(mpi, "error", scratch.path());
        assert!(file[..100].iter().all(|byte| *byte == b'b'), "{mpi:?}: {:?}", file[0] as char);
        assert!(statistics.count("data", "logged_requests") > 40);
    }
}

#[test]
fn file_that_is_opened_under_two_names_has_one_order_of_writes() {
    for mpi in Mpi::installed() {
        for is_symbolic in [true, false] {
            let scratch = tempfile::tempdir().unwrap();
            let (data, link) = (scratch.path().join("data"), scratch.path().join("data.link"));
            std::fs::write(&data, "").unwrap();
            if is_symbolic {
                std::os::unix::fs::symlink(&data, &link).unwrap();
            } else {
                std::fs::hard_link(&data, &link).unwrap();
            }
            let (file, statistics) = file_of(mpi, "names", scratch.path());
            let expected = [[b'e'; 10].as_slice(), &[b'b'; 40], &[b'a'; 50]].concat();
            assert!(file == expected.repeat(RANKS), "{mpi:?}: {file:?}");
            let many = std::fs::read(scratch.path().join("data.many")).unwrap();
            let expected: Vec<u8> = (0..12).flat_map(|i| [b'a' + i; 200]).collect();
            let found: Vec<u8> = many.chunks(1000).flat_map(|part| part[..200].to_vec()).collect();
            assert!(found == expected, "{mpi:?}: the files of many handles");
            assert!(statistics.count("data.many", "logged_requests") == 24);
        }
    }
}

#[test]
fn collective_writes_empty_the_logs_before_one_is_full() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("killed.c", &[], scratch);
        let (plain, logged) = (scratch.join("plain"), scratch.join("logged"));
        run(mpi.launch(RANKS, &program).arg(&plain).arg("end"));
        let mut command = mpi.launch(RANKS, &program);
        intercept(&mut command, "logged", scratch);
        command.env("FOREBAY_LOG_SIZE", (128 << 10).to_string());
        run(command.arg(&logged).arg("end"));
        assert!(std::fs::read(&plain).unwrap() == std::fs::read(&logged).unwrap(), "{mpi:?}");
        let statistics = statistics(scratch);
        let count = |counter| statistics.count("logged", counter);
        assert_eq!(count("logged_requests"), 267 * RANKS as u64, "{mpi:?}");
        assert_eq!(count("past_log_requests"), 0, "{mpi:?}");
        assert!(count("flushes") > 2 * RANKS as u64, "{mpi:?}: {statistics:?}");
    }
}
