//! Removal of an instance in use, and of an open file whose space is needed.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_protocol::message::OpenMode;
use forebay_protocol::{Errno, Ino};
use forebay_store::daemon::{self, Daemon};
use std::path::Path;
use std::time::Duration;
use support::{INSTANCE, Temporary, attach, make_instance, spec};

#[test]
fn requests_to_a_removed_instance_fail_without_hanging() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.create_instance(spec(1 << 30)).unwrap();
    let fs = Fs::attach(daemon.address(), INSTANCE, ClientOptions::default()).unwrap();
    fs.mkdir_all(Path::new("a/b"), 0o755).unwrap();
    admin.remove_instance(INSTANCE, true).unwrap();
    assert!(fs.mkdir_all(Path::new("a/b/c"), 0o755).is_err());
    // A restarted daemon does not know the session either.
    daemon.stop().unwrap();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    for path in ["a/b/c", "a", ""] {
        let created = fs.mkdir_all(Path::new(path), 0o755).map(|_| ());
        assert_eq!(created, Err(Errno::ENOENT), "{path:?}");
        let looked = fs.resolve(Path::new(path), true).map(|_| ());
        assert_eq!(looked, Err(Errno::ENOENT), "{path:?}");
    }
    drop(daemon);
}

/// As after `head -c 99G /dev/zero >big; rm big; echo fits >small`: the kernel reports the close of `big`
/// to a mount when the next program is already writing.
#[test]
fn write_waits_for_space_of_a_removed_file_that_is_closed_later() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    make_instance(daemon.address(), 8 << 20);
    let fs = attach(daemon.address());
    let mode = OpenMode { write: true, ..OpenMode::default() };
    let big = fs.create_path(Path::new("big"), 0o644, mode).unwrap().file;
    let full = big.write_all_at(&vec![1; 9 << 20], 0);
    assert_eq!(full, Err(Errno::ENOSPC));
    fs.unlink_path(Path::new("big")).unwrap();
    let small = fs.create_path(Path::new("small"), 0o644, mode);
    let small = small.unwrap().file;
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(big);
    });
    small.write_all_at(&vec![2; 4 << 20], 0).unwrap();
    closing.join().unwrap();
}

/// After a restart, a client that does not come back may have removed files open, for the time of a
/// lease.
#[test]
fn write_after_a_restart_waits_for_space_that_only_an_absent_client_may_use() {
    let temporary = Temporary::new();
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.limits.lease_ns = 3_000_000_000;
    let first = Daemon::start(options.clone()).unwrap();
    make_instance(first.address(), 8 << 20);
    // This client never notices the restart.
    let absent = attach(first.address());
    absent.get_attr(Ino::ROOT).unwrap();
    let fs = attach(first.address());
    let mode = OpenMode { write: true, ..OpenMode::default() };
    let big = fs.create_path(Path::new("big"), 0o644, mode).unwrap().file;
    big.write_all_at(&vec![1; 6 << 20], 0).unwrap();
    drop(big);
    first.stop().unwrap();
    let second = Daemon::start(options).unwrap();
    fs.unlink_path(Path::new("big")).unwrap();
    let small = fs.create_path(Path::new("small"), 0o644, mode).unwrap().file;
    small.write_all_at(&vec![2; 4 << 20], 0).unwrap();
    // What does not fit is refused.
    assert_eq!(small.write_all_at(&vec![3; 5 << 20], 4 << 20), Err(Errno::ENOSPC));
    drop((absent, small, fs, second));
}
