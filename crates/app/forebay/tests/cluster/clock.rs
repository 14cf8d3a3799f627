//! The realtime clock of single daemons, which tests set.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A clock of daemons that are started with it.
pub struct TestClock {
    library: PathBuf,
    /// Seconds by which it is ahead.
    offset: PathBuf,
}

impl TestClock {
    /// A clock that is right, with its files in a directory.
    pub fn new(directory: &Path, name: &str) -> TestClock {
        let library = directory.join("clock.so");
        if !library.exists() {
            let source = format!("{}/tests/cluster/clock.c", env!("CARGO_MANIFEST_DIR"));
            let mut compile = Command::new("cc");
            compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
            assert!(compile.status().unwrap().success());
        }
        let clock = TestClock { library, offset: directory.join(format!("clock-{name}")) };
        clock.set(0);
        clock
    }

    /// Sets it this many seconds ahead of the right time.
    pub fn set(&self, seconds: i64) {
        // Not emptied: daemons have it in memory.
        let mut options = fs::File::options();
        let options = options.create(true).write(true).truncate(false);
        let file = options.open(&self.offset).unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// Has a process use it.
    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("CLOCK_OFFSET", &self.offset);
    }
}
