//! Several handles of one file (`programs/handles.c`): each sees what MPI makes visible, and the file
//! is that of plain MPI-IO.

use crate::support;
use forebay_mpiio_log::{ReplayOptions, replay};
use support::{Mpi, intercept, run, statistics};

/// The times at which logs are applied.
const FLUSHES: [&str; 3] = ["close", "background", "stage-out"];

/// Runs a case plain and logged, with logs that are applied at one of these times, and compares the
/// files. With `stage-out` logs that are left are replayed. Returns what the programs have printed.
fn check(case: &str, ranks: usize, flushes: &[&str]) -> String {
    let mut printed = Vec::new();
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("handles.c", &[], scratch);
        let plain = scratch.join("plain");
        run(mpi.launch(ranks, &program).arg(case).arg(&plain));
        let expected = std::fs::read(&plain).unwrap();
        for flush in flushes {
            let logged = scratch.join(format!("{flush}.data"));
            let mut command = mpi.launch(ranks, &program);
            intercept(command.arg(case).arg(&logged), "*.data", scratch);
            let output = run(command.env("FOREBAY_LOG_FLUSH", flush));
            printed.extend([output.stdout, output.stderr].concat());
            replay(&[scratch.join("logs")], &ReplayOptions::default()).unwrap();
            let found = std::fs::read(&logged).unwrap();
            let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert!(
                found == expected,
                "{mpi:?}, {case}, {flush}: {} bytes instead of {}, first difference at {first:?}",
                found.len(),
                expected.len()
            );
            let name = format!("{flush}.data");
            assert!(statistics(scratch).count(&name, "logged_requests") >= ranks as u64);
        }
    }
    String::from_utf8(printed).unwrap()
}

#[test]
fn synced_data_is_visible_to_other_processes_that_open_the_file_again() {
    for case in ["split", "split-read", "reversed"] {
        check(case, 4, &FLUSHES);
    }
}

#[test]
fn data_of_a_closed_handle_is_visible_through_another_and_stays_below_its_writes() {
    for case in ["first-closed", "first-closed-alone", "second-closed"] {
        check(case, 2, &FLUSHES);
    }
}

#[test]
fn handle_for_reading_sees_what_is_synced_or_closed_whichever_was_opened_first() {
    for case in ["reader-before", "reader-after"] {
        check(case, 2, &FLUSHES);
    }
}

#[test]
fn calls_on_a_handle_that_a_process_has_alone_have_the_results_of_plain_mpi_io() {
    check("alone", 2, &["close"]);
}

#[test]
fn file_that_is_open_when_mpi_ends_has_its_data() {
    let printed = check("open-at-end", 2, &FLUSHES);
    let reports = printed.matches("is not closed before MPI_Finalize").count();
    assert_eq!(reports, FLUSHES.len() * Mpi::installed().len(), "{printed}");
}

#[test]
fn error_handler_of_the_program_sees_the_logged_data() {
    let printed = check("error", 2, &["close"]);
    assert_eq!(printed.matches("handled").count(), 2 * Mpi::installed().len(), "{printed}");
}
