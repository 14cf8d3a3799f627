//! Removal of an instance in use, and of an open file whose space is needed.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use forebay_client::{Admin, ClientOptions, Fs};
use forebay_protocol::Errno;
use forebay_protocol::message::OpenMode;
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
