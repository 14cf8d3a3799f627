//! Access times, which follow the rules of `relatime`: on a local file system, on one storage node and on
//! three.
//!
//! Needs root, for mounts.

use crate::support;
use forebay_client::MountOptions;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::network_pool::NetworkPool;
use support::{Mounted, Temporary, attach, mount_at, on_all};

type Time = (i64, i64);

/// Access, modification, change.
fn times(path: &Path) -> [Time; 3] {
    let found = fs::metadata(path).unwrap();
    [
        (found.atime(), found.atime_nsec()),
        (found.mtime(), found.mtime_nsec()),
        (found.ctime(), found.ctime_nsec()),
    ]
}

fn pause() {
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn first_read_after_a_change_sets_the_access_time_and_no_other() {
    on_all(|dir| {
        // In the first stripe, and in all.
        for length in [5, 100_000] {
            let path = dir.join(format!("file{length}"));
            // The kernel stamps writes with a clock that is some milliseconds behind that of creates.
            fs::File::create(&path).unwrap();
            pause();
            fs::write(&path, vec![1; length]).unwrap();
            let [_, modified, changed] = times(&path);
            pause();
            let before = times(&path);
            fs::read(&path).unwrap();
            let [read, others @ ..] = times(&path);
            assert!(read > before[0] && read > modified, "{read:?}, before: {before:?}");
            assert_eq!(others, [modified, changed]);
            pause();
            // Parts of a read have times of their own.
            let next = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            fs::read(&path).unwrap();
            let still = times(&path)[0];
            let next = (next.as_secs() as i64, i64::from(next.subsec_nanos()));
            assert!(still >= read && still < next, "{still:?} after the read at {next:?}");
            // The same again after a change.
            pause();
            fs::write(&path, vec![2; length]).unwrap();
            pause();
            fs::read(&path).unwrap();
            let [again, modified, _] = times(&path);
            assert!(again > modified && modified > read, "{again:?}, written at {modified:?}");
            // A time that a program sets stays.
            let set = Timespec { tv_sec: 1000, tv_nsec: 5 };
            let omitted = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            std::thread::sleep(Duration::from_millis(200));
            let stamps = Timestamps { last_access: set, last_modification: omitted };
            utimensat(CWD, &path, &stamps, AtFlags::empty()).unwrap();
            assert_eq!(times(&path)[0], (1000, 5));
        }
    });
}

/// Reads with `O_NOATIME` below a directory of a mount change no access time; others do.
fn check_reads_with_o_noatime(dir: &Path, place: &str) {
    for length in [5, 5 << 20] {
        let path = dir.join(format!("file{length}"));
        // Else the clock of the write may be behind that of the create, and no read sets the time.
        fs::File::create(&path).unwrap();
        pause();
        fs::write(&path, vec![1; length]).unwrap();
        pause();
        let before = times(&path);
        let mut options = fs::File::options();
        let mut file = options.read(true).custom_flags(libc::O_NOATIME).open(&path).unwrap();
        assert_eq!(file.read_to_end(&mut Vec::new()).unwrap(), length);
        assert_eq!(times(&path), before, "{place}");
        drop(file);
        // A close may lead to a request for the time of the last read.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(times(&path), before, "{place}");
        fs::read(&path).unwrap();
        assert!(times(&path)[0] > before[0], "{place}");
    }
    // Files that are created with it, some of them before the daemon knows of them.
    for number in 0..20 {
        let path = dir.join(format!("new{number}"));
        let mut options = fs::File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.custom_flags(libc::O_NOATIME).open(&path).unwrap();
        file.write_all_at(b"data", 0).unwrap();
        pause();
        let before = times(&path);
        file.read_exact_at(&mut [0; 4], 0).unwrap();
        assert_eq!(times(&path), before, "{place}, file {number}");
    }
}

#[test]
fn reads_with_o_noatime_change_no_access_time() {
    for (nodes, passthrough) in [(1, true), (1, false), (3, true)] {
        let options = MountOptions { passthrough, ..MountOptions::default() };
        let mounted = Mounted::with_options(nodes, 1 << 28, &options);
        let place = format!("{nodes} nodes, {passthrough}");
        check_reads_with_o_noatime(&mounted.path, &place);
    }
}

#[test]
fn reads_with_o_noatime_change_no_access_time_on_other_hosts() {
    for nodes in [1, 3] {
        let pool = NetworkPool::with_capacity(nodes, 1 << 28);
        let temporary = Temporary::new();
        let path = temporary.dir("mnt");
        let mount = mount_at(pool.client(), &path);
        check_reads_with_o_noatime(&path, &format!("{nodes} nodes over TCP"));
        support::unmount(mount);
    }
}

#[test]
fn access_time_is_kept_and_other_mounts_see_it() {
    for nodes in [1, 3] {
        let mut mounted = Mounted::new(nodes, 1 << 28);
        let path = mounted.path.join("file");
        let second = mounted.temporary.dir("second");
        fs::File::create(&path).unwrap();
        pause();
        fs::write(&path, vec![1; 100_000]).unwrap();
        let [_, modified, _] = times(&path);
        pause();
        fs::read(&path).unwrap();
        let read = times(&path)[0];
        assert!(read > modified);
        let other = mount_at(attach(mounted.pool.nodes()), &second);
        let closed = Instant::now();
        let recorded = loop {
            let recorded = times(&second.join("file"))[0];
            if recorded >= read {
                break recorded;
            }
            assert!(closed.elapsed() < Duration::from_secs(20), "the read is not recorded");
            std::thread::sleep(Duration::from_millis(20));
        };
        support::unmount(other);
        support::unmount(mounted.mount.take().unwrap());
        mounted.mount = Some(mount_at(attach(mounted.pool.nodes()), &mounted.path));
        assert_eq!(times(&path)[0], recorded);
    }
}
