//! Programs that reach the limits of their logs.

use crate::support;
use std::path::Path;
use std::process::Command;
use support::{Mpi, intercept, run, statistics};

/// Processes of the tests.
const RANKS: usize = 2;

/// A run of the program, which logs its file.
fn program(mpi: Mpi, scratch: &Path, case: &str, count: u64) -> Command {
    let program = mpi.compile("limits.c", &[], scratch);
    let mut command = mpi.launch_for(200, RANKS, &program);
    intercept(&mut command, "*/file.dat", scratch);
    command.arg(scratch.join("file.dat")).arg(case).arg(count.to_string());
    command
}

/// What the program writes in the case `many`, in numbers of 8 bytes.
fn many(count: u64) -> Vec<u64> {
    let end = u64::from_le_bytes(*b"the end\0");
    let mut numbers = vec![0; (count as usize - 1) * RANKS + 1];
    for i in 1..count {
        numbers[i as usize * RANKS] = if i % 1000 == 1 { end } else { i };
    }
    numbers[..RANKS].fill(end);
    numbers
}

#[test]
fn more_writes_than_the_log_has_entries_are_as_fast_as_those_before() {
    // Those behind the last entry that fits go past the log.
    let count = (1 << 20) + 20_000;
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let output = run(&mut program(mpi, scratch.path(), "many", count));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{mpi:?}");
        let statistics = statistics(scratch.path());
        assert!(statistics.count("file.dat", "logged_requests") >= 1 << 20, "{mpi:?}");
        assert!(statistics.count("file.dat", "past_log_requests") > 20_000, "{mpi:?}");
        check_many(mpi, scratch.path(), count);
    }
}

#[test]
fn any_number_of_writes_may_go_past_a_full_log() {
    let count = (1 << 20) + 20_000;
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = program(mpi, scratch.path(), "many", count);
        let output = run(command.env("FOREBAY_LOG_SIZE", "65536"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{mpi:?}");
        let past_log = statistics(scratch.path()).count("file.dat", "past_log_requests");
        assert!(past_log > 1 << 20, "{mpi:?}: {past_log}");
        check_many(mpi, scratch.path(), count);
    }
}

fn check_many(mpi: Mpi, scratch: &Path, count: u64) {
    let written = std::fs::read(scratch.join("file.dat")).unwrap();
    let expected: Vec<u8> = many(count).into_iter().flat_map(u64::to_le_bytes).collect();
    assert!(written == expected, "{mpi:?}: {} bytes", written.len());
}

#[test]
fn memory_of_a_read_does_not_grow_with_its_pieces() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let output = run(&mut program(mpi, scratch.path(), "fine", 16));
        let output = String::from_utf8(output.stdout).unwrap();
        let grown = output.strip_prefix("grew by ").and_then(|rest| rest.split_once(" MiB\n"));
        let (grown, rest) = grown.unwrap_or_else(|| panic!("{mpi:?}: {output}"));
        assert_eq!(rest, "", "{mpi:?}");
        assert!(grown.parse::<u64>().unwrap() < 64, "{mpi:?}: {grown} MiB");
        assert!(statistics(scratch.path()).count("file.dat", "log_read_bytes") >= 2 * (16 << 20));
    }
}
