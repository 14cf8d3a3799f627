//! `forebay log` on logs that a program left when it was killed.

use forebay_mpiio_log::{Datatype, Identity, Limits, LogWriter, View};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

const LIMITS: Limits =
    Limits { bytes: 1 << 20, entries: 10_000, segment_bytes: 64 << 10, buffer_bytes: 8 << 10 };
/// Bytes of a write.
const WRITE: usize = 1000;
/// Writes between two syncs.
const SYNC: u64 = 8;
/// The log directory of the process that a test starts and kills.
const DIRECTORY: &str = "FOREBAY_TEST_LOG_DIRECTORY";

/// Exit code and output of `forebay log`.
fn forebay_log(home: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("log")
        .args(arguments)
        .current_dir(home)
        .env_remove("FOREBAY_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn directories() -> (TempDir, PathBuf, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let (logs, target) = (home.path().join("logs"), home.path().join("field.nc"));
    fs::create_dir(&logs).unwrap();
    (home, logs, target)
}

fn create(logs: &Path, target: &Path, rank: u32) -> LogWriter {
    let identity = Identity { target: target.to_owned(), run: "job 12".to_owned(), rank, ranks: 2 };
    LogWriter::create(logs, &identity, LIMITS).unwrap()
}

/// The even or the odd blocks of the file.
fn blocks(rank: u64) -> Arc<View> {
    let block = WRITE as u64;
    let filetype = Datatype::Resized {
        lower_bound: 0,
        extent: 2 * block as i64,
        element: Arc::new(Datatype::Bytes(block)),
    };
    Arc::new(View::new(rank * block, filetype).unwrap())
}

fn value(rank: u64, write: u64) -> u8 {
    (1 + write * 2 + rank) as u8
}

/// Writes and syncs until it is killed, when a test has started it with a log directory.
#[test]
fn process_that_writes_until_it_is_killed() {
    let Some(logs) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let target = logs.parent().unwrap().join("field.nc");
    let mut writers = [create(&logs, &target, 0), create(&logs, &target, 1)];
    let views = [blocks(0), blocks(1)];
    for write in 0.. {
        for (rank, (writer, view)) in writers.iter_mut().zip(&views).enumerate() {
            let data = [value(rank as u64, write); WRITE];
            let appended = writer.append(view, write * WRITE as u64, &data);
            if appended.is_err() {
                // The log is full: the test has had its time.
                std::thread::sleep(std::time::Duration::from_secs(60));
            }
            if write % SYNC == SYNC - 1 {
                writer.sync().unwrap();
            }
        }
        if write % SYNC == SYNC - 1 {
            // The harness writes to standard output, too.
            eprintln!("synced {}", write + 1);
        }
    }
}

#[test]
fn writes_synced_before_kill_9_are_in_the_file_after_a_replay() {
    for syncs in [1, 5, 20] {
        let (home, logs, target) = directories();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mpiio_log::process_that_writes_until_it_is_killed", "--nocapture"])
            .env(DIRECTORY, &logs)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut synced = lines.map_while(Result::ok).filter_map(|line| {
            line.strip_prefix("synced ").map(|count| count.parse::<u64>().unwrap())
        });
        let reader = synced.by_ref();
        let count = reader.take(syncs).last().unwrap();
        let (_, text) = forebay_log(home.path(), &["list", "logs"]);
        assert!(text.contains("in use") && text.contains("0 of 2"), "{text}");
        let (code, text) = forebay_log(home.path(), &["replay", "logs"]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("in use by a running program"), "{text}");
        process.kill().unwrap();
        process.wait().unwrap();

        let (_, text) = forebay_log(home.path(), &["list", "logs"]);
        assert_eq!(text.matches("interrupted").count(), 2, "{text}");
        assert_eq!(forebay_log(home.path(), &["check", "logs"]).0, Some(0));
        let (code, text) = forebay_log(home.path(), &["replay", "logs"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("writes of 2 logs"), "{text}");
        let file = fs::read(&target).unwrap();
        assert!(count == syncs as u64 * SYNC && file.len() as u64 >= 2 * count * WRITE as u64);
        for (block, bytes) in file.chunks(WRITE).take(2 * count as usize).enumerate() {
            let expected = value(block as u64 % 2, block as u64 / 2);
            assert!(bytes.iter().all(|byte| *byte == expected), "block {block}");
        }
        assert_eq!(forebay_log(home.path(), &["replay", "logs"]), (Some(0), "no logs\n".into()));
        assert_eq!(fs::read(&target).unwrap(), file);
    }
}

/// A log of rank 0 with four synced writes of 1000 bytes.
fn four_writes(logs: &Path, target: &Path) -> LogWriter {
    let mut writer = create(logs, target, 0);
    for write in 0..4 {
        writer.append(&blocks(0), write * 1000, &[value(0, write); WRITE]).unwrap();
    }
    writer.sync().unwrap();
    writer
}

#[test]
fn list_shows_what_is_not_in_the_file_yet() {
    let (home, logs, target) = directories();
    four_writes(&logs, &target).close().unwrap();
    fs::write(logs.join("other.fblog"), "no log").unwrap();
    fs::write(logs.join("notes.txt"), "no log by name").unwrap();
    let (code, text) = forebay_log(home.path(), &["list", "logs"]);
    assert_eq!(code, Some(0));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["log", "file", "ranks", "writes", "data", "state"], "{text}");
    let name = target.to_str().unwrap();
    assert_eq!(rows[1][1..], [name, "0", "of", "2", "4", "3.91", "KiB", "closed"], "{text}");
    assert_eq!(rows[2], ["other.fblog", "unreadable"], "{text}");
    assert_eq!(rows.len(), 3);

    let (_, text) = forebay_log(home.path(), &["list", "logs", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json[0]["run"], &json[0]["ranks"]), (&"job 12".into(), &2.into()));
    assert_eq!(json[0]["slots"][0]["bytes"], 4000);
    assert_eq!(json[1]["error"], "not a log, or its header is damaged");
}

#[test]
fn replay_reports_writes_and_ranks_without_a_log() {
    let (home, logs, target) = directories();
    four_writes(&logs, &target).close().unwrap();
    let (code, text) = forebay_log(home.path(), &["replay", "logs", "--stripe", "1500B"]);
    assert_eq!(code, Some(0));
    let target = target.display();
    let expected = format!(
        "{target}: 4 writes of 1 log, 3.91 KiB in 4 writes\n\
         {target}: no log of ranks 1 here; look in other nodes' directories\n"
    );
    assert_eq!(text, expected);
    assert_eq!(forebay_log(home.path(), &["list", "logs"]).1, "no logs\n");
    assert_eq!(forebay_log(home.path(), &["check", "logs"]), (Some(0), "no logs\n".into()));
}

#[test]
fn damaged_log_is_replayed_only_on_request_and_kept() {
    let (home, logs, target) = directories();
    let writer = four_writes(&logs, &target);
    let file = File::options().write(true).open(writer.path()).unwrap();
    file.write_all_at(b"?", writer.entries()[1].place.offset).unwrap();
    drop(writer);
    let (code, text) = forebay_log(home.path(), &["check", "logs"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("synced records") && text.contains("1 of 1 logs damaged"), "{text}");
    assert!(forebay_log(home.path(), &["list", "logs"]).1.contains("damaged"));
    let (code, text) = forebay_log(home.path(), &["replay", "logs"]);
    assert!(code == Some(1) && text.contains("--skip-damaged"), "{text}");
    assert!(!target.exists());
    let (code, text) = forebay_log(home.path(), &["replay", "logs", "--skip-damaged"]);
    assert!(code == Some(0) && text.contains("1 damaged records skipped"), "{text}");
    assert_eq!(fs::read(&target).unwrap()[4000..5000], [value(0, 2); 1000]);
    let (code, text) = forebay_log(home.path(), &["discard", "logs"]);
    assert!(code == Some(0) && text.contains("discarded 3 writes"), "{text}");
    assert!(fs::read_dir(&logs).unwrap().next().is_none());
}

#[test]
fn directory_that_is_not_there_is_invalid_input() {
    let home = tempfile::tempdir().unwrap();
    for command in ["list", "check", "variables", "replay", "discard"] {
        assert_eq!(forebay_log(home.path(), &[command, "nowhere"]).0, Some(2), "{command}");
    }
}

#[test]
fn only_the_logs_of_the_named_file_are_replayed_or_discarded() {
    let (home, logs, target) = directories();
    let other = home.path().join("other");
    four_writes(&logs, &target).close().unwrap();
    four_writes(&logs, &other).close().unwrap();
    let (code, _) =
        forebay_log(home.path(), &["replay", "logs", "--file", target.to_str().unwrap()]);
    assert!(code == Some(0) && target.exists() && !other.exists());
    let (code, text) =
        forebay_log(home.path(), &["replay", "logs", "--file", target.to_str().unwrap()]);
    assert!(code == Some(0) && text.contains("1 log of other files stay"), "{text}");
    let (code, text) =
        forebay_log(home.path(), &["discard", "logs", "--file", target.to_str().unwrap()]);
    assert!(code == Some(1) && text.contains("1 log of other files stay"), "{text}");
    let (_, text) =
        forebay_log(home.path(), &["discard", "logs", "--file", other.to_str().unwrap()]);
    assert!(text.contains("discarded 4 writes") && !other.exists(), "{text}");
}

#[test]
fn variables_of_a_netcdf_file_are_listed_from_its_log() {
    let (home, logs, target) = directories();
    // CDF-1 with one variable: t(y, x) of 4 x 6 doubles at byte 100.
    let mut header = b"CDF\x01\0\0\0\0".to_vec();
    for word in [0x0a, 2, 1, 0x7900_0000, 4, 1, 0x7800_0000, 6, 0, 0, 0x0b, 1, 1, 0x7400_0000] {
        header.extend(u32::to_be_bytes(word));
    }
    for word in [2, 0, 1, 0, 0, 6, 192, 100_u32] {
        header.extend(word.to_be_bytes());
    }
    let part = Datatype::subarray(&[4, 6], &[2, 3], &[1, 3], 8).unwrap();
    let part = Arc::new(View::new(100, part).unwrap());
    let mut writer = create(&logs, &target, 0);
    writer.append(&part, 0, &[7; 48]).unwrap();
    writer.close().unwrap();
    let (code, text) = forebay_log(home.path(), &["variables", "logs"]);
    assert!(code == Some(0) && text.contains("no NetCDF header"), "{text}");
    // Rank 1 wrote the header: it is in its log, and not in the file.
    let mut writer = create(&logs, &target, 1);
    writer.append(&Arc::new(View::bytes(0)), 0, &header).unwrap();
    writer.close().unwrap();
    let (code, text) = forebay_log(home.path(), &["variables", "logs"]);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(code, Some(0));
    assert_eq!(rows[0], [target.to_str().unwrap()]);
    assert_eq!(rows[2], ["0", "t", "double", "4x6", "1,3", "2,3", "48", "B"], "{text}");
    assert_eq!(rows.len(), 3);
    // With the header in the file, the log of rank 0 is enough.
    fs::write(&target, header).unwrap();
    assert_eq!(forebay_log(home.path(), &["variables", "logs"]).1, text);
}

#[test]
fn missing_directory_is_named() {
    let (home, ..) = directories();
    let (code, text) = forebay_log(home.path(), &["list", "nowhere"]);
    assert!(code == Some(2) && text.contains("nowhere: No such file"), "{text}");
    let (code, text) = forebay_log(home.path(), &["replay", "logs", "--stripe", "0B"]);
    assert!(code == Some(2) && text.contains("at least 1 byte"), "{text}");
}

/// The file of the process that a job script starts.
const TARGET: &str = "FOREBAY_TEST_LOG_TARGET";

/// Leaves two closed logs, when a job script has started it with a log directory and a target.
#[test]
fn process_that_leaves_its_logs() {
    let Some(target) = std::env::var_os(TARGET).map(PathBuf::from) else { return };
    let logs = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    for rank in 0..2 {
        let mut writer = create(&logs, &target, rank as u32);
        for write in 0..100 {
            let data = [value(rank, write); WRITE];
            writer.append(&blocks(rank), write * WRITE as u64, &data).unwrap();
        }
        writer.close().unwrap();
    }
}

/// Runs the script `job.sh` of a directory on an embedded pool there.
pub fn run_job_in(home: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["run", "--pool-size", "1GiB", "job.sh"])
        .current_dir(home)
        .env_remove("FOREBAY_LOG")
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Exit code and output of a job that leaves logs for `target` in its instance.
fn run_job(home: &Path, target: &Path) -> (Option<i32>, String) {
    fs::create_dir_all(home.join("pfs")).unwrap();
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n\
         #DW jobdw capacity=64MiB type=scratch access_mode=striped\n\
         #DW stage_out type=log source=$DW_JOB_STRIPED/logs destination={}\n\
         mkdir $DW_JOB_STRIPED/logs\n\
         export {DIRECTORY}=$DW_JOB_STRIPED/logs {TARGET}={}\n\
         {} --exact mpiio_log::process_that_leaves_its_logs --nocapture || exit\n\
         {} log list $DW_JOB_STRIPED/logs\n",
        home.join("pfs").display(),
        target.display(),
        program.display(),
        env!("CARGO_BIN_EXE_forebay"),
    );
    fs::write(home.join("job.sh"), script).unwrap();
    let output = run_job_in(home);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn stage_out_applies_the_logs_of_a_job_to_their_file() {
    let (home, ..) = directories();
    let target = home.path().join("pfs/field.nc");
    fs::create_dir(home.path().join("pfs")).unwrap();
    // The program had written the file before, and more than it logged.
    fs::write(&target, [0xff; 300 * WRITE]).unwrap();
    let (code, text) = run_job(home.path(), &target);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("closed").count(), 2, "{text}");
    let file = fs::read(&target).unwrap();
    assert_eq!(file.len(), 300 * WRITE);
    for (block, bytes) in file.chunks(WRITE).enumerate() {
        let logged = value(block as u64 % 2, block as u64 / 2);
        let expected = if block < 200 { logged } else { 0xff };
        assert!(bytes.iter().all(|byte| *byte == expected), "block {block}");
    }
}

#[test]
fn stage_out_refuses_logs_of_files_outside_its_destination() {
    let (home, _, target) = directories();
    let (code, text) = run_job(home.path(), &target);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("field.nc") && text.contains("not below the destination"), "{text}");
    assert!(!target.exists());
}
