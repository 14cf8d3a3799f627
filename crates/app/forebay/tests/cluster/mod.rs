//! Hosts of a cluster on this machine: each a network name space with an address of its own, a
//! mount name space with a directory of its own, and a host name. Made by the test, and removed
//! with it, also after a failure.

pub mod site;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Waits until `done` is something.
pub fn wait<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: waited");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command that ends when the test does, however that ends.
fn tied(program: &str) -> Command {
    let mut command = Command::new(program);
    let end_with_us = || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(std::io::Error::from)
    };
    // SAFETY: the closure makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(end_with_us) };
    command
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", told(&output));
}

/// What a command said.
pub fn told(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Ends everything that runs in a network name space, whoever started it, and removes the space.
/// With the last process of a host its mounts go, too.
fn remove_space(space: &str) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let listed = Command::new("ip").args(["netns", "pids", space]).output();
        let listed = listed.map_or(String::new(), |output| told(&output));
        let processes: Vec<_> = listed
            .lines()
            .filter_map(|line| rustix::process::Pid::from_raw(line.trim().parse().ok()?))
            .collect();
        if processes.is_empty() {
            break;
        }
        for process in processes {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = Command::new("ip").args(["netns", "del", space]).output();
}

/// Name spaces whose test was killed are removed by the next one.
fn remove_rests() {
    let Ok(list) = fs::read_dir("/run/netns") else {
        return;
    };
    for entry in list.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name
            .strip_prefix("forebay-")
            .and_then(|n| n.split('-').next());
        let dead = |process: &str| !Path::new("/proc").join(process).exists();
        if process.is_some_and(dead) {
            remove_space(&name);
        }
    }
}

/// A running daemon; killed when it is dropped.
pub struct Daemon {
    child: Child,
    pub log: PathBuf,
}

impl Daemon {
    /// As `kill -9` does it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// As an operator stops it; its exit status.
    pub fn stop(&mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        wait("a daemon ends", || self.ended())
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it has said this.
    pub fn says(&self, what: &str) {
        let begun = Instant::now();
        while !self.said().contains(what) {
            let said = self.said();
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "no `{what}` in\n{said}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its exit status, once it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        self.child
            .try_wait()
            .unwrap()
            .map(|s| s.code().unwrap_or(-1))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One host.
pub struct Host {
    pub name: String,
    pub address: String,
    /// Its directory, as it sees it itself; every host has another one there.
    pub local: PathBuf,
    space: String,
    holder: Child,
    home: PathBuf,
}

impl Host {
    /// A command on this host, by this user and group.
    pub fn command(&self, user: (u32, u32), program: &str) -> Command {
        let mut command = tied("nsenter");
        command
            .args(["--net", "--mount", "--uts", "--target"])
            .arg(self.holder.id().to_string())
            .args(["--setuid", &user.0.to_string()])
            .args(["--setgid", &user.1.to_string()])
            .arg(format!("--wdns={}", self.local.display()))
            .args(["--", program])
            .stdin(Stdio::null())
            .env_remove("XDG_STATE_HOME");
        command
    }

    /// A shell command on this host.
    pub fn shell(&self, user: (u32, u32), script: &str) -> Output {
        let mut command = self.command(user, "sh");
        command.args(["-ec", script]).output().unwrap()
    }

    /// `forebay` on this host.
    pub fn forebay(&self, user: (u32, u32), arguments: &[&str]) -> Output {
        let mut command = self.command(user, env!("CARGO_BIN_EXE_forebay"));
        command.args(arguments).output().unwrap()
    }

    /// Starts `forebay serve` on this host.
    pub fn serve(&self, arguments: &[&str]) -> Daemon {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let log = self.home.join(format!("log-{}-{number}", arguments[0]));
        let file = fs::File::create(&log).unwrap();
        let mut command = self.command((0, 0), env!("CARGO_BIN_EXE_forebay"));
        command
            .env("FOREBAY_LOG", "warn")
            .arg("serve")
            .args(arguments)
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        Daemon {
            child: command.spawn().unwrap(),
            log,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Users' commands do not end with the test by themselves: the kernel forgets that they
        // should when they become somebody else.
        remove_space(&self.space);
        let _ = self.holder.wait();
    }
}

/// Hosts on one network, with a directory that all see: the parallel file system.
pub struct Cluster {
    pub hosts: Vec<Host>,
    hub: String,
    munged: Vec<Child>,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// This many hosts, called `n1` and so on.
    pub fn new(count: usize) -> Cluster {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test makes network name spaces: run as root"
        );
        remove_rests();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let space = |end: &str| format!("forebay-{}-{number}{end}", std::process::id());
        let directory = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        open(directory.path(), 0o755);
        let pfs = directory.path().join("pfs");
        fs::create_dir(&pfs).unwrap();
        open(&pfs, 0o1777);
        let local = directory.path().join("local");
        fs::create_dir(&local).unwrap();
        let hub = space("hub");
        succeed(Command::new("ip").args(["netns", "add", &hub]));
        let mut cluster = Cluster {
            hosts: Vec::new(),
            hub: hub.clone(),
            munged: Vec::new(),
            directory,
        };
        let ip = |line: &str| succeed(Command::new("ip").args(line.split_whitespace()));
        ip(&format!("-n {hub} link add bridge type bridge"));
        ip(&format!("-n {hub} link set bridge up"));
        for index in 1..=count {
            let (name, net) = (format!("n{index}"), space(&format!("n{index}")));
            let address = format!("10.77.0.{index}");
            ip(&format!("netns add {net}"));
            ip(&format!(
                "-n {hub} link add {name} type veth peer name eth0 netns {net}"
            ));
            ip(&format!("-n {hub} link set {name} master bridge up"));
            ip(&format!("-n {net} address add {address}/24 dev eth0"));
            ip(&format!("-n {net} link set eth0 up"));
            ip(&format!("-n {net} link set lo up"));
            let home = cluster.directory.path().join(&name);
            fs::create_dir(&home).unwrap();
            let script = format!(
                // Copies of other tests' mounts would keep those from ending.
                "awk '$3 ~ /^fuse/ {{ print $2 }}' /proc/self/mounts | xargs -r umount -l || true; \
                 hostname {name}; mount --bind {} {}; echo ready; exec sleep infinity",
                home.display(),
                local.display()
            );
            let mut holder = tied("nsenter")
                .arg(format!("--net=/run/netns/{net}"))
                .args(["unshare", "--mount", "--uts", "--propagation", "private"])
                .args(["sh", "-ec", &script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut ready = [0; 5];
            let mut said = holder.stdout.take().unwrap();
            std::io::Read::read_exact(&mut said, &mut ready).unwrap();
            cluster.hosts.push(Host {
                name,
                address,
                local: local.clone(),
                space: net,
                holder,
                home,
            });
        }
        cluster
    }

    /// The network name spaces.
    pub fn spaces(&self) -> Vec<String> {
        let hosts = self.hosts.iter().map(|host| host.space.clone());
        hosts.chain([self.hub.clone()]).collect()
    }

    /// The directory that all hosts see.
    pub fn pfs(&self) -> PathBuf {
        self.directory.path().join("pfs")
    }

    /// A `munged` with a key of its own; its socket, which all hosts see.
    pub fn munged(&mut self) -> PathBuf {
        let home = self
            .directory
            .path()
            .join(format!("munge{}", self.munged.len()));
        fs::create_dir(&home).unwrap();
        let key: Vec<u8> = (0..8)
            .flat_map(|_| {
                use std::hash::{BuildHasher, RandomState};
                RandomState::new().hash_one(0).to_le_bytes()
            })
            .collect();
        fs::write(home.join("key"), key).unwrap();
        fs::set_permissions(home.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let file = |option: &str, name: &str| format!("--{option}={}", home.join(name).display());
        let child = tied("munged")
            .args(["--foreground", "--force", "--origin=127.0.0.1"])
            .arg(file("key-file", "key"))
            .arg(file("socket", "socket"))
            .arg(file("pid-file", "pid"))
            .arg(file("log-file", "log"))
            .arg(file("seed-file", "seed"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("munged runs: scripts/setup.sh test installs the package `munge`");
        self.munged.push(child);
        let socket = home.join("socket");
        wait("munged starts", || socket.exists().then_some(()));
        socket
    }

    /// A pool's configuration that all hosts see, with a storage node on every host and the
    /// controller on the first.
    pub fn configuration(&self, name: &str, auth: &str, more: &str) -> PathBuf {
        let local = self.hosts[0].local.display();
        let mut text = format!(
            "[pool]\nname = \"flash\"\ngranularity = \"16MiB\"\nstripe = \"64KiB\"\n\n\
             [controller]\naddress = \"{}:7510\"\ndirectory = \"{local}/controller\"\n\
             socket = \"{local}/controller.socket\"\n\n\
             [agent]\ndirectory = \"{local}/agent\"\nmount_root = \"{local}/jobs\"\n\n\
             [auth]\n{auth}\n\n[staging]\nbelow = [\"{}\"]\n\n{more}\n",
            self.hosts[0].address,
            self.pfs().display()
        );
        for host in &self.hosts {
            text.push_str(&format!(
                "[[storage]]\nname = \"{}\"\naddress = \"{}:7511\"\n\
                 directory = \"{local}/flash\"\ncapacity = \"512MiB\"\n\n",
                host.name, host.address
            ));
        }
        let file = self.directory.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for munged in &mut self.munged {
            let _ = munged.kill();
            let _ = munged.wait();
        }
        self.hosts.clear();
        remove_space(&self.hub);
    }
}
