//! Small files that programs create, write and close through a mount: what that costs in requests, and what
//! space it takes.
//!
//! Needs root, because the kernel checks permissions for all users.

use crate::support;
use forebay_client::{Admin, ClientOptions, MountOptions, mount};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use support::process::Process;
use support::{Mounted, Temporary, attach, make_instance};

const TIMEOUT: Duration = Duration::from_secs(10);
const LENGTH: usize = 3901;

fn options() -> MountOptions {
    MountOptions { kernel_permissions: true, ..MountOptions::default() }
}

/// The requests of a kind that the daemon has answered.
fn count(mounted: &Mounted, kind: &str) -> u64 {
    let report = mounted.pool.daemons[0].stats().collect_report(TIMEOUT);
    report.requests.get(kind).map_or(0, |stats| stats.latency.count())
}

/// Waits until the number of requests of a kind is at least `expected`, and returns it.
fn wait_for(mounted: &Mounted, kind: &str, expected: u64) -> u64 {
    let begun = Instant::now();
    loop {
        let now = count(mounted, kind);
        if now >= expected || begun.elapsed() > TIMEOUT {
            return now;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn contents(number: usize) -> Vec<u8> {
    vec![number as u8; LENGTH]
}

fn write_new(dir: &Path, number: usize) -> io::Result<()> {
    File::create_new(dir.join(format!("f{number}")))?.write_all(&contents(number))
}

#[test]
fn closes_of_written_files_are_collected() {
    let mounted = Mounted::with_options(1, 1 << 30, &options());
    let dir = mounted.path.join("dir");
    fs::create_dir(&dir).unwrap();
    let create = |number: usize| {
        let file = File::create_new(dir.join(format!("f{number}"))).unwrap();
        file.write_all_at(&contents(number), 0).unwrap();
        file
    };
    let files: Vec<File> = (0..400).map(create).collect();
    drop(files);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(count(&mounted, "close"), 0, "files were closed by requests of their own");
    let collected = count(&mounted, "close_all");
    assert!((1..300).contains(&collected), "{collected} requests closed 400 files");
    // Nothing is reserved any more, also for files that were prepared.
    std::thread::sleep(Duration::from_millis(1500));
    let admin =
        Admin::connect(mounted.pool.daemons[0].address(), ClientOptions::default()).unwrap();
    let used = admin.instances().unwrap()[0].used;
    assert!(used < 8 << 20, "{used} bytes are in use");
}

#[test]
fn space_of_new_files_is_requested_with_them_as_long_as_they_are_written() {
    // Others are prepared with their space.
    let synchronous = MountOptions { synchronous: true, ..options() };
    let mounted = Mounted::with_options(1, 1 << 30, &synchronous);
    let create = |name: &str| File::create_new(mounted.path.join(name)).unwrap();
    let first = create("first");
    assert_eq!(count(&mounted, "reserve_space"), 0, "no file was written before");
    first.write_all_at(&contents(1), 0).unwrap();
    drop(first);
    assert_eq!(count(&mounted, "reserve_space"), 1);
    // The connection for it is made with another one.
    create("second").write_all_at(&contents(2), 0).unwrap();
    assert_eq!(count(&mounted, "reserve_space"), 2);
    // Requested before it is written.
    let third = create("third");
    assert_eq!(wait_for(&mounted, "reserve_space", 3), 3);
    third.write_all_at(&contents(3), 0).unwrap();
    assert_eq!(fs::read(mounted.path.join("third")).unwrap(), contents(3));
    assert_eq!(count(&mounted, "reserve_space"), 3, "one request is enough for it");
    // Files that stay open without being written take connections and space of a few only.
    let kept: Vec<File> = (0..40).map(|number| create(&format!("kept{number}"))).collect();
    std::thread::sleep(Duration::from_millis(200));
    let early = count(&mounted, "reserve_space") - 3;
    assert!((1..=4).contains(&early), "{early} requests for space of 40 files");
    for (number, file) in kept.iter().enumerate() {
        file.write_all_at(&contents(number), 0).unwrap();
    }
    drop(kept);
    for number in 0..40 {
        let path = mounted.path.join(format!("kept{number}"));
        assert_eq!(fs::read(path).unwrap(), contents(number));
    }
    // A file that is not written ends it, from the next one on.
    drop(create("empty"));
    let closes = count(&mounted, "close_all");
    drop(create("also empty"));
    assert!(wait_for(&mounted, "close_all", closes + 1) > closes);
    let before = count(&mounted, "reserve_space");
    for number in 0..10 {
        drop(create(&format!("empty{number}")));
    }
    assert_eq!(count(&mounted, "reserve_space"), before);
}

#[test]
fn names_of_a_directory_are_known_while_its_files_are_created_and_removed() {
    let mounted = Mounted::with_options(1, 1 << 30, &options());
    let dir = mounted.path.join("dir");
    fs::create_dir(&dir).unwrap();
    let path = |number: usize| dir.join(format!("f{number}"));
    (0..600).for_each(|number| write_new(&dir, number).unwrap());
    // What the kernel knows of them has expired.
    std::thread::sleep(Duration::from_millis(1200));
    let removals = || count(&mounted, "unlink") + count(&mounted, "delegated");
    let before = (count(&mounted, "lookup"), removals());
    (0..600).for_each(|number| fs::remove_file(path(number)).unwrap());
    let lookups = count(&mounted, "lookup") - before.0;
    File::open(&dir).unwrap().sync_all().unwrap();
    assert_eq!(removals() - before.1, 600);
    // Some before the directory is read, which is repeated each second.
    assert!(lookups <= 200, "{lookups} requests for names of 600 files that were removed");
    for number in 0..600 {
        let error = fs::metadata(path(number)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
    write_new(&dir, 7).unwrap();
    assert_eq!(fs::read(path(7)).unwrap(), contents(7));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn small_instance_is_filled_by_small_files_and_reservations_of_others_are_returned() {
    let capacity = 12 << 20;
    let mounted = Mounted::with_options(1, capacity, &options());
    let dir = mounted.path.join("dir");
    fs::create_dir(&dir).unwrap();
    write_new(&dir, 0).unwrap();
    // Each of these has a reservation.
    let kept: Vec<File> =
        (0..4).map(|number| File::create_new(dir.join(format!("kept{number}"))).unwrap()).collect();
    let mut written = 1;
    while written < 1 << 16 {
        match write_new(&dir, written) {
            Ok(()) => written += 1,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                break;
            }
        }
    }
    let blocks = written as u64 * 4096;
    assert!(blocks > capacity / 2, "only {written} files were written");
    for number in 0..written {
        assert_eq!(fs::read(dir.join(format!("f{number}"))).unwrap(), contents(number));
    }
    // What is left cannot be much: not even the reservations of the others.
    let left = rustix::fs::statvfs(&mounted.path).unwrap();
    let left = left.f_bavail * left.f_frsize;
    assert!(left < 1 << 20, "{left} bytes are free, but a file of 4 KiB has no space");
    fs::remove_file(dir.join("f0")).unwrap();
    kept[0].write_all_at(&contents(7), 0).unwrap();
    drop(kept);
    assert_eq!(fs::read(dir.join("kept0")).unwrap(), contents(7));
}

#[test]
fn files_are_written_after_the_daemon_that_reserved_their_space_was_killed() {
    let temporary = Temporary::new();
    let mut daemon = Process::start(&temporary.dir("flash"));
    make_instance(daemon.local(), 1 << 28);
    let at = temporary.dir("mnt");
    let mounted = mount(attach(daemon.local()), &at, &options()).unwrap();
    for round in 0..4 {
        write_new(&at, round * 10).unwrap();
        let files: Vec<File> = (1..4)
            .map(|number| File::create_new(at.join(format!("f{}", round * 10 + number))).unwrap())
            .collect();
        let unwritten = File::create_new(at.join(format!("unwritten{round}"))).unwrap();
        files[0].write_all_at(&contents(round), 0).unwrap();
        daemon.kill();
        if round % 2 == 0 {
            drop(unwritten);
        }
        daemon.restart();
        for (file, offset) in files.iter().zip([LENGTH as u64, 0, 0]) {
            file.write_all_at(&contents(round), offset).unwrap();
            file.sync_all().unwrap();
        }
        drop(files);
        for (number, length) in [(1, 2 * LENGTH), (2, LENGTH), (3, LENGTH)] {
            let data = fs::read(at.join(format!("f{}", round * 10 + number))).unwrap();
            assert_eq!(data, vec![round as u8; length]);
        }
        assert_eq!(fs::read(at.join(format!("unwritten{round}"))).unwrap(), b"");
    }
    support::unmount(mounted);
}
