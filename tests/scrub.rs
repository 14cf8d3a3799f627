//! `forebay scrub`: bits that flip on the flash are found.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const JOB: &str = "#!/bin/sh
#DW create_persistent name=dbs capacity=32MiB type=scratch access_mode=striped
";
const FILL: &str = "#!/bin/sh
#DW persistentdw name=dbs
seq 100000 > $DW_PERSISTENT_STRIPED_dbs/numbers
seq 100 > $DW_PERSISTENT_STRIPED_dbs/few
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

fn run(home: &Path, script: &str) {
    fs::write(home.join("job.sh"), script).unwrap();
    let said = forebay(home, &["run", "--pool-size", "1GiB", "job.sh"]);
    assert!(said.status.success(), "{said:?}");
}

/// Exit code and output of a scrub.
fn scrub(home: &Path) -> (Option<i32>, String) {
    let said = forebay(home, &["scrub", ".forebay"]);
    let text = [said.stdout, said.stderr].concat();
    (said.status.code(), String::from_utf8(text).unwrap())
}

fn last_row(text: &str) -> Vec<String> {
    let row = text.lines().last().unwrap_or_default();
    row.split_whitespace().map(str::to_owned).collect()
}

fn largest_below(folder: &Path) -> PathBuf {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    let size = |path: &PathBuf| path.metadata().unwrap().size();
    files.into_iter().max_by_key(size).unwrap()
}

#[test]
fn a_flipped_bit_is_found_and_named() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    run(home, JOB);
    run(home, FILL);
    // Files that were written a moment ago get no checksums yet, and those that get them now are
    // whole the next time.
    let mut tries = 0;
    let row = loop {
        let (code, text) = scrub(home);
        assert_eq!(code, Some(0), "{text}");
        let row = last_row(&text);
        if row[1] == "2" {
            break row;
        }
        tries += 1;
        assert!(tries < 20, "{text}");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(row[row.len() - 3..], ["0", "0", "0"], "{row:?}");

    let object = largest_below(&home.join(".forebay/flash/objects"));
    let file = File::options()
        .read(true)
        .write(true)
        .open(&object)
        .unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 300_000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 300_000).unwrap();
    file.set_times(FileTimes::new().set_modified(before))
        .unwrap();

    let (code, text) = scrub(home);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("damaged from byte 262144 "), "{text}");
}

#[test]
fn what_is_no_pool_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let said = forebay(home.path(), &["scrub", "nowhere"]);
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    let said = forebay(home.path(), &["scrub", "."]);
    let text = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1), "{text}");
    assert!(text.contains("flash/objects"), "{text}");
}
