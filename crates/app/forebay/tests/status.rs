//! `forebay status` of various pools.

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env_remove("XDG_STATE_HOME")
            .env_remove("FOREBAY_LOG")
            .stdin(Stdio::null());
        command
    }

    fn forebay(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn script(&self, text: &str) -> Output {
        fs::write(self.path("job.sh"), self.filled(text)).unwrap();
        self.forebay(&["run", "--pool-size", "1GiB", "job.sh"])
    }

    fn filled(&self, text: &str) -> String {
        text.replace("%d", self.0.path().to_str().unwrap())
    }

    fn status(&self) -> String {
        let output = self.forebay(&["status"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self) -> Value {
        let output = self.forebay(&["status", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The cells of the line that begins with `first`.
fn cells<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.starts_with(first));
    let line = line.unwrap_or_else(|| panic!("no line `{first}` in\n{text}"));
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn status_without_a_pool_says_how_to_create_one() {
    let home = Home::new();
    for command in [&["status"][..], &["status", "--json"], &["top", "--once"]] {
        let output = home.forebay(command);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains(".forebay") && text.contains("`forebay run SCRIPT` makes one"),
            "{text}"
        );
        assert!(output.stdout.is_empty());
    }
    assert!(!home.path(".forebay").exists(), "looking makes nothing");
}

#[test]
fn status_shows_persistent_instances_and_an_empty_pool() {
    let home = Home::new();
    let create = "#!/bin/sh\n#DW create_persistent name=dbs capacity=32MiB type=scratch access_mode=striped\n";
    assert!(home.script(create).status.success());
    let text = home.status();
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    let user = String::from_utf8(user).unwrap();
    let row = cells(&text, "dbs ");
    assert_eq!(
        &row[..7],
        ["dbs", "persistent", user.trim(), "striped", "ready", "?", "32.0 MiB"],
        "{text}"
    );
    assert_eq!(
        &cells(&text, "embedded")[..4],
        ["embedded", "1.00 GiB", "32.0 MiB", "992 MiB"],
        "{text}"
    );
    assert!(!text.contains("interrupted"), "{text}");
    let json = home.json();
    assert_eq!(json["instances"][0]["label"], "dbs");
    assert_eq!(json["sessions"][0]["lifetime"], "persistent");
    assert_eq!(json["process"], Value::Null);
    let destroy = "#!/bin/sh\n#DW destroy_persistent name=dbs\n";
    assert!(home.script(destroy).status.success());
    let text = home.status();
    assert!(text.ends_with("\nnothing is allocated\n"), "{text}");
}

#[test]
fn status_of_a_running_job_shows_its_use_and_process() {
    let home = Home::new();
    let script = "#!/bin/sh
#DW jobdw capacity=32MiB type=scratch access_mode=striped
head -c 8388608 /dev/zero >${DW_JOB_STRIPED}data
touch %d/ready
while [ ! -e %d/go ]; do sleep 0.02; done
";
    fs::write(home.path("job.sh"), home.filled(script)).unwrap();
    let mut run = home
        .command(&["run", "--pool-size", "1GiB", "--job-id", "77", "job.sh"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !home.path("ready").exists() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Counters are published once a second.
    std::thread::sleep(Duration::from_millis(1500));
    let text = home.status();
    let row = cells(&text, "77 ");
    assert_eq!((row[1], row[4], row[5]), ("job 77", "ready", "8.00 MiB"), "{text}");
    let holder = format!("process {} has the pool open", run.id());
    assert!(text.contains(&holder) && text.contains("online"), "{text}");
    let json = home.json();
    assert_eq!(json["process"], run.id());
    let creates = &json["activity"][0]["store"]["requests"]["create"];
    assert_eq!(creates["failed"], 0);
    fs::write(home.path("go"), "").unwrap();
    assert!(run.wait().unwrap().success());
    assert!(home.status().contains("nothing is allocated"));
}

#[test]
fn status_of_a_failed_stage_shows_reason_and_advice() {
    let home = Home::new();
    let script = "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_out type=file source=$DW_JOB_STRIPED/r destination=%d/away/r
echo result >${DW_JOB_STRIPED}r
";
    assert_eq!(home.script(script).status.code(), Some(1));
    let text = home.status();
    assert!(text.contains("line 3, failed: "), "{text}");
    assert!(text.contains("away: the directory does not exist"), "{text}");
    assert!(
        text.contains("was interrupted: its data is here; `forebay recover` stages it out"),
        "{text}"
    );
    let once = home.forebay(&["top", "--once", "--interval", "0.1"]);
    let frame = String::from_utf8(once.stdout).unwrap();
    assert!(
        frame.contains("no process has the pool open") && frame.contains("failed: "),
        "{frame}"
    );
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let home = Home::new();
    fs::create_dir(home.path("in")).unwrap();
    // A pipe cannot be staged, and the message names it.
    let pipe = home.path("in/a\u{1b}[31mred\u{1b}]0;title\nline 9, failed: forged");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = home.script(
        "#!/bin/sh\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n\
         #DW stage_in type=directory source=%d/in destination=$DW_JOB_STRIPED/in\n",
    );
    assert!(!output.status.success());
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap() + &home.status();
    assert!(text.contains("a\\u{1b}[31mred"), "{text:?}");
    assert!(text.contains("title\\nline 9"), "{text:?}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn size_of_a_pool_is_refused_where_none_is_created() {
    let home = Home::new();
    for arguments in [
        &["status", "--pool-size", "1GiB"][..],
        &["recover", "--pool-size", "1GiB"],
        &["drain", "--pool-size", "1GiB", "node"],
        &["admin", "usage", "--pool-size", "1GiB"],
    ] {
        let output = home.forebay(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--pool-size"), "{arguments:?}");
    }
}
