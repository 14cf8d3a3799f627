//! An instance that is removed while a client has it.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use forebay_client::{Admin, Fs, Options};
use forebay_store::daemon::{self, Daemon};
use forebay_wire::Errno;
use std::path::Path;
use support::{INSTANCE, Temporary, spec};

#[test]
fn everything_fails_and_nothing_hangs() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::Options::new(temporary.dir("flash"))).unwrap();
    let admin = Admin::connect(daemon.address(), Options::default()).unwrap();
    admin.create_instance(spec(1 << 30)).unwrap();
    let fs = Fs::attach(daemon.address(), INSTANCE, Options::default()).unwrap();
    fs.mkdir_all(Path::new("a/b"), 0o755).unwrap();
    admin.remove_instance(INSTANCE, true).unwrap();
    assert!(fs.mkdir_all(Path::new("a/b/c"), 0o755).is_err());
    // A daemon that has been started again knows nothing of the session either.
    daemon.stop().unwrap();
    let daemon = Daemon::start(daemon::Options::new(temporary.dir("flash"))).unwrap();
    for path in ["a/b/c", "a", ""] {
        let made = fs.mkdir_all(Path::new(path), 0o755).map(|_| ());
        assert_eq!(made, Err(Errno::ENOENT), "{path:?}");
        let looked = fs.resolve(Path::new(path), true).map(|_| ());
        assert_eq!(looked, Err(Errno::ENOENT), "{path:?}");
    }
    drop(daemon);
}
