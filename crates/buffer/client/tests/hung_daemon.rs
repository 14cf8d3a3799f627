//! A storage daemon that is stopped, as one that hangs: calls to it fail in time, and do not hold up
//! others.

use crate::support;
use forebay_client::{ClientOptions, Fs};
use forebay_protocol::{Errno, Ino};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::process::Process;
use support::striped_admin::StripedAdmin;
use support::{INSTANCE, READ_WRITE, STRIPE, Temporary, mount_at, spec};

const TIMEOUT: Duration = Duration::from_secs(6);

fn options() -> ClientOptions {
    ClientOptions { timeout: TIMEOUT, ..ClientOptions::default() }
}

/// Two daemons with an instance.
fn daemons(temporary: &Temporary) -> ([Process; 2], Fs) {
    let start = |number| Process::start(&temporary.dir(&format!("flash{number}")));
    let processes = [start(0), start(1)];
    let nodes: Vec<_> = processes.iter().map(Process::local).collect();
    let admin = StripedAdmin::connect(nodes.clone(), &options()).unwrap();
    admin.create_instance(&spec(64 << 20), STRIPE).unwrap();
    let fs = Fs::attach(nodes, INSTANCE, options()).unwrap();
    (processes, fs)
}

/// The names of directories whose metadata are on the first and on the second node.
fn directories(fs: &Fs) -> [String; 2] {
    let mut found = [None, None];
    for number in 0..40 {
        let name = format!("d{number}");
        let dir = fs.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap().ino;
        found[usize::from(dir.metadata_node().0)].get_or_insert(name);
    }
    found.map(Option::unwrap)
}

#[test]
fn calls_to_a_stopped_daemon_fail_in_time_and_work_again_when_it_continues() {
    let temporary = Temporary::new();
    let ([_first, second], fs) = daemons(&temporary);
    let [_, there] = directories(&fs);
    let dir = fs.lookup(Ino::ROOT, there.as_bytes()).unwrap().ino;
    let file = fs.create(dir, b"f", 0o644, true, READ_WRITE).unwrap().file;
    file.write_all_at(b"data", 0).unwrap();
    second.pause(true);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        // More calls than there are connections, and a sync, which may take any time otherwise.
        let stat = || assert_eq!(fs.get_attr(dir).map(drop), Err(Errno::EIO));
        (0..20).for_each(|_| drop(scope.spawn(stat)));
        scope.spawn(|| assert_eq!(file.fsync(false), Err(Errno::EIO)));
    });
    let passed = begun.elapsed();
    assert!(passed >= TIMEOUT / 2 && passed < 4 * TIMEOUT, "{passed:?}");
    second.pause(false);
    fs.get_attr(dir).unwrap();
    file.fsync(false).unwrap();
}

/// Requests the attributes of a file, also if the kernel has cached them.
fn asks_for_attributes(path: &Path) -> bool {
    statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).is_ok()
}

/// Lets a daemon continue.
struct Continued<'a>(&'a Process);

impl Drop for Continued<'_> {
    fn drop(&mut self) {
        self.0.pause(false);
    }
}

#[test]
fn calls_that_wait_for_a_stopped_daemon_do_not_block_the_rest_of_a_mount() {
    let temporary = Temporary::new();
    let ([_first, second], fs) = daemons(&temporary);
    let [here, there] = directories(&fs);
    let path = temporary.dir("mnt");
    let mount = mount_at(fs, &path);
    let file_in = |dir: &str| path.join(dir).join("f");
    fs::write(file_in(&there), "there").unwrap();
    second.pause(true);
    let (done, waiting) = channel();
    std::thread::scope(|scope| {
        let continued = Continued(&second);
        // More than the mount has threads.
        for _ in 0..24 {
            let (done, path): (_, PathBuf) = (done.clone(), file_in(&there));
            scope.spawn(move || done.send(asks_for_attributes(&path)));
        }
        std::thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        for number in 0..20 {
            let new = path.join(&here).join(format!("new{number}"));
            symlink("target", &new).unwrap();
            assert_eq!(fs::read_link(&new).unwrap(), Path::new("target"));
            fs::rename(&new, path.join(&here).join("renamed")).unwrap();
            assert!(fs::metadata(path.join(&here)).is_ok());
        }
        assert!(begun.elapsed() < TIMEOUT - TIMEOUT / 6, "{:?}", begun.elapsed());
        assert!(waiting.try_recv().is_err(), "the others still wait");
        drop(continued);
    });
    drop(done);
    assert!(waiting.iter().all(|ok| ok), "a daemon that continues in time replies");
    support::unmount(mount);
}
