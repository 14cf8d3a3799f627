//! A client in the process of the storage daemon, whose own threads carry out its calls.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use forebay_protocol::Ino;
use forebay_store::daemon::{self, Daemon};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::{READ_WRITE, Temporary, as_user, attach, make_instance, users_pool};

/// How often the threads of event loops in this process have gone to sleep.
fn sleeps_of_event_loops() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let tasks = tasks.map(|task| task.unwrap().path());
    let is_event_loop = |task: &std::path::PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "forebay-store")
    };
    let sleeps = |task: std::path::PathBuf| -> u64 {
        let status = fs::read_to_string(task.join("status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    };
    tasks.filter(is_event_loop).map(sleeps).sum()
}

fn assert_owned_by_root(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().uid(), 0, "{}", entry.path().display());
        if entry.file_type().unwrap().is_dir() {
            assert_owned_by_root(&entry.path());
        }
    }
}

/// One test, since the threads of others would be counted.
#[test]
fn threads_of_the_client_carry_out_its_calls() {
    const FILES: u64 = 500;
    let temporary = Temporary::new();
    let options = || daemon::StoreOptions::new(temporary.dir("flash"));
    let daemon = Daemon::start(options()).unwrap();
    make_instance(daemon.address(), 64 << 20);
    let client = attach(daemon.address());
    let before = sleeps_of_event_loops();
    for number in 0..FILES {
        let name = format!("file{number}");
        drop(client.create(Ino::ROOT, name.as_bytes(), 0o644, true, READ_WRITE).unwrap());
        client.lookup(Ino::ROOT, name.as_bytes()).unwrap();
    }
    // Ticks and syncs of the log wake the thread, calls do not.
    let slept = sleeps_of_event_loops() - before;
    assert!(slept < FILES / 4, "{slept} sleeps for {} calls", 2 * FILES);

    // After a restart the client finds the next daemon.
    daemon.stop().unwrap();
    let daemon = Daemon::start(options()).unwrap();
    client.lookup(Ino::ROOT, b"file1").unwrap();
    let before = sleeps_of_event_loops();
    for number in 0..FILES {
        client.lookup(Ino::ROOT, format!("file{number}").as_bytes()).unwrap();
    }
    let slept = sleeps_of_event_loops() - before;
    assert!(slept < FILES / 4, "{slept} sleeps for {FILES} calls");
    drop(client);
    daemon.stop().unwrap();

    // A thread of another user leaves its calls to the daemon, which alone may use its directory.
    let daemon = users_pool(daemon::StoreOptions::new(temporary.dir("users")), 0o777);
    let before = sleeps_of_event_loops();
    as_user(1000, 2000, || {
        let client = attach(daemon.address());
        for number in 0..FILES {
            let name = format!("file{number}");
            let opened = client.create(Ino::ROOT, name.as_bytes(), 0o644, true, READ_WRITE);
            // The instance has fewer inodes.
            let Ok(opened) = opened else { break };
            opened.file.write_all_at(b"data", 0).unwrap();
            assert_eq!(opened.attr.uid, 1000);
        }
    });
    assert!(sleeps_of_event_loops() > before);
    assert_owned_by_root(&temporary.dir("users"));
    daemon.stop().unwrap();
}
