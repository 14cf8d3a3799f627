//! Locks on files, by `fcntl`, by `flock` and by the library, between two mounts of an instance over
//! one storage daemon and over three.
//!
//! The mounts are in the process of the test, which is a different lock owner for each of them.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use forebay_client::{ClientOptions, Fs, Mount};
use forebay_protocol::Errno;
use forebay_store::daemon::{self, Daemon};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::os::unix::thread::JoinHandleExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use support::process::{Process, be_the_daemon};
use support::{
    INSTANCE, Mounted, READ_WRITE, Temporary, attach, make_instance, mount_at, need, shell,
};

const MOUNT: &str = "FOREBAY_TEST_MOUNT";

#[test]
#[ignore = "not a test: the daemon of the other tests"]
fn daemon_process() {
    be_the_daemon();
}

#[test]
#[ignore = "not a test: a mount of the other tests, which can be killed"]
fn mount_process() {
    let Ok(what) = std::env::var(MOUNT) else {
        return;
    };
    let (socket, path) = what.split_once(' ').unwrap();
    let address = forebay_protocol::address::Address::Unix(socket.into());
    let mounted = mount_at(attach(address), Path::new(path));
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    support::unmount(mounted);
}

/// A mount of its own process.
fn mount_process_at(socket: &Path, path: &Path) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mount_process", "--ignored", "--nocapture"])
        .env(MOUNT, format!("{} {}", socket.display(), path.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !std::fs::read_to_string("/proc/mounts").unwrap().contains(&path.display().to_string()) {
        assert!(start.elapsed() < Duration::from_secs(20), "not mounted");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Two mounts of one instance.
struct Two {
    first: PathBuf,
    second: PathBuf,
    other: Option<Mount>,
    mounted: Mounted,
}

impl Two {
    fn new(nodes: usize) -> Two {
        let mounted = Mounted::new(nodes, 1 << 28);
        let second = mounted.temporary.dir("second");
        Two {
            first: mounted.path.clone(),
            other: Some(mount_at(attach(mounted.pool.nodes()), &second)),
            second,
            mounted,
        }
    }

    fn open(&self, name: &str) -> (File, File) {
        let open = |dir: &Path| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(dir.join(name)).unwrap()
        };
        (open(&self.first), open(&self.second))
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        if let Some(mount) = self.other.take() {
            support::unmount(mount);
        }
    }
}

/// Runs `check` with one daemon and with three.
fn on_two_mounts(check: impl Fn(&Two)) {
    let _alone = serialize_tests();
    for nodes in [1, 3] {
        eprintln!("on {nodes} nodes");
        check(&Two::new(nodes));
        wait_until(|| lock_threads().is_empty());
    }
}

/// Serializes the tests: a child process of one would inherit open files of another for a moment, whose
/// mount could not be unmounted then.
fn serialize_tests() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads of this process that wait for locks.
fn lock_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("forebay-")).collect()
}

/// A record lock of `fcntl`. Returns the structure, as filled in by `F_GETLK`.
fn record(file: &File, how: i32, kind: i32, start: i64, length: i64) -> io::Result<libc::flock> {
    // SAFETY: all fields are numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (start, length);
    // SAFETY: the structure is valid during the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), how, &mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(lock)
}

fn set(file: &File, kind: i32, start: i64, length: i64) -> io::Result<()> {
    record(file, libc::F_SETLK, kind, start, length).map(|_| ())
}

fn wait(file: &File, kind: i32, start: i64, length: i64) -> io::Result<()> {
    record(file, libc::F_SETLKW, kind, start, length).map(|_| ())
}

/// `flock`.
fn flock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: the call takes two numbers.
    match unsafe { libc::flock(file.as_raw_fd(), how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The conflicting lock: its kind, first byte and length.
fn get(file: &File, kind: i32, start: i64, length: i64) -> (i32, i64, i64) {
    let found = record(file, libc::F_GETLK, kind, start, length).unwrap();
    (i32::from(found.l_type), found.l_start, found.l_len)
}

fn refused(result: io::Result<()>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
}

/// Waits until the condition holds; a close is sent in the background.
fn wait_until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(10), "timeout");
        std::thread::sleep(Duration::from_millis(2));
    }
}

use libc::{F_RDLCK, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN};

#[test]
fn locked_ranges_exclude_other_mounts() {
    on_two_mounts(|two| {
        let (a, b) = two.open("f");
        set(&a, F_WRLCK, 10, 10).unwrap();
        set(&a, F_RDLCK, 15, 10).unwrap();
        assert!(refused(set(&b, F_RDLCK, 14, 1)));
        assert!(refused(set(&b, F_WRLCK, 24, 100)));
        set(&b, F_RDLCK, 15, 20).unwrap();
        set(&b, F_WRLCK, 0, 10).unwrap();
        set(&b, F_WRLCK, 40, 0).unwrap();
        assert_eq!(get(&b, F_WRLCK, 0, 0), (F_WRLCK, 10, 5));
        assert_eq!(get(&b, F_WRLCK, 15, 1), (F_RDLCK, 15, 10));
        assert_eq!(get(&b, F_RDLCK, 15, 1).0, F_UNLCK);
        assert_eq!(get(&a, F_RDLCK, 1 << 40, 1), (F_WRLCK, 40, 0));
        // Locks of the same owner do not conflict; an unlocked range is free at once.
        set(&a, F_UNLCK, 12, 1).unwrap();
        set(&b, F_WRLCK, 12, 1).unwrap();
        assert!(refused(set(&b, F_WRLCK, 11, 1)));
        set(&b, F_UNLCK, 0, 0).unwrap();
        // Closing any descriptor of the file releases all locks of the process.
        drop(File::open(two.first.join("f")).unwrap());
        set(&b, F_WRLCK, 0, 0).unwrap();
        assert!(refused(set(&a, F_RDLCK, 0, 0)));
        drop(b);
        set(&a, F_WRLCK, 0, 0).unwrap();
        // Locks belong to the inode, whatever names it has.
        std::fs::hard_link(two.first.join("f"), two.first.join("g")).unwrap();
        let (_same, g) = two.open("g");
        assert!(refused(set(&g, F_RDLCK, 5, 1)));
        std::fs::remove_file(two.first.join("f")).unwrap();
        std::fs::remove_file(two.second.join("g")).unwrap();
        assert!(refused(set(&g, F_RDLCK, 5, 1)));
        let (other, _) = two.open("f");
        set(&other, F_WRLCK, 5, 1).unwrap();
    });
}

#[test]
fn released_lock_is_granted_to_the_waiting_process() {
    on_two_mounts(|two| {
        let (a, b) = two.open("f");
        set(&a, F_WRLCK, 0, 100).unwrap();
        let started = Instant::now();
        // More waiting processes than threads of the mount; it serves other requests meanwhile.
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..20)
                .map(|i| {
                    let b = &b;
                    scope.spawn(move || wait(b, F_RDLCK, i, 1).map(|()| started.elapsed()))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(300));
            for i in 0..20 {
                std::fs::write(two.second.join(format!("other{i}")), "text").unwrap();
                assert_eq!(std::fs::read(two.first.join(format!("other{i}"))).unwrap(), b"text");
            }
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            set(&a, F_UNLCK, 0, 100).unwrap();
            let freed = started.elapsed();
            for waiter in waiters {
                let got = waiter.join().unwrap().unwrap();
                assert!(got < freed + Duration::from_secs(1), "{got:?} {freed:?}");
            }
        });
        assert!(refused(set(&a, F_WRLCK, 0, 100)));
    });
}

#[test]
fn deadlock_is_refused() {
    on_two_mounts(|two| {
        let (a, b) = two.open("f");
        let (c, d) = two.open("g");
        set(&a, F_WRLCK, 0, 1).unwrap();
        set(&d, F_WRLCK, 0, 1).unwrap();
        // Files of one directory have the same metadata node.
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait(&b, F_WRLCK, 0, 1));
            std::thread::sleep(Duration::from_millis(300));
            let error = wait(&c, F_WRLCK, 0, 1).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EDEADLK));
            set(&a, F_UNLCK, 0, 1).unwrap();
            waiter.join().unwrap().unwrap();
        });
    });
}

extern "C" fn ignore_signal(_: i32) {}

#[test]
fn pending_lock_can_be_interrupted() {
    // SAFETY: the handler does nothing, and zeros are valid for the structure.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore_signal as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    on_two_mounts(|two| {
        let (a, b) = two.open("f");
        set(&a, F_WRLCK, 0, 100).unwrap();
        let second = b.try_clone().unwrap();
        let waiter = std::thread::spawn(move || wait(&second, F_WRLCK, 50, 1));
        std::thread::sleep(Duration::from_millis(200));
        // SAFETY: the thread has not been joined yet.
        unsafe { libc::pthread_kill(waiter.as_pthread_t(), libc::SIGUSR1) };
        let error = waiter.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINTR));
        // The lock is not granted later.
        set(&a, F_UNLCK, 0, 100).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        set(&a, F_WRLCK, 0, 100).unwrap();
        drop(b);
        // Nor to a killed process, which ends.
        need("flock");
        flock(&a, LOCK_EX).unwrap();
        let mut program =
            Command::new("flock").args(["f", "true"]).current_dir(&two.second).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(program.try_wait().unwrap().is_none(), "the process waits");
        let started = Instant::now();
        program.kill().unwrap();
        assert_eq!(program.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(started.elapsed() < Duration::from_secs(2));
        flock(&a, LOCK_UN).unwrap();
        flock(&a, LOCK_EX | LOCK_NB).unwrap();
    });
}

#[test]
fn flock_holds_between_mounts() {
    need("flock");
    on_two_mounts(|two| {
        let (first, second) = (two.first.display(), two.second.display());
        shell(
            &two.first,
            &format!(
                "exec 8> {first}/f; exec 9> {second}/f
                 flock -n 8
                 ! flock -n 9
                 ! flock -n -s 9
                 flock -u 8; flock -n -s 9; flock -n -s 8
                 ! flock -n 8
                 exec 9>&-
                 flock -w 5 8
                 ! flock -n {second}/f true
                 # Who has inherited the open file has the lock, too.
                 (sleep 0.4; true) & exec 8>&-
                 ! flock -n {second}/f true
                 wait
                 flock -w 5 {second}/f true
                 # Only one of all at a time.
                 echo 0 > count
                 for i in $(seq 10); do
                     for dir in {first} {second}; do
                         (flock 8; n=$(cat $dir/count); echo $((n + 1)) > $dir/count) 8> $dir/l &
                     done
                 done
                 wait
                 test $(cat count) = 20"
            ),
        );
    });
}

#[test]
fn flock_and_fcntl_locks_are_independent() {
    on_two_mounts(|two| {
        let (a, b) = two.open("f");
        // Both kinds on one file do not conflict, in either order.
        flock(&a, LOCK_EX).unwrap();
        wait(&a, F_WRLCK, 0, 0).unwrap();
        flock(&a, LOCK_SH).unwrap();
        flock(&a, LOCK_EX).unwrap();
        // Other owners get neither.
        assert!(refused(flock(&b, LOCK_SH | LOCK_NB)));
        assert!(refused(set(&b, F_RDLCK, 0, 0)));
        // Each is released by its own call only.
        set(&a, F_UNLCK, 0, 0).unwrap();
        assert!(refused(flock(&b, LOCK_SH | LOCK_NB)));
        wait(&b, F_WRLCK, 0, 0).unwrap();
        assert!(refused(set(&a, F_RDLCK, 0, 0)));
        flock(&a, LOCK_UN).unwrap();
        assert!(refused(set(&a, F_RDLCK, 0, 0)));
        flock(&b, LOCK_EX).unwrap();
        assert_eq!(get(&a, F_WRLCK, 0, 0), (F_WRLCK, 0, 0));
        // Closing any descriptor releases the `fcntl` lock; the `flock` lock belongs to the open file.
        drop(File::open(two.second.join("f")).unwrap());
        set(&a, F_WRLCK, 0, 0).unwrap();
        assert!(refused(flock(&a, LOCK_EX | LOCK_NB)));
        // Locks of both kinds by one open file on the whole file.
        set(&a, F_UNLCK, 0, 0).unwrap();
        record(&b, libc::F_OFD_SETLKW, F_WRLCK, 0, 0).unwrap();
        flock(&b, LOCK_UN).unwrap();
        assert!(refused(set(&a, F_RDLCK, 0, 0)));
        flock(&a, LOCK_EX).unwrap();
        record(&b, libc::F_OFD_SETLK, F_UNLCK, 0, 0).unwrap();
        assert!(refused(flock(&b, LOCK_SH | LOCK_NB)));
        set(&a, F_RDLCK, 0, 0).unwrap();
        // A pending lock of one kind is not granted by a release of the other.
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| flock(&b, LOCK_EX));
            std::thread::sleep(Duration::from_millis(200));
            set(&a, F_UNLCK, 0, 0).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            assert!(!waiter.is_finished());
            drop(a);
            waiter.join().unwrap().unwrap();
        });
    });
}

#[test]
fn database_is_written_from_two_mounts() {
    need("sqlite3");
    on_two_mounts(|two| {
        shell(&two.first, "sqlite3 db 'create table t(n integer); insert into t values (0);'");
        let add = "for i in $(seq 20); do
                sqlite3 -cmd '.timeout 60000' db 'begin immediate; update t set n = n + 1; commit;'
            done";
        std::thread::scope(|scope| {
            for dir in [&two.first, &two.second, &two.first, &two.second] {
                scope.spawn(|| shell(dir, add));
            }
        });
        for dir in [&two.first, &two.second] {
            assert_eq!(shell(dir, "sqlite3 db 'select n from t'").trim(), "80");
            assert_eq!(shell(dir, "sqlite3 db 'pragma integrity_check'").trim(), "ok");
        }
    });
}

#[test]
fn library_locks_exclude_mounts() {
    on_two_mounts(|two| {
        let fs = attach(two.mounted.pool.nodes());
        let open = |fs: &Fs| fs.create_path(Path::new("f"), 0o644, READ_WRITE).unwrap().file;
        let (first, second) = (open(&fs), open(&fs));
        let (a, _) = two.open("f");
        first.lock(true).unwrap();
        assert_eq!(second.try_lock(false), Err(Errno::EAGAIN));
        assert!(refused(flock(&a, LOCK_SH | LOCK_NB)));
        // Ranges are independent.
        second.try_lock_range(0, 9, true).unwrap();
        assert!(refused(set(&a, F_RDLCK, 7, 1)));
        second.unlock_range(5, 9).unwrap();
        assert_eq!(first.try_lock_range(0, 4, false), Err(Errno::EAGAIN));
        set(&a, F_WRLCK, 7, 1).unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                second.lock_range(5, 9, true).unwrap();
                sender.send(()).unwrap();
                second.unlock_range(0, 9).unwrap();
            });
            assert!(receiver.recv_timeout(Duration::from_millis(200)).is_err());
            set(&a, F_UNLCK, 0, 0).unwrap();
            receiver.recv_timeout(Duration::from_secs(5)).unwrap();
        });
        drop(first);
        second.try_lock(true).unwrap();
        // Invalid ranges are refused.
        second.lock_range(5, 9, true).unwrap();
        assert_eq!(second.try_lock_range(9, 3, true), Err(Errno::EINVAL));
        assert_eq!(second.unlock_range(9, 3), Err(Errno::EINVAL));
    });
}

#[test]
fn locks_of_a_killed_mount_end_with_its_session() {
    let _alone = serialize_tests();
    let temporary = Temporary::new();
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.limits.lease_ns = 1_500_000_000;
    let socket = options.socket.clone();
    let daemon = Daemon::start(options).unwrap();
    make_instance(daemon.address(), 1 << 26);
    let (killed, path) = (temporary.dir("doomed"), temporary.dir("mnt"));
    let mut process = mount_process_at(&socket, &killed);
    let mounted = mount_at(attach(daemon.address()), &path);
    let held = File::create(killed.join("f")).unwrap();
    set(&held, F_WRLCK, 0, 10).unwrap();
    let waits = File::options().write(true).open(path.join("f")).unwrap();
    assert!(refused(set(&waits, F_WRLCK, 0, 1)));
    process.kill().unwrap();
    process.wait().unwrap();
    let started = Instant::now();
    assert!(refused(set(&waits, F_WRLCK, 0, 1)), "not before it has expired");
    wait(&waits, F_WRLCK, 0, 1).unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    drop((held, waits));
    shell(&temporary.0, "umount -l doomed");
    support::unmount(mounted);
}

/// The daemon is killed and restarted repeatedly: the holder keeps the lock, a waiting process gets it
/// afterwards, and no two have it at the same time.
#[test]
fn locks_survive_a_daemon_restart() {
    let _alone = serialize_tests();
    let temporary = Temporary::new();
    let mut daemon = Process::start(&temporary.dir("flash"));
    make_instance(daemon.local(), 1 << 26);
    let (one, two) = (temporary.dir("one"), temporary.dir("two"));
    let first = mount_at(attach(daemon.local()), &one);
    let second = mount_at(attach(daemon.local()), &two);
    let a = File::create(one.join("f")).unwrap();
    let both = File::options().read(true).write(true).to_owned();
    let b = both.open(two.join("f")).unwrap();
    set(&a, F_WRLCK, 0, 10).unwrap();
    set(&a, F_UNLCK, 3, 3).unwrap();
    set(&b, F_RDLCK, 3, 3).unwrap();
    flock(&b, LOCK_EX).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(&b, F_WRLCK, 0, 3));
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(200));
            daemon.kill();
            daemon.restart();
            assert!(refused(set(&a, F_WRLCK, 0, 10)));
            assert!(refused(set(&b, F_RDLCK, 7, 1)));
            assert!(refused(flock(&a, LOCK_SH | LOCK_NB)));
            assert!(!waiter.is_finished());
        }
        set(&a, F_UNLCK, 0, 3).unwrap();
        let started = Instant::now();
        wait_until(|| waiter.is_finished());
        waiter.join().unwrap().unwrap();
        assert!(started.elapsed() < Duration::from_secs(5));
    });
    assert_eq!(get(&a, F_WRLCK, 0, 0), (F_WRLCK, 0, 3));
    assert_eq!(get(&b, F_WRLCK, 0, 0), (F_WRLCK, 6, 4));
    // An idle client keeps its lock, too, and reclaims it before others can take it.
    daemon.kill();
    daemon.restart();
    let fs = Fs::attach(daemon.local(), INSTANCE, ClientOptions::default()).unwrap();
    let c = fs.open_path(Path::new("f"), READ_WRITE).unwrap().file;
    assert_eq!(c.try_lock_range(6, 6, false), Err(Errno::EAGAIN));
    wait_until(|| c.try_lock_range(100, 100, true).is_ok());
    assert_eq!(c.try_lock_range(6, 6, false), Err(Errno::EAGAIN));
    assert_eq!(c.try_lock_range(0, 0, false), Err(Errno::EAGAIN));
    drop((a, b));
    wait_until(|| c.try_lock(true).is_ok());
    drop((c, fs));
    support::unmount(first);
    support::unmount(second);
}
