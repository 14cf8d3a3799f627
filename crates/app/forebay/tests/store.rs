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
    let id = full["id"].as_str().unwrap();

    // It is refused without confirmation, and while a daemon runs.
    let drop = |more: &[&str]| {
        let arguments = ["store", "drop-instance", ".forebay", "--instance", id];
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
    let objects = home.join(format!(".forebay/flash/objects/{id}"));
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

/// `check` and `dump` show ids in one notation, and `drop-instance` takes no other: a number that is
/// meant as decimal names no instance.
#[test]
fn instances_are_dropped_by_the_id_that_is_shown() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    run(home, JOB);
    let all = dump(home, &[]);
    let ids: Vec<&str> = all["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    let (_, text) = outcome(home, &["store", "check", ".forebay"]);
    for id in &ids {
        assert!(text.contains(&format!("instance {id}: ")), "{text}");
    }
    for wrong in ["1", "27", "1b", "0x000000000000001b", ids[0].trim_start_matches('0')] {
        let line = ["store", "drop-instance", ".forebay", "--instance", wrong, "--destroy-data"];
        let (code, text) = outcome(home, &line);
        assert!(code == Some(2) && text.contains("16 hexadecimal digits"), "{wrong}: {text}");
    }
    assert_eq!(dump(home, &[]), all);
}

/// A log that was removed, or is damaged from its begin, has no record of the instances. A start would
/// take their data for those of removed instances.
#[test]
fn lost_log_destroys_nothing() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    run(home, JOB);
    run(home, FILL);
    let all = dump(home, &[]);
    let ids: Vec<String> = all["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    let flash = home.join(".forebay/flash");
    let objects = flash.join("objects");
    let is_there = |id: &String| objects.join(id).is_dir();
    let segment = log_files(home, "log.").remove(0);
    let whole = fs::read(&segment).unwrap();
    let refuses = |damage: &str| {
        let (code, text) = outcome(home, &["store", "check", ".forebay"]);
        assert!(
            code == Some(1) && text.contains("damage: the log has no record"),
            "{damage}: {text}"
        );
        // The first start writes a record of itself if it does not refuse.
        for _ in 0..2 {
            let refused = Daemon::start(StoreOptions::new(flash.clone())).unwrap_err().to_string();
            assert!(refused.contains(&ids[0]) && refused.contains("drop-instance"), "{refused}");
        }
        let (code, text) = outcome(home, &["create-persistent", "third", "--capacity", "16MiB"]);
        assert!(code != Some(0) && text.contains(&ids[0]), "{damage}: {text}");
        assert!(ids.iter().all(is_there), "{damage}");
        fs::write(&segment, &whole).unwrap();
    };
    fs::write(&segment, []).unwrap();
    refuses("truncated");
    fs::write(&segment, vec![0x5a; 100_000]).unwrap();
    refuses("overwritten");
    fs::remove_file(&segment).unwrap();
    refuses("removed");
    assert_eq!(dump(home, &[])["instances"], all["instances"], "restored from a copy");

    fs::remove_file(&segment).unwrap();
    for id in &ids {
        let line = ["store", "drop-instance", ".forebay", "--instance", id, "--destroy-data"];
        let (code, text) = outcome(home, &line);
        assert_eq!(code, Some(0), "{text}");
    }
    Daemon::start(StoreOptions::new(flash.clone())).unwrap().stop().unwrap();
    assert!(!ids.iter().any(is_there), "given up");
}

/// The storage node's own records name an instance of which the log has lost the record.
#[test]
fn log_that_ends_too_early_destroys_nothing() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    run(
        home,
        "#!/bin/sh\n#DW create_persistent name=first capacity=16MiB type=scratch access_mode=striped\n",
    );
    let (segment, before) = {
        let segment = log_files(home, "log.").remove(0);
        let bytes = fs::read(&segment).unwrap();
        (segment, bytes)
    };
    let first = dump(home, &[])["instances"][0]["id"].as_str().unwrap().to_owned();
    run(
        home,
        "#!/bin/sh\n#DW create_persistent name=second capacity=16MiB type=scratch access_mode=striped\n",
    );
    let all = dump(home, &[]);
    let mut ids =
        all["instances"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap());
    let second = ids.find(|id| *id != first).unwrap().to_owned();
    fs::write(&segment, &before).unwrap();
    let (code, text) = outcome(home, &["run", "--pool-size", "1GiB", "job.sh"]);
    assert!(code != Some(0) && text.contains(&second), "{text}");
    assert!(home.join(".forebay/flash/objects").join(&second).is_dir());

    let line = ["store", "drop-instance", ".forebay", "--instance", &second, "--destroy-data"];
    assert_eq!(outcome(home, &line).0, Some(0));
    fs::write(
        home.join("job.sh"),
        "#!/bin/sh\n#DW persistentdw name=first\ntest -d $DW_PERSISTENT_STRIPED_first\n",
    )
    .unwrap();
    let (code, text) = outcome(home, &["run", "job.sh"]);
    assert_eq!(code, Some(0), "{text}");
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
        &["store", "drop-instance", ".forebay", "--instance", "0000000000000001", "--destroy-data"],
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
