//! Threads of a process that use files at the same time (`programs/threads.c`).

use crate::support;
use support::{Mpi, intercept, run, statistics};

#[test]
fn thread_in_a_collective_call_does_not_keep_another_from_its_files() {
    for mpi in Mpi::installed() {
        for case in ["open", "write"] {
            let scratch = tempfile::tempdir().unwrap();
            let scratch = scratch.path();
            let program = mpi.compile("threads.c", &["-pthread"], scratch);
            let mut command = mpi.launch_for(60, 2, &program);
            intercept(command.arg(case).arg(scratch.join("data")), "data*", scratch);
            run(&mut command);
            let written = std::fs::read(scratch.join("data")).unwrap();
            assert!(written.starts_with(b"aaaaaaaabbbbbbbb"), "{mpi:?}, {case}");
            if case == "write" {
                assert!(written[16..] == [[0; 84].as_slice(), b"xxxxxxxx"].concat(), "{mpi:?}");
            } else {
                assert_eq!(std::fs::read(scratch.join("data.other")).unwrap(), b"oooooooo");
            }
            assert!(statistics(scratch).count("data", "logged_requests") >= 2);
        }
    }
}
