//! Replays and flushes that are interrupted between the logs of two processes.

use forebay_mpiio_log::{
    Alignment, EntryMemory, Identity, Left, Limits, LogWriter, LoggedRun, ReplayOptions, logs,
    replay, scan,
};
use forebay_mpiio_log::{Damage, View};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const LIMITS: Limits =
    Limits { bytes: 64 << 10, entries: 10_000, segment_bytes: 16 << 10, buffer_bytes: 3000 };

fn directories() -> (TempDir, PathBuf, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let (log, target) = (home.path().join("log"), home.path().join("target"));
    fs::create_dir(&log).unwrap();
    (home, log, target)
}

fn writer(log: &Path, target: &Path, rank: u32) -> LogWriter {
    let run = "job 7, open 1".to_owned();
    let identity = Identity { target: target.to_owned(), run, rank, ranks: 2 };
    LogWriter::create(log, &identity, LIMITS).unwrap()
}

/// Logs of two processes; each has written last to a part of the file.
fn two_logs(log: &Path, target: &Path) -> Vec<LogWriter> {
    let bytes = Arc::new(View::bytes(0));
    let mut writers: Vec<_> = (0..2).map(|rank| writer(log, target, rank)).collect();
    writers[0].append(&bytes, 0, b"000000").unwrap();
    writers[1].set_epoch(1);
    writers[1].append(&bytes, 2, b"1111").unwrap();
    writers[0].set_epoch(2);
    writers[0].append(&bytes, 4, b"22").unwrap();
    writers
}

fn replay_all(directories: &[&Path]) -> u64 {
    let directories: Vec<_> = directories.iter().map(|path| path.to_path_buf()).collect();
    let replayed = replay(&directories, &ReplayOptions::default()).unwrap();
    replayed.iter().map(|run| run.entries).sum()
}

/// Replays the logs in directories, interrupted before a step of the retirement of the logs. Returns
/// whether there was such a step.
fn interrupted_replay(directories: &[&Path], step: usize) -> bool {
    let paths = directories.iter().flat_map(|directory| logs(directory).unwrap());
    let scanned = paths.map(|path| scan(&path).unwrap()).collect();
    let Some(run) = LoggedRun::group(scanned).pop() else { return false };
    let target = File::options().create(true).truncate(false).write(true).open(run.target());
    let memory = EntryMemory::default();
    run.apply(&target.unwrap(), Alignment::default(), &memory).unwrap();
    let done = std::cell::Cell::new(0);
    let next = || if done.replace(done.get() + 1) == step { Err(()) } else { Ok(()) };
    let retired: Result<(), ()> = run.retire(
        |log, marks| {
            next()?;
            let file = File::options().write(true).open(&log.path).unwrap();
            marks.iter().for_each(|(offset, mark)| file.write_all_at(mark, *offset).unwrap());
            Ok(())
        },
        |log| {
            next()?;
            fs::remove_file(&log.path).unwrap();
            Ok(())
        },
    );
    retired.is_err()
}

#[test]
fn replay_interrupted_at_any_step_leaves_the_later_writes_after_the_next_replay() {
    let mut steps = 0;
    loop {
        let (_home, log, target) = directories();
        two_logs(&log, &target).into_iter().for_each(|writer| writer.close().unwrap());
        let was_interrupted = interrupted_replay(&[&log], steps);
        assert_eq!(fs::read(&target).unwrap(), b"001122");
        replay_all(&[&log]);
        assert_eq!(fs::read(&target).unwrap(), b"001122", "interrupted before step {steps}");
        assert!(logs(&log).unwrap().is_empty());
        if !was_interrupted {
            break;
        }
        steps += 1;
    }
    assert_eq!(steps, 6, "two marks and a removal of each log");
}

#[test]
fn replay_interrupted_twice_leaves_the_later_writes_after_the_next_replay() {
    for (first, second) in (0..6).flat_map(|first| (0..6).map(move |second| (first, second))) {
        let (_home, log, target) = directories();
        two_logs(&log, &target).into_iter().for_each(|writer| writer.close().unwrap());
        assert!(interrupted_replay(&[&log], first));
        interrupted_replay(&[&log], second);
        replay_all(&[&log]);
        let file = fs::read(&target).unwrap();
        assert_eq!(file, b"001122", "interrupted before the steps {first} and {second}");
        assert!(logs(&log).unwrap().is_empty());
    }
}

#[test]
fn replay_of_complete_runs_leaves_what_may_be_of_others_and_later_runs_of_an_incomplete_one() {
    let (_home, log, target) = directories();
    let mut writers = two_logs(&log, &target);
    let mut absent = writers.remove(1);
    writers.remove(0).close().unwrap();
    let bytes = Arc::new(View::bytes(0));
    let later = |of: &Path, run: &str, rank, ranks| {
        let identity = Identity { target: of.to_owned(), run: run.to_owned(), rank, ranks };
        let mut writer = LogWriter::create(&log, &identity, LIMITS).unwrap();
        writer.append(&bytes, 0, b"later").unwrap();
        writer
    };
    later(&target, "open 2", 0, 1).close().unwrap();
    let _in_use_for_another_file = later(&log.join("other"), "open 3", 0, 1);
    fs::write(log.join("0-0-unreadable.fblog"), "no log").unwrap();
    let options = ReplayOptions {
        target: Some(target.clone()),
        complete_only: true,
        ..ReplayOptions::default()
    };
    // A log of the first run is in use.
    let runs = replay(std::slice::from_ref(&log), &options).unwrap();
    assert_eq!(runs.iter().map(|run| run.left).collect::<Vec<_>>(), [Some(Left::Incomplete); 2]);
    assert!(!target.exists());
    absent.sync().unwrap();
    absent.close().unwrap();
    let runs = replay(std::slice::from_ref(&log), &options).unwrap();
    assert_eq!(runs.iter().map(|run| run.left).collect::<Vec<_>>(), [None; 2]);
    assert_eq!(fs::read(&target).unwrap(), b"later2");
}

#[test]
fn logs_of_a_failed_replay_are_not_applied_to_a_file_that_is_created_later() {
    let (_home, log, target) = directories();
    two_logs(&log, &target).into_iter().for_each(|writer| writer.close().unwrap());
    fs::create_dir(&target).unwrap(); // cannot be written
    replay(std::slice::from_ref(&log), &ReplayOptions::default()).unwrap_err();
    fs::remove_dir(&target).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    fs::write(&target, "new").unwrap();
    let replayed = replay(std::slice::from_ref(&log), &ReplayOptions::default()).unwrap();
    assert_eq!(replayed[0].left, Some(Left::Replaced));
    assert_eq!(fs::read(&target).unwrap(), b"new");
}

#[test]
fn replay_of_one_directory_that_was_interrupted_does_not_hide_the_logs_of_another() {
    for step in 0..3 {
        let (home, log, target) = directories();
        let writers = two_logs(&log, &target);
        let path = writers[1].path().to_owned();
        writers.into_iter().for_each(|writer| writer.close().unwrap());
        let other = home.path().join("other node");
        fs::create_dir(&other).unwrap();
        fs::rename(&path, other.join(path.file_name().unwrap())).unwrap();
        assert!(interrupted_replay(&[&log], step));
        replay_all(&[&log, &other]);
        let file = fs::read(&target).unwrap();
        assert_eq!(file[2..4], *b"11", "interrupted before step {step}");
        assert!(logs(&other).unwrap().is_empty());
    }
}

#[test]
fn flush_interrupted_between_two_logs_is_not_applied_again() {
    for released in 0..2 {
        let (_home, log, target) = directories();
        let mut writers = two_logs(&log, &target);
        writers.iter_mut().for_each(|writer| assert!(writer.sync().unwrap() > 0));
        fs::write(&target, "001122").unwrap();
        writers[released].reset_together(3).unwrap();
        // A process goes on before the other one is killed.
        let bytes = Arc::new(View::bytes(0));
        writers[released].set_epoch(3);
        writers[released].append(&bytes, 5, b"3").unwrap();
        writers[released].sync().unwrap();
        drop(writers);
        assert_eq!(replay_all(&[&log]), 1);
        assert_eq!(fs::read(&target).unwrap(), b"001123", "rank {released} had released its log");
        assert!(logs(&log).unwrap().is_empty());
    }
}

#[test]
fn log_of_the_first_version_is_replayed() {
    let (_home, log, target) = directories();
    two_logs(&log, &target).into_iter().for_each(|writer| writer.close().unwrap());
    for path in logs(&log).unwrap() {
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = 1;
        for state in [4096, 4096 + 2048] {
            let sum = crc32c::crc32c(&bytes[state + 4..state + 48]);
            bytes[state..state + 4].copy_from_slice(&sum.to_le_bytes());
            bytes[state + 48..state + 72].fill(0);
        }
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(replay_all(&[&log]), 3);
    assert_eq!(fs::read(&target).unwrap(), b"001122");
}

#[test]
fn damaged_log_that_was_skipped_does_not_replace_later_writes_in_a_second_replay() {
    let (_home, log, target) = directories();
    let mut writers = two_logs(&log, &target);
    writers[1].append(&Arc::new(View::bytes(0)), 100, b"damaged").unwrap();
    let damaged = writers[1].path().to_owned();
    let at = writers[1].entries()[1].place.offset;
    writers.into_iter().for_each(|writer| writer.close().unwrap());
    File::options().write(true).open(&damaged).unwrap().write_all_at(b"x", at).unwrap();
    let options = ReplayOptions { skip_damaged: true, ..ReplayOptions::default() };
    for entries in [3, 0] {
        let replayed = replay(std::slice::from_ref(&log), &options).unwrap().remove(0);
        assert_eq!((replayed.entries, replayed.skipped), (entries, 1));
        assert_eq!(fs::read(&target).unwrap(), b"001122");
        assert_eq!(logs(&log).unwrap(), std::slice::from_ref(&damaged));
    }
    let found: Vec<Damage> = scan(&damaged).unwrap().slots.remove(0).damage;
    assert_eq!(found.len(), 1, "the damage is still reported");
}
