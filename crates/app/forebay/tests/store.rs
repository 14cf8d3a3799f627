//! `forebay store` on the directory of a stopped storage daemon.

use forebay_store::daemon::{Daemon, StoreOptions};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const JOB: &str = "#!/bin/sh
#DW create_persistent name=dbs capacity=32MiB type=scratch access_mode=striped
#DW create_persistent name=other capacity=32MiB type=scratch access_mode=striped
";
const FILL: &str = "#!/bin/sh
#DW persistentdw name=dbs
mkdir $DW_PERSISTENT_STRIPED_dbs/d
seq 1000 > $DW_PERSISTENT_STRIPED_dbs/d/numbers
ln -s d $DW_PERSISTENT_STRIPED_dbs/link
";

fn forebay(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .current_dir(home)
        .env_remove("XDG_STATE_HOME")
        .env_remove("FOREBAY_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Exit code and output.
fn outcome(home: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = forebay(home, arguments);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn run(home: &Path, script: &str) {
    fs::write(home.join("job.sh"), script).unwrap();
    let output = forebay(home, &["run", "--pool-size", "1GiB", "job.sh"]);
    assert!(output.status.success(), "{output:?}");
}

fn dump(home: &Path, more: &[&str]) -> Value {
    let arguments = [&["store", "dump", ".forebay"], more].concat();
    let output = forebay(home, &arguments);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The files of the log whose names begin with `prefix`, in order.
fn log_files(home: &Path, prefix: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(home.join(".forebay/flash/log")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix));
    files.sort();
    files
}

fn flip_bit(file: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn stopped_store_is_checked_dumped_and_repaired() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    run(home, JOB);
    run(home, FILL);
    let (code, text) = outcome(home, &["store", "check", ".forebay"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("inodes") && !text.contains("damage"), "{text}");

    let all = dump(home, &["--names"]);
    let instances = all["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 2, "{all}");
    let names = |instance: &Value| instance["names"].as_array().unwrap().clone();
    let find = |instance: &Value, end: &str| {
        let mut names = names(instance).into_iter();
        names.find(|name| name["path"].as_str().unwrap().ends_with(end))
    };
    let full = instances.iter().find(|instance| find(instance, "/d/numbers").is_some()).unwrap();
    let file = find(full, "/d/numbers").unwrap();
    assert_eq!((&file["kind"], &file["size"]), (&"file".into(), &3893.into()), "{full}");
    let link = find(full, "/link").unwrap();
    assert_eq!(link["kind"], "symlink");
    assert!(dump(home, &[])["instances"][0].get("names").is_none());
    let id = full["id"].as_u64().unwrap();

    // It is refused without confirmation, and while a daemon runs.
    let drop = |more: &[&str]| {
        let number = id.to_string();
        let arguments = ["store", "drop-instance", ".forebay", "--instance", &number];
        outcome(home, &[&arguments[..], more].concat())
    };
    let (code, text) = drop(&[]);
    assert!(code == Some(2) && text.contains("--destroy-data"), "{code:?} {text}");
    let daemon = Daemon::start(StoreOptions::new(home.join(".forebay/flash"))).unwrap();
    for command in ["check", "dump"] {
        let (code, text) = outcome(home, &["store", command, ".forebay"]);
        assert!(code == Some(1) && text.contains("stop the daemon"), "{code:?} {text}");
    }
    assert_eq!(drop(&["--destroy-data"]).0, Some(1));
    daemon.stop().unwrap();
    assert_eq!(dump(home, &[])["instances"].as_array().unwrap().len(), 2);

    let (code, text) = drop(&["--destroy-data"]);
    assert_eq!(code, Some(0), "{text}");
    let rest = dump(home, &[]);
    let rest = rest["instances"].as_array().unwrap();
    assert!(rest.len() == 1 && rest[0]["id"] != full["id"], "{rest:?}");
    assert_eq!(drop(&["--destroy-data"]).0, Some(1), "it is gone");
    let objects = home.join(format!(".forebay/flash/objects/{id:016x}"));
    assert!(objects.exists());
    Daemon::start(StoreOptions::new(home.join(".forebay/flash"))).unwrap().stop().unwrap();
    assert!(!objects.exists());
    let (code, text) = outcome(home, &["store", "check", ".forebay"]);
    assert_eq!(code, Some(0), "{text}");

    // A damaged checkpoint is reported, and the log before it is used instead.
    let newest = log_files(home, "checkpoint.0").pop().unwrap();
    flip_bit(&newest, 40);
    let (code, text) = outcome(home, &["store", "check", ".forebay"]);
    assert!(code == Some(1) && text.contains("damaged"), "{code:?} {text}");
    Daemon::start(StoreOptions::new(home.join(".forebay/flash"))).unwrap().stop().unwrap();
    assert_eq!(dump(home, &[])["instances"].as_array().unwrap(), rest);

    // Damage in the log.
    let segment = log_files(home, "log.").remove(0);
    flip_bit(&segment, 30);
    let (code, text) = outcome(home, &["store", "check", ".forebay"]);
    assert!(code == Some(1) && text.contains("log"), "{code:?} {text}");
    assert!(Daemon::start(StoreOptions::new(home.join(".forebay/flash"))).is_err());
}

#[test]
fn directories_of_the_format_before_are_read_and_those_of_newer_releases_refused() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    run(home, JOB);
    run(home, FILL);
    let format = home.join(".forebay/flash/log/format");
    assert_eq!(fs::read_to_string(&format).unwrap(), "3\n");

    fs::write(&format, "4\n").unwrap();
    let contents = || {
        let files = log_files(home, "").into_iter().map(|file| fs::read(file).unwrap());
        files.collect::<Vec<_>>()
    };
    let before = contents();
    let commands = [
        &["run", "job.sh"][..],
        &["store", "check", ".forebay"],
        &["store", "dump", ".forebay"],
        &["store", "drop-instance", ".forebay", "--instance", "1", "--destroy-data"],
    ];
    for command in commands {
        let (code, text) = outcome(home, command);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("version 4") && text.contains("versions 1 to 3"), "{text}");
    }
    assert_eq!(contents(), before, "a directory that is refused is not changed");

    // Installations from before the version was noted.
    fs::remove_file(&format).unwrap();
    let (code, text) = outcome(home, &["store", "check", ".forebay"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(!format.exists());
    let verify = "#!/bin/sh\n#DW persistentdw name=dbs\n\
                  seq 1000 | cmp - $DW_PERSISTENT_STRIPED_dbs/link/numbers\n";
    run(home, verify);
    assert_eq!(fs::read_to_string(&format).unwrap(), "3\n");
}
