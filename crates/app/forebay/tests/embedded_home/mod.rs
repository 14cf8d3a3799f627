//! A working directory with an embedded pool.
#![allow(dead_code, missing_docs, clippy::unwrap_used)] // each test program uses its own part

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub struct Home {
    pub directory: tempfile::TempDir,
}

impl Home {
    /// A working directory with input for the example.
    pub fn new() -> Home {
        assert!(Path::new("/dev/fuse").exists(), "jobs need FUSE, and there is no /dev/fuse here");
        let directory = tempfile::tempdir().unwrap();
        let input = directory.path().join("input");
        fs::create_dir(&input).unwrap();
        let numbers: String = (1..300).map(|n| format!("{}\n", n * 7919 % 1009)).collect();
        fs::write(input.join("a.txt"), numbers).unwrap();
        fs::write(input.join("b.txt"), "5\n6\n7\n").unwrap();
        Home { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.current_dir(self.directory.path()).env_remove("XDG_STATE_HOME");
        command.args(arguments).stdin(Stdio::null());
        command
    }

    pub fn forebay(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Writes a script and runs it.
    pub fn script(&self, name: &str, text: &str) -> Output {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        self.forebay(&["run", "--pool-size", "1GiB", path.to_str().unwrap()])
    }

    /// Waits until a file exists in the instance of a running job.
    pub fn wait_for(&self, what: &str) {
        let start = Instant::now();
        while !self.seen(what) {
            assert!(start.elapsed() < Duration::from_secs(60), "{what} never came");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn seen(&self, what: &str) -> bool {
        let Ok(jobs) = fs::read_dir(self.path(".forebay/jobs")) else {
            return false;
        };
        jobs.flatten().any(|job| job.path().join("ss").join(what).exists())
    }

    /// Asserts that no instance, mount or journal is left.
    pub fn assert_clean(&self) {
        let status = self.forebay(&["status"]);
        let text = text_of(&status);
        assert!(status.status.success() && !text.contains("instance"), "{text}");
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(self.directory.path().to_str().unwrap()), "{mounts}");
        assert_eq!(fs::read_dir(self.path(".forebay/jobs")).unwrap().count(), 0);
        let journals: Vec<_> = fs::read_dir(self.path(".forebay/journals"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(journals.is_empty(), "{journals:?}");
    }
}

pub fn example() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/checkpoint.sh");
    fs::canonicalize(path).unwrap().to_str().unwrap().to_owned()
}

pub fn text_of(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
