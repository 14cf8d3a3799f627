//! Files in a directory of logs that this program did not write.

use forebay_mpiio_log::{
    Identity, Limits, LogWriter, ReplayOptions, ScanError, View, foreign_logs, logs, replay, scan,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A closed log with one write to `target`, of 300,000 bytes in two records.
fn log(directory: &Path, target: &Path) -> (std::path::PathBuf, u64) {
    let run = "job 7, open 1".to_owned();
    let identity = Identity { target: target.to_owned(), run, rank: 0, ranks: 1 };
    let mut writer = LogWriter::create(directory, &identity, Limits::default()).unwrap();
    writer.append(&Arc::new(View::bytes(0)), 0, &[7; 300_000]).unwrap();
    let (path, place) = (writer.path().to_owned(), writer.entries()[0].place.offset);
    writer.close().unwrap();
    (path, place)
}

#[test]
fn record_that_is_longer_than_any_that_is_written_counts_as_damage() {
    let home = tempfile::tempdir().unwrap();
    let (path, place) = log(home.path(), &home.path().join("target"));
    let mut bytes = fs::read(&path).unwrap();
    let created = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    let salt = (created ^ (created >> 32)) as u32;
    let (head, length) = (place as usize - 56, 280_000);
    // The record takes in a part of the next one, with checksums that are right.
    let sum = crc32c::crc32c(&bytes[head + 56..head + 56 + length]);
    bytes[head + 44..head + 48].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[head + 48..head + 52].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32c::crc32c_append(salt, &bytes[head..head + 4]);
    let sum = crc32c::crc32c_append(sum, &bytes[head + 8..head + 56]);
    bytes[head + 4..head + 8].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let scanned = scan(&path).unwrap();
    assert!(scanned.is_damaged() && scanned.entries().all(|entry| entry.length < 280_000));
}

#[test]
fn sparse_log_of_enormous_length_is_refused_at_once() {
    let home = tempfile::tempdir().unwrap();
    let (path, _) = log(home.path(), &home.path().join("target"));
    // As long as the file system permits.
    let file = File::options().write(true).open(&path).unwrap();
    let mut length = 1 << 62;
    while file.set_len(length).is_err() {
        length /= 2;
    }
    // The file system may have a limit below that of logs; then the segments are smaller.
    let mut head = [0; 4096];
    File::open(&path).unwrap().read_exact_at(&mut head, 0).unwrap();
    head[16..24].copy_from_slice(&(16_u64 << 10).to_le_bytes());
    let sum = crc32c::crc32c(&head[16..]);
    head[12..16].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&head, 0).unwrap();
    let started = Instant::now();
    let error = scan(&path).unwrap_err();
    assert!(matches!(error, ScanError::TooLong { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn links_and_pipes_with_the_names_of_logs_are_not_opened() {
    let home = tempfile::tempdir().unwrap();
    let (logs_of, other) = (home.path().join("logs"), home.path().join("other"));
    fs::create_dir(&logs_of).unwrap();
    fs::create_dir(&other).unwrap();
    let target = home.path().join("target");
    let (linked, _) = log(&other, &target);
    std::os::unix::fs::symlink(&linked, logs_of.join("link.fblog")).unwrap();
    let pipe = logs_of.join("pipe.fblog");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    assert!(logs(&logs_of).unwrap().is_empty());
    assert!(replay(&[logs_of], &ReplayOptions::default()).unwrap().is_empty());
    assert!(linked.exists() && !target.exists());
    assert!(scan(&pipe).unwrap_err().to_string().contains("not a regular file"));
}

#[test]
fn logs_of_other_users_are_left_and_the_own_ones_replayed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can give a log to another user; the test is skipped");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (own, other) = (home.path().join("own"), home.path().join("other"));
    log(home.path(), &own);
    let (foreign, _) = log(home.path(), &other);
    std::os::unix::fs::chown(&foreign, Some(65_534), None).unwrap();
    assert_eq!(foreign_logs(home.path()).unwrap(), 1);
    let replayed = replay(&[home.path().to_owned()], &ReplayOptions::default()).unwrap();
    assert_eq!(replayed.len(), 1);
    assert!(own.exists() && !other.exists());
    assert_eq!(logs(home.path()).unwrap(), [foreign]);
}
