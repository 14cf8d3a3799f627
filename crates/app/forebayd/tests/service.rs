//! A daemon under a service manager.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

#[test]
fn daemon_reports_its_state_and_survives_sighup() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    fs::write(path("key"), "a key for one test, and no other").unwrap();
    fs::set_permissions(path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let directory = home.path().display();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let configuration = format!(
        "[pool]\nname = \"flash\"\ngranularity = \"1GiB\"\n\
         [controller]\naddress = \"{address}\"\ndirectory = \"{directory}/controller\"\n\
         socket = \"{directory}/socket\"\n\
         [[storage]]\nname = \"bb1\"\naddress = \"127.0.0.1:1\"\ndirectory = \"{directory}/flash\"\n\
         capacity = \"1GiB\"\n\
         [auth]\nmethod = \"key\"\nkey_file = \"{directory}/key\"\n"
    );
    fs::write(path("pool.toml"), configuration).unwrap();
    let manager = UnixDatagram::bind(path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let state = || {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_forebayd"))
        .args(["controller", "--config"])
        .arg(path("pool.toml"))
        .arg("--log")
        .arg(path("log"))
        .env("NOTIFY_SOCKET", path("notify"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(state(), "READY=1");
    let pid = Pid::from_child(&daemon);
    kill_process(pid, Signal::HUP).unwrap();
    // A signal that ends the process does so before the next one.
    std::thread::sleep(Duration::from_millis(300));
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(state(), "STOPPING=1");
    assert!(daemon.wait().unwrap().success());
}
