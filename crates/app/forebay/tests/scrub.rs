//! `forebay scrub` finds flipped bits.

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
    let output = forebay(home, &["run", "--pool-size", "1GiB", "job.sh"]);
    assert!(output.status.success(), "{output:?}");
}

/// Exit code and output of a scrub.
fn scrub(home: &Path) -> (Option<i32>, String) {
    code_and_text(forebay(home, &["scrub", ".forebay"]))
}

fn code_and_text(output: Output) -> (Option<i32>, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// A scrub after the `start`th boot of the host, simulated with another boot id in a mount
/// namespace, which needs root.
fn scrub_after_start(home: &Path, start: u32) -> (Option<i32>, String) {
    let boot = home.join("boot_id");
    fs::write(&boot, format!("{start:08}-0000-4000-8000-000000000000\n")).unwrap();
    let script =
        "mount --bind boot_id /proc/sys/kernel/random/boot_id && exec \"$0\" scrub .forebay";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_forebay"))
        .current_dir(home)
        .env_remove("XDG_STATE_HOME")
        .env_remove("FOREBAY_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    code_and_text(output)
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

/// Creates a pool with two files that have checksums.
fn make_checksummed_pool(home: &Path) {
    run(home, JOB);
    run(home, FILL);
    // Recently written files get no checksums yet, and files that get them now are verified by the
    // next scrub.
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
}

/// Flips a bit in a data object without a trace in its metadata.
fn flip_bit(home: &Path) {
    let object = largest_below(&home.join(".forebay/flash/objects"));
    let file = File::options().read(true).write(true).open(&object).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 300_000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 300_000).unwrap();
    file.set_times(FileTimes::new().set_modified(before)).unwrap();
}

#[test]
fn flipped_bit_is_found_and_located() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    make_checksummed_pool(home);
    flip_bit(home);
    // `mount.forebay` keeps log and objects in its directory itself.
    for directory in [".forebay", ".forebay/flash"] {
        let (code, text) = code_and_text(forebay(home, &["scrub", directory]));
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("damaged from byte 262144 "), "{text}");
    }
}

#[test]
fn checksums_survive_a_restart_of_the_host() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    make_checksummed_pool(home);
    for start in 1..3 {
        let (code, text) = scrub_after_start(home, start);
        assert_eq!(code, Some(0), "{text}");
        let row = last_row(&text);
        assert_eq!(row[1], "2", "{text}");
        assert_eq!(row[row.len() - 3..], ["0", "0", "0"], "{text}");
    }
    flip_bit(home);
    let (code, text) = scrub_after_start(home, 3);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("damaged from byte 262144 "), "{text}");
    // Without the record of valid checksums, the data is unverified.
    fs::remove_file(home.join(".forebay/flash/objects/checksum-watermarks")).unwrap();
    let (code, text) = scrub_after_start(home, 4);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(last_row(&text)[1], "0", "{text}");
}

#[test]
fn scrub_of_another_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let output = forebay(home.path(), &["scrub", "nowhere"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = forebay(home.path(), &["scrub", "."]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("flash/log"), "{text}");
}
