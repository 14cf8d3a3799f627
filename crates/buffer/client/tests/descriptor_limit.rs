//! A mount whose process runs out of descriptors.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, OpenOptions};
use std::process::Command;
use support::process::{Process, be_the_daemon};
use support::{Temporary, attach, make_instance, mount_at};

#[test]
#[ignore = "runs in another process, as the daemon of the other tests"]
fn daemon_process() {
    be_the_daemon();
}

#[test]
fn limit_of_the_mount_is_reported_as_too_many_open_files() {
    let temporary = Temporary::new();
    let daemon = Process::start(&temporary.dir("flash"));
    make_instance(daemon.local(), 1 << 26);
    let path = temporary.dir("mnt");
    let mounted = mount_at(attach(daemon.local()), &path);
    let used = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limits = getrlimit(Resource::Nofile);
    let low = Rlimit { current: Some(used + 60), ..limits };
    setrlimit(Resource::Nofile, low).unwrap();
    let script = r#"
        ulimit -n 4096
        for number in $(seq 200); do exec {opened}<> "$1/file$number"; done"#;
    let mut opens = Command::new("bash");
    let opens = opens.args(["-c", script, "-"]).arg(&path);
    let unlimited = move || Ok(setrlimit(Resource::Nofile, limits)?);
    // SAFETY: the closure makes one system call.
    let opens = unsafe { std::os::unix::process::CommandExt::pre_exec(opens, unlimited) };
    let output = opens.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("Too many open files"), "{error}");
    assert!(!error.contains("rotocol"), "{error}");
    // The program has ended, and with it its opens.
    let opened = || OpenOptions::new().read(true).write(true).open(path.join("file1"));
    let started = std::time::Instant::now();
    while opened().is_err() {
        assert!(started.elapsed().as_secs() < 20, "descriptors are not given back");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    setrlimit(Resource::Nofile, limits).unwrap();
    support::unmount(mounted);
}
