//! A storage daemon in a separate process, which can be killed.

use forebay_client::Mount;
use forebay_net::auth::PoolKey;
use forebay_protocol::address::Address;
use forebay_store::daemon::{Daemon, StoreOptions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DIRECTORY: &str = "FOREBAY_TEST_DAEMON_DIR";
const PORT: &str = "FOREBAY_TEST_DAEMON_PORT";
const SEGMENT: &str = "FOREBAY_TEST_DAEMON_SEGMENT";
const MOUNT_DAEMON: &str = "FOREBAY_TEST_MOUNT_DAEMON";
const MOUNT_POINT: &str = "FOREBAY_TEST_MOUNT_POINT";

pub fn key() -> PoolKey {
    PoolKey::new(b"a key for tests only").unwrap()
}

/// The body of the ignored test `daemon_process`, which the test program runs in another process as the
/// daemon.
pub fn be_the_daemon() {
    let Ok(dir) = std::env::var(DIRECTORY) else {
        return;
    };
    let mut options = StoreOptions::new(dir);
    let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
    options.tcp = Some(SocketAddr::from(([127, 0, 0, 1], port)));
    options.key = Some(key());
    if let Ok(bytes) = std::env::var(SEGMENT) {
        options.segment_size = bytes.parse().unwrap();
    }
    Daemon::start(options).unwrap().wait().unwrap();
}

/// The body of an ignored test that [`start_mount`] runs in another process: mounts an instance of the daemon
/// at an address, with `mount`, until it is killed.
pub fn be_the_mount(mount: impl FnOnce(Address, &Path) -> Mount) {
    let (Ok(address), Ok(path)) = (std::env::var(MOUNT_DAEMON), std::env::var(MOUNT_POINT)) else {
        return;
    };
    let _mount = mount(address.parse().unwrap(), Path::new(&path));
    std::thread::sleep(Duration::from_secs(600));
}

/// Runs the ignored `test`, whose body is [`be_the_mount`], and waits until it has mounted.
pub fn start_mount(test: &str, daemon: &Address, at: &Path) -> Child {
    let outside = std::fs::metadata(at).unwrap().dev();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", test])
        .env(MOUNT_DAEMON, daemon.to_string())
        .env(MOUNT_POINT, at)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while std::fs::metadata(at).unwrap().dev() == outside {
        assert!(begun.elapsed() < Duration::from_secs(30), "no mount");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

pub struct Process {
    dir: PathBuf,
    port: u16,
    segment: Option<u64>,
    child: Child,
}

impl Process {
    pub fn start(dir: &Path) -> Process {
        Process::start_with(dir, None)
    }

    /// With log segments of `segment` bytes.
    pub fn start_with(dir: &Path, segment: Option<u64>) -> Process {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn(dir, port, segment);
        Process { dir: dir.to_owned(), port, segment, child }
    }

    pub fn local(&self) -> Address {
        Address::Unix(self.dir.join("socket"))
    }

    pub fn remote(&self) -> Address {
        Address::Tcp(SocketAddr::from(([127, 0, 0, 1], self.port)))
    }

    /// Kills it as `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.child = spawn(&self.dir, self.port, self.segment);
    }

    /// As [`pause`], for the daemon.
    pub fn pause(&self, paused: bool) {
        pause(&self.child, paused);
    }

    /// Bytes of memory that it has.
    pub fn memory(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size() as u64
    }

    /// CPU time used so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }
}

/// Stops a child as SIGSTOP does, and waits until all its threads are stopped, or lets it continue.
pub fn pause(child: &Child, paused: bool) {
    let signal = if paused { libc::SIGSTOP } else { libc::SIGCONT };
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: a system call without memory; the process is a child that was not waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    if paused {
        let mut status = 0;
        // SAFETY: the status is written to a local variable.
        let stopped = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
        assert!(stopped == pid && libc::WIFSTOPPED(status), "it is stopped: {status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, port: u16, segment: Option<u64>) -> Child {
    let socket = dir.join("socket");
    let _ = std::fs::remove_file(&socket);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "daemon_process", "--ignored", "--nocapture"])
        .env(DIRECTORY, dir)
        .env(PORT, port.to_string())
        .envs(segment.map(|bytes| (SEGMENT, bytes.to_string())))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "the daemon does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}
