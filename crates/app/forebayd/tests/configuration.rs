//! The example configuration and units, and the check of a configuration.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/pool")
}

fn check(configuration: &str) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), configuration).unwrap();
    Command::new(env!("CARGO_BIN_EXE_forebayd"))
        .args(["controller", "--check", "--config"])
        .arg(file.path())
        .output()
        .unwrap()
}

#[test]
fn example_configuration_is_valid() {
    let text = fs::read_to_string(examples().join("pool.toml")).unwrap();
    let output = check(&text);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("the configuration of pool `flash` is valid"), "{stdout}");
}

#[test]
fn error_in_configuration_exits_with_2_and_names_the_line() {
    let text = fs::read_to_string(examples().join("pool.toml")).unwrap();
    let output = check(&text.replacen("10.0.0.12:7511", "10.0.0.12", 1));
    assert_eq!(output.status.code(), Some(2));
    let line = text.lines().position(|l| l.contains("10.0.0.12:7511"));
    let reason = format!(":{}: `10.0.0.12` has no port", line.unwrap() + 1);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&reason), "{stderr}");
}

#[test]
fn example_units_start_each_daemon() {
    for daemon in ["controller", "storage", "agent"] {
        let unit = examples().join(format!("forebay-{daemon}.service"));
        let command = format!("forebayd {daemon} --config /etc/forebay/pool.toml");
        assert!(fs::read_to_string(unit).unwrap().contains(&command));
    }
}
