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
        let unit = fs::read_to_string(unit).unwrap();
        for setting in [
            &*command,
            "Type=notify",
            "WatchdogSec=",
            "After=network-online.target munge.service",
            "Restart=on-failure",
            "ExecReload=kill -HUP $MAINPID",
        ] {
            assert!(unit.contains(setting), "{setting}: {unit}");
        }
        // The agent mounts file systems for users, in the host's mount namespace.
        if daemon != "agent" {
            assert!(unit.contains("NoNewPrivileges=yes"), "{unit}");
            assert!(unit.contains("CapabilityBoundingSet=CAP_"), "{unit}");
        }
    }
}

#[test]
fn configuration_of_norns_in_the_documentation_is_the_valid_example_and_a_unit_starts_it() {
    let examples = examples().join("../norns");
    let file = examples.join("norns.conf");
    let text = fs::read_to_string(&file).unwrap();
    assert!(include_str!("../../../../docs/norns.md").contains(&format!("```yaml\n{text}```")));
    let check = |file: &Path, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebayd"));
        command.args(["norns", "--check", "--config"]).arg(file).args(more).output().unwrap()
    };
    let output = check(&file, &[]);
    assert!(output.status.success(), "{output:?}");
    let wrong = tempfile::NamedTempFile::new().unwrap();
    fs::write(wrong.path(), text.replace("workers: 4", "workers: many")).unwrap();
    for (output, reason) in [
        (check(wrong.path(), &[]), "`workers: many` in `global_settings`: write a number"),
        (check(&file, &["--name", "n0"]), "--name is for the daemons of a pool"),
    ] {
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(reason), "{stderr}");
    }
    let unit = fs::read_to_string(examples.join("forebay-norns.service")).unwrap();
    assert!(unit.contains("forebayd norns --config /etc/norns/norns.conf"));
}
