//! A daemon under a service manager.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use forebay_control::controller::Request;
use forebay_daemon::ControllerClient;
use rustix::process::{Pid, Signal, kill_process};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A pool's configuration, and the socket of its service manager.
struct Site {
    home: tempfile::TempDir,
    manager: UnixDatagram,
}

impl Site {
    fn new() -> Site {
        let home = tempfile::tempdir().unwrap();
        let manager = UnixDatagram::bind(home.path().join("notify")).unwrap();
        manager.set_read_timeout(Some(TIMEOUT)).unwrap();
        let site = Site { home, manager };
        fs::write(site.path("key"), "a key for one test, and no other").unwrap();
        fs::set_permissions(site.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let directory = site.home.path().display();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let configuration = format!(
            "[pool]\nname = \"flash\"\ngranularity = \"1GiB\"\n\
             [controller]\naddress = \"{address}\"\ndirectory = \"{directory}/controller\"\n\
             socket = \"{directory}/socket\"\naudit_log = \"{directory}/audit\"\n\
             [agent]\ndirectory = \"{directory}/agent\"\n\
             [[storage]]\nname = \"bb1\"\naddress = \"127.0.0.1:1\"\n\
             directory = \"{directory}/flash\"\ncapacity = \"1GiB\"\n\
             [auth]\nmethod = \"key\"\nkey_file = \"{directory}/key\"\n"
        );
        fs::write(site.path("pool.toml"), configuration).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn daemon(&self, role: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebayd"));
        command.args([role, "--config"]).arg(self.path("pool.toml"));
        command.env("NOTIFY_SOCKET", self.path("notify")).env_remove("FOREBAY_LOG");
        command
    }

    /// The next message to the service manager.
    fn state(&self) -> std::io::Result<String> {
        let mut message = [0; 64];
        let length = self.manager.recv(&mut message)?;
        Ok(String::from_utf8(message[..length].to_vec()).unwrap())
    }
}

/// A daemon that is killed with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Lines of its standard error, as they come.
    fn lines(&mut self) -> Receiver<String> {
        let (sender, lines) = channel();
        let output = BufReader::new(self.0.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        lines
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for_line(lines: &Receiver<String>, part: &str) -> String {
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(TIMEOUT) {
        if line.contains(part) {
            return line;
        }
        seen.push(line);
    }
    panic!("no `{part}` in {seen:?}");
}

#[test]
fn daemon_reports_its_state_and_survives_sighup() {
    let site = Site::new();
    let mut controller = site.daemon("controller");
    let controller = controller.arg("--log").arg(site.path("log")).stderr(Stdio::null());
    let mut daemon = Running::start(controller);
    assert_eq!(site.state().unwrap(), "READY=1");
    daemon.signal(Signal::HUP);
    // A signal that ends the process does so before the next one.
    std::thread::sleep(Duration::from_millis(300));
    daemon.signal(Signal::TERM);
    assert_eq!(site.state().unwrap(), "STOPPING=1");
    assert!(daemon.0.wait().unwrap().success());
}

/// Makes the audit log a pipe that is full, so that the controller hangs in its first write.
fn full_pipe_as_audit_log(site: &Site) -> File {
    let pipe = site.path("audit");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let both = File::options().read(true).write(true).open(&pipe).unwrap();
    let flags = rustix::fs::fcntl_getfl(&both).unwrap();
    rustix::fs::fcntl_setfl(&both, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while (&both).write(&[0; 4096]).is_ok() {}
    while (&both).write(&[0]).is_ok() {}
    both
}

#[test]
fn watchdog_hears_from_a_daemon_until_it_hangs() {
    let site = Site::new();
    let pipe = full_pipe_as_audit_log(&site);
    let mut controller = site.daemon("controller");
    let _daemon = Running::start(controller.env("WATCHDOG_USEC", "600000").stderr(Stdio::null()));
    assert_eq!(site.state().unwrap(), "READY=1");
    for _ in 0..3 {
        assert_eq!(site.state().unwrap(), "WATCHDOG=1");
    }
    let client = ControllerClient::open(&site.path("pool.toml")).unwrap();
    let request = Request::DestroyPersistent { name: "absent".to_owned(), hurry: false };
    let _reply = client.submit(request).unwrap();
    site.manager.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    // Reports every 0.3 s, of the time before the request arrived.
    let last = (0..200).find_map(|_| site.state().err());
    assert_eq!(last.unwrap().kind(), std::io::ErrorKind::WouldBlock);
    drop(pipe);
}

#[test]
fn warnings_in_the_journal_have_priorities() {
    let site = Site::new();
    // The journal's end of standard error, which the environment names.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let found = rustix::fs::fstat(&theirs).unwrap();
    let mut agent = site.daemon("agent");
    agent.env("JOURNAL_STREAM", format!("{}:{}", found.st_dev, found.st_ino));
    let daemon = Running::start(agent.stderr(Stdio::from(std::os::fd::OwnedFd::from(theirs))));
    ours.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut lines = BufReader::new(ours).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("the controller is unreachable")).unwrap();
    assert!(line.starts_with("<4>forebay_daemon"), "{line}");
    drop(daemon);

    let mut daemon = Running::start(site.daemon("agent").stderr(Stdio::piped()));
    let line = wait_for_line(&daemon.lines(), "the controller is unreachable");
    assert!(line.contains(" WARN ") && !line.starts_with('<'), "{line}");
}

#[test]
fn controller_applies_a_changed_configuration_when_it_is_reloaded() {
    let site = Site::new();
    let mut daemon = Running::start(site.daemon("controller").stderr(Stdio::piped()));
    let lines = daemon.lines();
    wait_for_line(&lines, "is running");
    let client = ControllerClient::open(&site.path("pool.toml")).unwrap();
    let nodes = || {
        let nodes = client.status().unwrap().control.nodes;
        nodes.into_iter().map(|node| (node.name, node.granules)).collect::<Vec<_>>()
    };
    let bb1 = ("bb1".to_owned(), 1);
    let bb2 = ("bb2".to_owned(), 3);
    assert_eq!(nodes(), std::slice::from_ref(&bb1));

    let file = site.path("pool.toml");
    let text = fs::read_to_string(&file).unwrap();
    let more = format!(
        "{text}[[storage]]\nname = \"bb2\"\naddress = \"127.0.0.1:2\"\n\
         directory = \"/flash\"\ncapacity = \"3GiB\"\n"
    );
    fs::write(&file, &more).unwrap();
    daemon.signal(Signal::HUP);
    wait_for_line(&lines, ": reloaded");
    assert_eq!(nodes(), [bb1.clone(), bb2.clone()]);

    fs::write(&file, more.replace("3GiB", "3GaB")).unwrap();
    daemon.signal(Signal::HUP);
    let line = wait_for_line(&lines, "not reloaded");
    assert!(line.contains("GaB"), "{line}");
    assert_eq!(nodes(), [bb1.clone(), bb2.clone()]);

    // Not applied, but neither refused.
    let later = [("capacity = \"1GiB\"", "capacity = \"2GiB\""), ("127.0.0.1:2", "127.0.0.1:3")];
    for (old, new) in later {
        fs::write(&file, more.replace(old, new)).unwrap();
        daemon.signal(Signal::HUP);
        let line = wait_for_line(&lines, "will change with a restart");
        assert!(line.contains("address, directory, capacity or"), "{line}");
        wait_for_line(&lines, ": reloaded");
        assert_eq!(nodes(), [bb1.clone(), bb2.clone()]);
    }

    for (old, new) in
        [("granularity = \"1GiB\"", "granularity = \"512MiB\""), ("flash\"", "other\"")]
    {
        fs::write(&file, more.replacen(old, new, 1)).unwrap();
        daemon.signal(Signal::HUP);
        let line = wait_for_line(&lines, "not reloaded");
        assert!(line.contains("cannot be changed") && line.contains(" WARN "), "{line}");
        assert_eq!(nodes(), [bb1.clone(), bb2.clone()]);
    }
    assert_eq!(client.status().unwrap().control.pools.len(), 1);
}

#[test]
fn signal_for_log_rotation_reloads_no_configuration_of_an_agent() {
    let site = Site::new();
    let mut daemon = Running::start(site.daemon("agent").stderr(Stdio::piped()));
    let lines = daemon.lines();
    wait_for_line(&lines, "is running");
    daemon.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    daemon.signal(Signal::TERM);
    assert!(daemon.0.wait().unwrap().success());
    let rest: Vec<String> = lines.iter().collect();
    assert!(!rest.iter().any(|line| line.contains("reloaded")), "{rest:?}");
}
