//! A storage daemon, an instance and a mount in temporary directories.
#![allow(clippy::unwrap_used)] // a test fails by panicking
#![allow(dead_code)] // each test program uses its own part

pub mod faulty_network;
pub mod held_network;
pub mod host_mounts;
pub mod network_pool;
pub mod process;
pub mod striped_admin;

use forebay_client::{Admin, ClientOptions, Fs, Mount, MountOptions, NodeAddresses, mount};
use forebay_protocol::InstanceId;
use forebay_protocol::message::{InstanceSpec, OpenMode};
use forebay_protocol::placement::Placement;
use forebay_store::daemon::{self, Daemon};
use network_pool::NetworkPool;
use rustix::mount::UnmountFlags;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use striped_admin::StripedAdmin;

pub const INSTANCE: InstanceId = InstanceId(1);
/// Short, so that small files are striped over several nodes.
pub const STRIPE: u64 = 16 << 10;
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a file for reading.
pub const READ: OpenMode =
    OpenMode { read: true, write: false, truncate: false, descriptor: true, ..OpenMode::NONE };
/// Opens a file for reading and writing.
pub const READ_WRITE: OpenMode = OpenMode { write: true, ..READ };

/// Data that differ at each position, and by `seed`.
pub fn noise(length: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// A directory that is removed at the end of the test.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new() -> Temporary {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Temporary(path)
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn spec(capacity: u64) -> InstanceSpec {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    InstanceSpec {
        id: INSTANCE,
        uid,
        gid,
        mode: 0o777,
        capacity,
        inodes: 1_000_000,
        placement: Placement::single_node(),
    }
}

/// Creates an instance of `capacity` bytes in total over these daemons.
pub fn make_instance(nodes: impl Into<NodeAddresses>, capacity: u64) {
    let nodes = nodes.into();
    let share = capacity / nodes.0.len() as u64;
    let admin = StripedAdmin::connect(nodes, &ClientOptions::default()).unwrap();
    admin.create_instance(&spec(share), STRIPE).unwrap();
}

/// A daemon with an instance of user 1000 and group 2000, for tests with several users.
pub fn users_pool(options: daemon::StoreOptions, mode: u16) -> Daemon {
    assert!(rustix::process::geteuid().is_root(), "these tests act as several users: run as root");
    let daemon = Daemon::start(options).unwrap();
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    let spec = InstanceSpec { uid: 1000, gid: 2000, mode, inodes: 100, ..spec(1 << 20) };
    admin.create_instance(spec).unwrap();
    daemon
}

/// Daemons in this process with one instance.
pub struct Pool {
    pub daemons: Vec<Daemon>,
}

impl Pool {
    pub fn new(temporary: &Temporary, nodes: usize, capacity: u64) -> Pool {
        let start = |node| {
            let directory = temporary.dir(&format!("flash{node}"));
            Daemon::start(daemon::StoreOptions::new(directory)).unwrap()
        };
        let pool = Pool { daemons: (0..nodes).map(start).collect() };
        make_instance(pool.nodes(), capacity);
        pool
    }

    pub fn nodes(&self) -> NodeAddresses {
        let addresses: Vec<_> = self.daemons.iter().map(Daemon::address).collect();
        NodeAddresses::from(addresses)
    }
}

/// Daemons in this process with one instance, mounted.
pub struct Mounted {
    pub mount: Option<Mount>,
    pub pool: Pool,
    pub path: PathBuf,
    pub temporary: Temporary,
}

impl Mounted {
    pub fn new(nodes: usize, capacity: u64) -> Mounted {
        Mounted::with_options(nodes, capacity, &MountOptions::default())
    }

    pub fn with_options(nodes: usize, capacity: u64, options: &MountOptions) -> Mounted {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, capacity);
        let path = temporary.dir("mnt");
        let mount = Some(mount(attach(pool.nodes()), &path, options).unwrap());
        Mounted { mount, pool, path, temporary }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            unmount(mount);
        }
    }
}

/// Unmounts. A child process of another test keeps the files in the mount that were open when it was forked,
/// until it executes its program.
pub fn unmount(mount: Mount) {
    let path = mount.path().to_owned();
    let Err(error) = mount.unmount() else {
        return;
    };
    let begun = Instant::now();
    // Not mounted any more: `EINVAL`.
    while rustix::mount::unmount(&path, UnmountFlags::empty()) == Err(rustix::io::Errno::BUSY) {
        if begun.elapsed() > UNMOUNT_TIMEOUT {
            assert!(std::thread::panicking(), "{}: {error}", path.display());
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn attach(nodes: impl Into<NodeAddresses>) -> Fs {
    Fs::attach(nodes, INSTANCE, ClientOptions::default()).unwrap()
}

pub fn mount_at(fs: Fs, path: &Path) -> Mount {
    mount(fs, path, &MountOptions::default()).unwrap()
}

/// Runs `check` on a local directory and on mounts, each time in a new directory for all users.
pub fn on_all(check: impl Fn(&Path)) {
    on_all_with(&MountOptions::default(), check);
}

/// As [`on_all`], for mounts with these options.
pub fn on_all_with(options: &MountOptions, check: impl Fn(&Path)) {
    assert!(rustix::process::geteuid().is_root(), "these checks act as several users: run as root");
    let local = Temporary::new();
    let single = Mounted::with_options(1, 1 << 28, options);
    let striped = Mounted::with_options(3, 1 << 28, options);
    // Its small writes are delayed.
    let elsewhere = NetworkPool::with_capacity(1, 1 << 28);
    let remote_path = local.dir("mnt");
    let remote = mount(elsewhere.client(), &remote_path, options).unwrap();
    let places = [
        ("a local directory", &local.dir("dir")),
        ("one node", &single.path),
        ("three nodes", &striped.path),
        ("one node on another host", &remote_path),
    ];
    for (place, dir) in places {
        eprintln!("on {place}");
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        check(dir);
    }
    unmount(remote);
}

/// Waits until the client that made the mount has ended, so that the kernel caches attributes also for an
/// instance of several nodes.
pub fn wait_until_attributes_are_cached() {
    std::thread::sleep(std::time::Duration::from_secs(2));
}

/// Waits until `count` is `expected`: a request is counted a moment after its reply. It never is more.
pub fn await_count(count: impl Fn() -> u64, expected: u64, what: &str) {
    let start = std::time::Instant::now();
    loop {
        let counted = count();
        if counted == expected {
            return;
        }
        let is_late = start.elapsed() > std::time::Duration::from_secs(10);
        assert!(counted < expected && !is_late, "{what}: {counted} instead of {expected}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Runs a shell script in `dir`; it must succeed.
pub fn shell(dir: &Path, script: &str) -> String {
    let Output { status, stdout, stderr } =
        Command::new("bash").arg("-euc").arg(script).current_dir(dir).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{script}\n{out}\n{err}");
    out.into_owned()
}

/// Fails unless a program is installed; `scripts/setup.sh test` installs them.
pub fn need(program: &str) {
    let found = Command::new("sh").arg("-c").arg(format!("command -v {program}")).output();
    assert!(
        found.is_ok_and(|output| output.status.success()),
        "{program} is not installed: run scripts/setup.sh test"
    );
}

/// Fails because a file cannot be mounted on a loop device, unless the tests are to pass without what needs
/// that: `FOREBAY_WITHOUT_LOOP=1`.
pub fn expect_no_loop_devices(untested: &str) {
    assert!(
        std::env::var_os("FOREBAY_WITHOUT_LOOP").is_some_and(|value| value == "1"),
        "loop devices are not available: with FOREBAY_WITHOUT_LOOP=1 {untested} is not tested"
    );
}

/// Runs `act` in a thread of another user without supplementary groups.
pub fn as_user<T: Send>(uid: u32, gid: u32, act: impl FnOnce() -> T + Send) -> T {
    as_user_in(uid, gid, &[], act)
}

/// Runs `act` in a thread of another user with these supplementary groups.
pub fn as_user_in<T: Send>(
    uid: u32,
    gid: u32,
    groups: &[u32],
    act: impl FnOnce() -> T + Send,
) -> T {
    let run = || {
        // SAFETY: the raw calls change the credentials of this thread only, which ends after; the
        // groups are read from memory that outlives the call.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}
