//! A cluster of hosts on this machine: each has a network namespace with its own address, a mount
//! namespace with its own directory, and a host name. Dropping the cluster removes everything,
//! also when the test has failed.

pub mod clock;
mod programs;
pub mod site;
pub mod slurm;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test uses some of them")]
pub use programs::{
    build, build_packages, built_program, forebayd, interception_library, program, workflow_plugin,
};

/// User and group of a process.
pub type User = (u32, u32);

const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
const LOG_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls `condition` until it gives a value; panics after two minutes: Slurm looks for jobs to tear down every thirty seconds.
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "timeout: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A command that the kernel kills when the calling thread ends.
pub fn killed_with_us(program: &str) -> Command {
    let mut command = Command::new(program);
    let set_death_signal = || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(std::io::Error::from)
    };
    // SAFETY: the closure makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(set_death_signal) };
    command
}

fn run_successfully(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text_of(&output));
}

/// Standard output and standard error of a command.
pub fn text_of(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Kills all processes in a network namespace and removes the namespace. A host's mounts vanish
/// with its last process.
fn remove_namespace(namespace: &str) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        let listing = Command::new("ip").args(["netns", "pids", namespace]).output();
        let listing = listing.map_or(String::new(), |output| text_of(&output));
        let processes: Vec<_> = listing
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
    let _ = Command::new("ip").args(["netns", "del", namespace]).output();
}

/// Removes the namespaces of test processes that were killed.
fn remove_stale_namespaces() {
    let Ok(list) = fs::read_dir("/run/netns") else {
        return;
    };
    for entry in list.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("forebay-").and_then(|n| n.split('-').next());
        let dead = |process: &str| !Path::new("/proc").join(process).exists();
        if process.is_some_and(dead) {
            remove_namespace(&name);
        }
    }
}

/// A running daemon; killed when it is dropped.
pub struct Daemon {
    child: Child,
    pub log: PathBuf,
}

impl Daemon {
    /// Suspends it with SIGSTOP, as on a host that hangs.
    pub fn suspend(&self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    }

    /// Continues it after [`suspend`](Self::suspend).
    pub fn resume(&self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it with SIGTERM and returns its exit code.
    pub fn stop(&mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        wait_until("daemon exits", || self.exit_code())
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until its output contains `text`.
    pub fn wait_for_output(&self, text: &str) {
        let start = Instant::now();
        loop {
            let output = self.output();
            if output.contains(text) {
                return;
            }
            assert!(start.elapsed() < LOG_TIMEOUT, "no `{text}` in\n{output}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Its exit code, if it has exited; -1 if a signal ended it.
    pub fn exit_code(&mut self) -> Option<i32> {
        let status = self.child.try_wait().unwrap();
        status.map(|status| status.code().unwrap_or(-1))
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
    /// Path of its own directory inside its mount namespace, the same on all hosts.
    pub local: PathBuf,
    namespace: String,
    /// Process that keeps the namespaces alive.
    holder: Child,
    /// Path of its own directory outside.
    home: PathBuf,
}

impl Host {
    /// The process that keeps its namespaces, which they can be entered by.
    pub fn holder_id(&self) -> u32 {
        self.holder.id()
    }

    /// Its processes with their command lines, without the one that keeps its namespaces.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let listing = Command::new("ip").args(["netns", "pids", &self.namespace]).output().unwrap();
        let numbers = text_of(&listing);
        let numbers = numbers.lines().filter_map(|line| line.trim().parse().ok());
        let numbers = numbers.filter(|number| *number != self.holder.id());
        let with_line = numbers.map(|number| {
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            (number, String::from_utf8_lossy(&line).replace('\0', " "))
        });
        // One that has just ended has no command line.
        with_line.filter(|(_, line)| !line.is_empty()).collect()
    }

    /// A command on this host, run by `user`.
    pub fn command(&self, user: User, program: &str) -> Command {
        let mut command = killed_with_us("nsenter");
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

    /// Runs a shell script on this host.
    pub fn shell(&self, user: User, script: &str) -> Output {
        let mut command = self.command(user, "sh");
        command.args(["-ec", script]).output().unwrap()
    }

    /// Runs `forebay` on this host.
    pub fn forebay(&self, user: User, arguments: &[&str]) -> Output {
        let mut command = self.command(user, program("forebay").to_str().unwrap());
        command.args(arguments).output().unwrap()
    }

    /// Starts `forebayd` on this host, as root.
    pub fn start_daemon(&self, arguments: &[&str]) -> Daemon {
        self.start_daemon_of(forebayd(), arguments)
    }

    /// Starts this `forebayd`, which may be that of another release, on this host, as root.
    pub fn start_daemon_of(&self, forebayd: &Path, arguments: &[&str]) -> Daemon {
        let mut command = self.command((0, 0), forebayd.to_str().unwrap());
        command.env("FOREBAY_LOG", "warn").args(arguments);
        self.start_logged(arguments[0], command)
    }

    /// Starts a command of this host, with its output in a log.
    pub fn start_logged(&self, name: &str, mut command: Command) -> Daemon {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let log = self.home.join(format!("log-{name}-{number}"));
        let file = fs::File::create(&log).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Daemon { child: command.spawn().unwrap(), log }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Commands of other users outlive the test: the kernel clears the death signal when a
        // process changes its user.
        remove_namespace(&self.namespace);
        let _ = self.holder.wait();
    }
}

/// Hosts on one network, with a shared directory: the parallel file system.
pub struct Cluster {
    pub hosts: Vec<Host>,
    hub: String,
    munged: Vec<Child>,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// A cluster of `count` hosts `n1`, `n2`, and so on.
    pub fn new(count: usize) -> Cluster {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test makes network namespaces: run it as root"
        );
        remove_stale_namespaces();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = |end: &str| format!("forebay-{}-{number}{end}", std::process::id());
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
        let hub = namespace("hub");
        run_successfully(Command::new("ip").args(["netns", "add", &hub]));
        let mut cluster =
            Cluster { hosts: Vec::new(), hub: hub.clone(), munged: Vec::new(), directory };
        let ip = |line: &str| run_successfully(Command::new("ip").args(line.split_whitespace()));
        ip(&format!("-n {hub} link add bridge type bridge"));
        ip(&format!("-n {hub} link set bridge up"));
        for index in 1..=count {
            let (name, net) = (format!("n{index}"), namespace(&format!("n{index}")));
            let address = format!("10.77.0.{index}");
            ip(&format!("netns add {net}"));
            ip(&format!("-n {hub} link add {name} type veth peer name eth0 netns {net}"));
            ip(&format!("-n {hub} link set {name} master bridge up"));
            ip(&format!("-n {net} address add {address}/24 dev eth0"));
            ip(&format!("-n {net} link set eth0 up"));
            ip(&format!("-n {net} link set lo up"));
            let home = cluster.directory.path().join(&name);
            fs::create_dir(&home).unwrap();
            let script = format!(
                // Copies of other tests' mounts would keep those mounts busy.
                "awk '$3 ~ /^fuse/ {{ print $2 }}' /proc/self/mounts | xargs -r umount -l || true; \
                 hostname {name}; mount --bind {} {}; echo ready; exec sleep infinity",
                home.display(),
                local.display()
            );
            let mut holder = killed_with_us("nsenter")
                .arg(format!("--net=/run/netns/{net}"))
                .args(["unshare", "--mount", "--uts", "--propagation", "private"])
                .args(["sh", "-ec", &script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut ready = [0; 5];
            let mut stdout = holder.stdout.take().unwrap();
            std::io::Read::read_exact(&mut stdout, &mut ready).unwrap();
            cluster.hosts.push(Host {
                name,
                address,
                local: local.clone(),
                namespace: net,
                holder,
                home,
            });
        }
        cluster
    }

    /// Names of the network namespaces.
    pub fn namespaces(&self) -> Vec<String> {
        let hosts = self.hosts.iter().map(|host| host.namespace.clone());
        hosts.chain([self.hub.clone()]).collect()
    }

    /// Sets the link of a host to `up` or `down`.
    pub fn set_link(&self, host: usize, state: &str) {
        let name = &self.hosts[host].name;
        run_successfully(Command::new("ip").args(["-n", &self.hub, "link", "set", name, state]));
    }

    /// The directory that all hosts share.
    pub fn pfs(&self) -> PathBuf {
        self.directory.path().join("pfs")
    }

    /// Starts a `munged` with a key of its own and returns its socket, which all hosts can reach.
    pub fn start_munged(&mut self) -> PathBuf {
        let home = self.directory.path().join(format!("munge{}", self.munged.len()));
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
        let child = killed_with_us("munged")
            .args(["--foreground", "--force", "--origin=127.0.0.1"])
            .arg(file("key-file", "key"))
            .arg(file("socket", "socket"))
            .arg(file("pid-file", "pid"))
            .arg(file("log-file", "log"))
            .arg(file("seed-file", "seed"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("munged: `scripts/setup.sh test` installs the package `munge`");
        self.munged.push(child);
        let socket = home.join("socket");
        wait_until("munged starts", || socket.exists().then_some(()));
        socket
    }

    /// Writes a pool's configuration to the shared directory: a storage node on every host, the
    /// controller on the first.
    pub fn write_configuration(&self, name: &str, auth: &str, more: &str) -> PathBuf {
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
        remove_namespace(&self.hub);
    }
}
