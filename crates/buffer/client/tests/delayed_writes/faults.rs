//! Full instances, lost leases, mounts and daemons that are killed.

use super::support::faulty_network::FaultyNetwork;
use super::support::network_pool::NetworkPool;
use super::support::process::{Process, be_the_mount, key, start_mount};
use super::support::{INSTANCE, Temporary, make_instance, mount_at, unmount};
use super::{NODES, PIECE, Site, check_content, content, expected, write_piece};
use forebay_client::{ClientOptions, Fs};
use forebay_protocol::address::Address;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

fn client(address: Address) -> Fs {
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    Fs::attach(address, INSTANCE, options).unwrap()
}

/// Closes a file, with the result of `close`.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is owned, and not used afterwards.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn full_instance_refuses_the_write_that_does_not_fit() {
    for nodes in NODES {
        let site =
            Site::with(NetworkPool::with_capacity(nodes, 24 << 20), &FaultyNetwork::default());
        let (here, there) = site.file("file");
        let file = File::create(&here).unwrap();
        let mut end = 0;
        let refused = loop {
            match file.write_at(&content(end, 47_008), end) {
                Ok(count) => end += count as u64,
                Err(error) => break error.raw_os_error(),
            }
            assert!(end < 32 << 20);
        };
        assert_eq!(refused, Some(libc::ENOSPC));
        assert!(end > 16 << 20, "{end} bytes");
        file.sync_data().unwrap();
        close(file).unwrap();
        check_content(&there, end);
        fs::remove_file(&there).unwrap();
        site.end();
    }
}

/// The call of a program that reports an error of delayed writes before it.
type Report = fn(File, u64) -> io::Result<()>;

/// Errors are reported by the next write, by a sync, and by close.
const REPORTS: [(&str, Report); 3] = [
    ("write", |file, end| file.write_all_at(&content(end, PIECE), end)),
    ("fsync", |file, _| file.sync_all()),
    ("close", |file, _| close(file)),
];

#[test]
fn writes_of_a_mount_that_lost_its_lease_fail_and_are_reported() {
    for ((name, report), nodes) in REPORTS.into_iter().zip([1, 3, 1]) {
        let network = FaultyNetwork::default();
        let site = Site::with(NetworkPool::new(nodes), &network);
        let (here, there) = site.file("file");
        let file = File::create(&here).unwrap();
        let end = (0..1000).fold(0, |end, _| write_piece(&file, end, 1000));
        network.cut(true);
        std::thread::scope(|scope| {
            // The client may need to confirm the lease first, so that a write waits until the network is back.
            let writer = scope.spawn(|| {
                (0..100).try_fold(end, |end, _| {
                    file.write_all_at(&content(end, 1000), end).map(|()| end + 1000)
                })
            });
            std::thread::sleep(Duration::from_millis(20));
            drop(OpenOptions::new().write(true).truncate(true).open(&there).unwrap());
            network.cut(false);
            let written = writer.join().unwrap();
            let reported = written.and_then(|end| report(file.try_clone().unwrap(), end));
            let errno = reported.expect_err(name).raw_os_error();
            assert_eq!(errno, Some(libc::EIO), "{name}");
            if name == "close" {
                // It was a copy of the descriptor.
                assert!(file.sync_all().is_err(), "close took the error away from fsync");
            }
        });
        drop(file);
        assert_eq!(fs::metadata(&there).unwrap().len(), 0, "a late write");
        site.end();
    }
}

#[test]
fn mount_that_is_cut_off_loses_nothing_if_others_only_look_at_attributes() {
    for nodes in NODES {
        let network = FaultyNetwork::default();
        let site = Site::with(NetworkPool::new(nodes), &network);
        let (here, there) = site.file("file");
        let file = File::create(&here).unwrap();
        let mut end = (0..2000).fold(0, |end, _| write_piece(&file, end, 1000));
        network.cut(true);
        assert!(fs::metadata(&there).unwrap().len() > 0);
        network.cut(false);
        end = (0..2000).fold(end, |end, _| write_piece(&file, end, 1000));
        file.sync_all().unwrap();
        close(file).unwrap();
        check_content(&there, end);
        site.end();
    }
}

const MOUNT: &str = "delayed_writes::faults::mount_process";

#[test]
#[ignore = "not a test: a mount that another test kills"]
fn mount_process() {
    be_the_mount(|address, path| mount_at(client(address), path));
}

/// Writes small pieces until that fails, with an `fsync` after each 100. Counts the bytes of which `fsync` has
/// returned.
fn write_until_killed(path: PathBuf, synced: &AtomicU64) {
    let file = File::create(path).unwrap();
    let mut end = 0;
    loop {
        for _ in 0..100 {
            match file.write_at(&content(end, 1000), end) {
                Ok(count) => end += count as u64,
                Err(_) => return,
            }
        }
        if file.sync_data().is_err() {
            return;
        }
        synced.store(end, Ordering::Release);
    }
}

#[test]
fn killed_mount_loses_nothing_that_is_synced_and_leaves_no_gaps() {
    for round in 0..3 {
        let temporary = Temporary::new();
        let daemon = Process::start(&temporary.dir("flash"));
        make_instance(daemon.local(), 256 << 20);
        let at = temporary.dir("mnt");
        let mut child = start_mount(MOUNT, &daemon.remote(), &at);
        let synced = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let path = at.join("file");
            let program = scope.spawn(|| write_until_killed(path, &synced));
            while synced.load(Ordering::Acquire) < 300_000 && !program.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(7 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            program.join().unwrap();
        });
        let synced = synced.into_inner();
        assert!(synced >= 300_000, "the mount was killed too early");
        let unmounted = Command::new("umount").args(["-l".as_ref(), at.as_os_str()]).status();
        assert!(unmounted.unwrap().success());
        let there = temporary.dir("other");
        let mount = mount_at(client(daemon.remote()), &there);
        let found = fs::read(there.join("file")).unwrap();
        assert!(found.len() as u64 >= synced, "{} bytes of {synced} synced ones", found.len());
        assert!(found.iter().zip(0..).all(|(byte, offset)| *byte == expected(offset)));
        unmount(mount);
    }
}

/// Kills and starts the daemon again whenever it is asked to. A program that is started closes the files that it
/// inherits, which waits for their delayed writes. So this thread has none of the files of the other threads.
fn restart_on_request(mut daemon: Process, requests: &Receiver<()>, done: &Sender<()>) {
    let (first, last, flags) = (3_u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: the system call closes descriptors of this thread only, which uses none of them.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }, 0);
    done.send(()).unwrap();
    while requests.recv().is_ok() {
        daemon.kill();
        daemon.restart();
        done.send(()).unwrap();
    }
}

#[test]
fn restarts_of_the_daemon_lose_no_delayed_write_and_show_all_of_them() {
    let temporary = Temporary::new();
    let daemon = Process::start(&temporary.dir("flash"));
    make_instance(daemon.local(), 256 << 20);
    let paths = ["one", "other"].map(|name| temporary.dir(name));
    let mounts = paths.clone().map(|path| mount_at(client(daemon.remote()), &path));
    let (request, requests) = channel();
    let (done, is_done) = channel();
    let restarts = std::thread::spawn(move || restart_on_request(daemon, &requests, &done));
    is_done.recv().unwrap();
    let file = File::create(paths[0].join("file")).unwrap();
    let mut end = 0;
    for round in 0..4 {
        end = (0..200 + round as u64).fold(end, |end, _| write_piece(&file, end, PIECE));
        request.send(()).unwrap();
        is_done.recv().unwrap();
        end = (0..200).fold(end, |end, _| write_piece(&file, end, PIECE));
        let path = &paths[1 - round % 2];
        assert_eq!(fs::metadata(path.join("file")).unwrap().len(), end, "round {round}");
    }
    file.sync_all().unwrap();
    close(file).unwrap();
    check_content(&paths[1].join("file"), end);
    for mount in mounts {
        unmount(mount);
    }
    drop(request);
    restarts.join().unwrap();
}
