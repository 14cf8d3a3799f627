//! Logs of a job: to a file as text or JSON; to standard error only errors.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SCRIPT: &str = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_in type=file source=%d/input destination=$DW_JOB_STRIPED/input
#DW stage_out type=file source=$DW_JOB_STRIPED/absent destination=%d/absent
echo output of the script
";

fn run(directory: &Path, log: Option<&str>, arguments: &[&str]) -> Output {
    let script = SCRIPT.replace("%d", directory.to_str().unwrap());
    fs::write(directory.join("job.sh"), script).unwrap();
    fs::write(directory.join("input"), "some input\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command
        .args(arguments)
        .args(["run", "--pool", "pool", "--pool-size", "1GiB", "job.sh"])
        .current_dir(directory)
        .env_remove("FOREBAY_LOG")
        .stdin(Stdio::null());
    if let Some(log) = log {
        command.env("FOREBAY_LOG", log);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn log_file_gets_events_of_sessions_instances_and_stages() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let arguments = ["--log", log.to_str().unwrap(), "--log-format", "json"];
    let output = run(directory.path(), None, &arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stdout), "output of the script\n");
    let stderr = text(&output.stderr);
    assert!(
        !stderr.contains("INFO") && !stderr.contains("WARN") && !stderr.contains("\"level\""),
        "{stderr}"
    );
    let lines: Vec<Value> = fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |message: &str| {
        let found = lines.iter().find(|l| l["fields"]["message"] == message);
        found.unwrap_or_else(|| panic!("no `{message}` in {lines:#?}"))
    };
    for message in
        ["storage daemon started", "session began", "instance created", "mounted", "unmounted"]
    {
        assert_eq!(find(message)["level"], "INFO", "{message}");
    }
    let done = find("stage completed");
    assert_eq!((&done["fields"]["files"], &done["fields"]["bytes"]), (&1.into(), &11.into()));
    assert_eq!(
        (&done["span"]["name"], &done["span"]["direction"], &done["span"]["line"]),
        (&"stage".into(), &"in".into(), &3.into())
    );
    let failed = find("stage failed");
    assert_eq!((&failed["level"], &failed["span"]["direction"]), (&"WARN".into(), &"out".into()));
    // Levels below the filter are absent.
    assert!(lines.iter().all(|line| line["level"] != "DEBUG"));
    // Another run appends.
    let before = lines.len();
    run(directory.path(), None, &arguments);
    assert!(fs::read_to_string(&log).unwrap().lines().count() > before);
}

#[test]
fn log_filter_selects_levels_and_targets() {
    let directory = tempfile::tempdir().unwrap();
    let usual = run(directory.path(), None, &[]);
    let stderr = text(&usual.stderr);
    assert!(!stderr.contains("WARN") && stderr.contains("error: "), "{stderr}");
    let warned = run(directory.path(), Some("warn"), &[]);
    let stderr = text(&warned.stderr);
    let warnings: Vec<_> = stderr.lines().filter(|l| l.contains(" WARN ")).collect();
    assert_eq!(warnings.len(), 1, "{stderr}");
    assert!(warnings[0].contains("stage{") && warnings[0].contains("stage failed"), "{stderr}");
    assert!(!stderr.contains(" INFO "), "{stderr}");
    let one = run(directory.path(), Some("forebay_daemon=debug,off"), &[]);
    let stderr = text(&one.stderr);
    assert!(
        stderr.contains("DEBUG forebay_daemon::") && !stderr.contains("forebay_store"),
        "{stderr}"
    );
    assert_eq!(text(&one.stdout), "output of the script\n");
}

#[test]
fn invalid_log_arguments_exit_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let output = run(directory.path(), Some("forebay=loudly"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("FOREBAY_LOG: `forebay=loudly`") && stderr.contains("write a level"),
        "{stderr}"
    );
    let output = run(directory.path(), None, &["--log", "/nowhere/log"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--log /nowhere/log:"), "{output:?}");
    let output = run(directory.path(), None, &["--log-format", "xml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!directory.path().join("pool").exists(), "no pool is created");
}
