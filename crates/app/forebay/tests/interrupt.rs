//! Interrupted simulations leave no files.

use crate::forebay;
use forebay::WorkDir;
use std::process::Command;
use std::time::{Duration, Instant};

/// Sends a signal to a run of some minutes after it has started to write; returns the exit code and
/// the files left.
fn stopped_by(signal: &str, line: &str) -> (Option<i32>, Vec<String>) {
    let dir = WorkDir::new();
    let child = dir.spawn(line);
    let start = Instant::now();
    while !dir.list_files().iter().any(|f| f.contains(".partial-")) {
        assert!(start.elapsed() < Duration::from_secs(30), "timeout");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    let kill = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    (output.status.code(), dir.list_files())
}

const LONG: &str = "sim traffic --machine theta --messages 1000000";

#[test]
fn sigint_exits_with_130_and_leaves_no_files() {
    let (code, files) = stopped_by("INT", &format!("{LONG} --out here --json here.json"));
    assert_eq!(code, Some(130));
    assert_eq!(files, Vec::<String>::new());
}

#[test]
fn sigterm_removes_the_default_run_directory() {
    let (code, files) = stopped_by("TERM", LONG);
    assert_eq!(code, Some(143));
    assert_eq!(files, Vec::<String>::new());
}
