//! A node with the data transfer service, and a C program that uses its libraries.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Ordinary users.
pub const USER: u32 = 23_456;
pub const OTHER: u32 = 23_457;
/// The job of the site's processes.
pub const JOB: &str = "42";

pub struct Site {
    pub dir: tempfile::TempDir,
    /// The port for other nodes.
    pub port: u16,
    /// The line of the configuration with the secret.
    secret: String,
    daemon: Option<Child>,
}

/// A `munged` with a key of its own.
pub struct Munged {
    home: tempfile::TempDir,
    child: Child,
}

impl Munged {
    pub fn start() -> Munged {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut key = [0; 64];
        fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key)).unwrap();
        fs::write(home.path().join("key"), key).unwrap();
        fs::set_permissions(home.path().join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = Command::new("munged");
        command.args(["--foreground", "--force", "--origin=127.0.0.1"]);
        for (option, name) in [
            ("key-file", "key"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("log-file", "log"),
            ("seed-file", "seed"),
        ] {
            command.arg(format!("--{option}={}", home.path().join(name).display()));
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("munged: `scripts/setup.sh test` installs the package `munge`");
        let munged = Munged { home, child };
        let started = Instant::now();
        while !munged.socket().exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "munged does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        munged
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join("socket")
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

impl Site {
    /// A node with the dataspaces `src` and `dst` of the user, which `JOB` may use, and `open`,
    /// which all may use. The user's processes that this one starts belong to the job.
    pub fn new() -> Site {
        Site::with_key("a secret of the nodes")
    }

    /// As [`Site::new`], with this secret of its own and of other nodes.
    pub fn with_key(key: &str) -> Site {
        Site::prepare(|dir| {
            let file = dir.join("key");
            fs::write(&file, key).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            format!("key_file: \"{}\"", file.display())
        })
    }

    /// As [`Site::new`], with MUNGE instead of a secret.
    pub fn with_munge(munged: &Munged) -> Site {
        Site::prepare(|_| format!("munge_socket: \"{}\"", munged.socket().display()))
    }

    fn prepare(secret: impl FnOnce(&Path) -> String) -> Site {
        assert!(rustix::process::geteuid().is_root(), "these tests change users: run them as root");
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let secret = secret(dir.path());
        let mut site = Site { dir, port: free_port(), secret, daemon: None };
        for space in ["src", "dst", "open"] {
            fs::create_dir(site.path(space)).unwrap();
            chown(site.path(space), Some(USER), Some(USER)).unwrap();
        }
        fs::set_permissions(site.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
        site.compile();
        site.configure();
        site.start();
        for space in ["src", "dst"] {
            site.control(&["space", space, site.path(space).to_str().unwrap(), "1000"]);
        }
        site
    }

    /// Registers the job with a quota in `dst`; in `src` with the same.
    pub fn with_job(self, quota: &str) -> Site {
        self.control(&["job", JOB, "dst", quota]);
        self.control(&["process", JOB, &USER.to_string(), &std::process::id().to_string()]);
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of the user.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        let parent = path.parent().unwrap();
        fs::create_dir_all(parent).unwrap();
        fs::write(&path, contents).unwrap();
        for created in [parent, &path] {
            chown(created, Some(USER), Some(USER)).unwrap();
        }
    }

    fn compile(&self) {
        let built = std::env::current_exe().unwrap();
        for library in ["libnorns.so", "libnornsctl.so"] {
            fs::copy(built.with_file_name(library), self.path(library)).unwrap();
        }
        let compiled = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .arg(self.path("program"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/norns/program.c"))
            .arg("-I")
            .arg(root().join("crates/bridges/norns/include"))
            .arg("-L")
            .arg(self.dir.path())
            .args(["-lnorns", "-lnornsctl"])
            .arg(format!("-Wl,-rpath,{}", self.dir.path().display()))
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }

    fn configure(&self) {
        let (at, port, secret) = (self.dir.path().display(), self.port, &self.secret);
        let text = format!(
            "global_settings: [
  use_syslog: false,
  log_file: \"{at}/urd.log\",
  global_socket: \"{at}/global.socket\",
  control_socket: \"{at}/control.socket\",
  bind_address: \"127.0.0.1\",
  remote_port: {port},
  pidfile: \"{at}/urd.pid\",
  workers: 2,
  staging_directory: \"{at}/state\",
  {secret}
]
namespaces: [
  [ nsid: \"open\", track_contents: false, mountpoint: \"{at}/open\", type: \"POSIX/SHARED\",
    capacity: \"1 GiB\", visibility: \"all\" ],
]
"
        );
        fs::write(self.path("urd.conf"), text).unwrap();
    }

    /// Starts the service and waits until it answers.
    pub fn start(&mut self) {
        assert!(self.daemon.is_none());
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebayd"));
        command.args(["norns", "--config"]).arg(self.path("urd.conf"));
        let daemon = command.stderr(Stdio::null()).spawn().unwrap();
        self.daemon = Some(daemon);
        let started = Instant::now();
        while !self.run(0, &["command", "1000"]).0 {
            assert!(started.elapsed() < Duration::from_secs(20), "the service does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the service, as a crash does.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Waits until the service has ended by itself; returns whether it succeeded.
    pub fn await_end(&mut self) -> bool {
        self.daemon.take().unwrap().wait().unwrap().success()
    }

    /// Runs the program as `uid`. Returns whether it succeeded, and what it printed.
    pub fn run(&self, uid: u32, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(self.path("program"));
        command.args(arguments).env("NORNS_CONFIG_FILE", self.path("urd.conf"));
        // That of cargo may lead to libraries of an earlier build.
        command.env_remove("LD_LIBRARY_PATH");
        let output = command.uid(uid).gid(uid).current_dir("/").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        (output.status.success(), printed.trim_end().to_owned())
    }

    /// A path in a dataspace of this node, for the program on another one.
    pub fn remote(&self, nsid: &str, path: &str) -> String {
        format!("remote:127.0.0.1@{}:{nsid}:{path}", self.port)
    }

    /// Runs the program as the user; it must succeed.
    pub fn user(&self, arguments: &[&str]) -> String {
        let (success, printed) = self.run(USER, arguments);
        assert!(success, "{arguments:?}: {printed}");
        printed
    }

    /// Runs the program as the user; it must fail.
    pub fn user_fails(&self, arguments: &[&str]) -> String {
        let (success, printed) = self.run(USER, arguments);
        assert!(!success, "{arguments:?}: {printed}");
        printed
    }

    /// Runs the program as root; it must succeed.
    pub fn control(&self, arguments: &[&str]) -> String {
        let (success, printed) = self.run(0, arguments);
        assert!(success, "{arguments:?}: {printed}");
        printed
    }

    /// Runs `nornsctl` as root. Returns whether it succeeded, and what it printed.
    pub fn nornsctl(&self, arguments: &str) -> (bool, String) {
        let mut command = Command::new(built("forebay-nornsctl", "nornsctl"));
        command.arg("--config").arg(self.path("urd.conf")).args(arguments.split_whitespace());
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// Names in a directory, hidden ones too.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A port at which nothing listens.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A program of another package: that of the last test of the workspace, built here if there is none.
pub fn built(package: &str, name: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap();
    let forebayd = Path::new(env!("CARGO_BIN_EXE_forebayd"));
    let program = forebayd.with_file_name(name);
    if program.exists() {
        return program;
    }
    let is_release = forebayd.components().any(|part| part.as_os_str() == "release");
    let profile = if is_release { "--profile=release" } else { "--profile=test" };
    let (package, bin) = (format!("--package={package}"), format!("--bin={name}"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", profile, &package, &bin]);
    assert!(build.status().unwrap().success());
    program
}

/// The program's report of a task that failed with this number of `errno(3)`.
pub fn failed(printed: &str, errno: i32) -> bool {
    printed.contains(&format!("status -104 result -201 errno {errno} "))
}
