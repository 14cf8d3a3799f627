//! Application of logs after the close (`forebay_log_flush=background`).

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

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
