//! Failures of `nornsctl` without a service; `crates/app/forebayd/tests/norns` has the rest.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The exit code and the message of `nornsctl` with this configuration.
fn fails(configuration: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("norns.conf");
    std::fs::write(&file, configuration.replace("DIR", dir.path().to_str().unwrap())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nornsctl"));
    let output = command.arg("--config").arg(file).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn missing_service_exits_with_1_and_names_the_socket() {
    let sockets = "global_settings: { global_socket: DIR/global, control_socket: DIR/control }\n";
    let (code, message) = fails(sockets, &["ping"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("/control: The service is unreachable"), "{message}");
}

#[test]
fn socket_of_others_is_reported_as_one_without_permission() {
    let (closed, open) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let socket = closed.path().join("control");
    let _service = UnixListener::bind(&socket).unwrap();
    let file = open.path().join("norns.conf");
    let sockets = format!(
        "global_settings: {{ global_socket: {0}, control_socket: {0} }}\n",
        socket.display()
    );
    fs::write(&file, sockets).unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nornsctl"));
    let output =
        command.arg("--config").arg(file).arg("ping").uid(65534).gid(65534).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("permission denied"), "{message}");
}

#[test]
fn invalid_input_exits_with_2_and_says_what_is_wrong() {
    let (code, message) = fails("global_settings: { workers: 4 }\n", &["ping"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("`global_settings` does not set `global_socket`"), "{message}");
    let (code, message) = fails("", &["job", "add", "7", "--limit", "nvm"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("DATASPACE=BYTES"), "{message}");
}
