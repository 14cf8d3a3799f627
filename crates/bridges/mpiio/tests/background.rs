//! Application of logs after the close (`forebay_log_flush=background`).

use crate::support;
use support::{Mpi, intercept, run, statistics};

/// Processes of the tests.
const RANKS: usize = 2;

#[test]
fn threads_do_not_write_before_the_library_has_closed_the_file() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path();
        let program = mpi.compile("background.c", &[], scratch);
        let watch = mpi.compile("file_close.c", &["-shared", "-fPIC", "-ldl"], scratch);
        let file = scratch.join("file.dat");
        let mut command = mpi.launch(RANKS, &program);
        intercept(command.arg(&file), "*/file.dat", scratch);
        let preloaded = format!("{}:{}", support::library().display(), watch.display());
        command
            .env("LD_PRELOAD", preloaded)
            .env("WATCHED_FILE", &file)
            .env("FOREBAY_LOG_FLUSH", "background");
        let output = String::from_utf8(run(&mut command).stdout).unwrap();
        assert_eq!(output, "size 0\n".repeat(RANKS), "{mpi:?}");
        assert!(statistics(scratch).count("file.dat", "background_nanoseconds") > 0);
        let written = std::fs::read(&file).unwrap();
        assert_eq!(written, [[b'a'; 1 << 20], [b'b'; 1 << 20]].concat(), "{mpi:?}");
    }
}

/// Runs the program, which sets the size of its file, with flushes in the background; returns the file
/// and the nanoseconds of flushes in the foreground.
fn run_with_size(mpi: Mpi, size: usize) -> (Vec<u8>, u64) {
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let program = mpi.compile("background.c", &[], scratch);
    let file = scratch.join("file.dat");
    let mut command = mpi.launch(RANKS, &program);
    intercept(command.arg(&file).arg(size.to_string()), "*/file.dat", scratch);
    run(command.env("FOREBAY_LOG_FLUSH", "background"));
    let statistics = statistics(scratch);
    assert!(statistics.count("file.dat", "logged_requests") > 0);
    (std::fs::read(&file).unwrap(), statistics.count("file.dat", "flush_nanoseconds"))
}

#[test]
fn size_behind_the_logged_data_is_set_without_a_flush() {
    let written = [[b'a'; 1 << 20], [b'b'; 1 << 20]].concat();
    for mpi in Mpi::installed() {
        for more in [0, 1 << 20] {
            let (file, flushed) = run_with_size(mpi, (2 << 20) + more);
            assert!(file == [written.as_slice(), &vec![0; more]].concat(), "{mpi:?}, {more} more");
            assert_eq!(flushed, 0, "{mpi:?}: the log is applied before the close");
        }
    }
}

#[test]
fn size_that_cuts_logged_data_cuts_them() {
    for mpi in Mpi::installed() {
        let (file, _) = run_with_size(mpi, 1 << 20);
        assert!(file == [b'a'; 1 << 20], "{mpi:?}: {} bytes", file.len());
    }
}
