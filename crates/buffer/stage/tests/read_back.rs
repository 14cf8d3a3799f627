//! A copy that is damaged before the end of the stage is detected, reported and renamed.

use crate::support;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use forebay_stage::{Problem, StageError, StageOptions, Verify};
use support::{noise, run, sides};

const LARGE: usize = 200 << 20;

fn open(path: &Path) -> Option<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).open(path).ok()
}

/// Waits until the file that `find` returns has this byte at offset 10, and changes it.
fn damage(find: impl Fn() -> Option<PathBuf>, byte: u8) {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < Duration::from_secs(30), "it never came");
        if let Some(file) = find().and_then(|path| open(&path)) {
            let mut there = [0];
            if file.read_at(&mut there, 10).is_ok_and(|n| n == 1) && there[0] == byte {
                file.write_all_at(&[!byte], 10).unwrap();
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn options(journal: &Path) -> StageOptions {
    StageOptions {
        workers: 1,
        verify: Verify::ReadBack,
        journal: Some(journal.to_owned()),
        segment_bytes: 1 << 20,
        ..StageOptions::default()
    }
}

/// The only problem of a stage.
fn problem(outcome: Result<forebay_stage::StageReport, StageError>) -> Problem {
    match outcome {
        Err(StageError::Incomplete { problems, count: 1 }) => problems[0].clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn damaged_copy_is_reported_and_copied_again() {
    let sides = sides();
    let (small, large) = (noise(5000, 1), noise(LARGE, 2));
    sides.buffer.write("small", &small);
    sides.buffer.write("large", &large);
    // The small file is complete while the large one is still being copied under a hidden name.
    let (out, request) = sides.files_out(&["small", "large"]);
    let hidden = || {
        let entries = fs::read_dir(&out).ok()?.flatten();
        let mut paths = entries.map(|entry| entry.path());
        paths.find(|path| fs::metadata(path).is_ok_and(|state| state.len() == LARGE as u64))
    };
    let journal = sides.directory.path().join("journal");
    for (name, byte) in [("small", small[10]), ("large", large[10])] {
        let _ = fs::remove_file(out.join("small"));
        let _ = fs::remove_file(out.join("large"));
        let _ = fs::remove_file(&journal);
        let outcome = std::thread::scope(|scope| {
            let stage = scope.spawn(|| run(&request, &options(&journal)));
            match name {
                "small" => damage(|| Some(out.join("small")), byte),
                _ => damage(hidden, byte),
            }
            stage.join().unwrap()
        });
        let found = problem(outcome);
        assert_eq!(found.path, out.join(name));
        assert!(found.reason.contains("is not what was copied"), "{found}");
        assert!(!out.join(name).exists());
        // The next run copies only the damaged file.
        let report = run(&request, &options(&journal)).unwrap();
        assert_eq!((report.files, report.resumed), (2, 1));
        assert!(fs::read(out.join("small")).unwrap() == small);
        assert!(fs::read(out.join("large")).unwrap() == large);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    }
}

#[test]
fn copies_of_an_interrupted_run_are_read_back() {
    let sides = sides();
    let bytes = noise(3 << 20, 3);
    sides.buffer.write("a", &bytes);
    sides.buffer.write("b", b"b");
    let (out, request) = sides.files_out(&["a", "b", "none"]);
    let journal = sides.directory.path().join("journal");
    let first = problem(run(&request, &options(&journal)));
    assert!(first.reason.contains("does not exist"), "{first}");
    sides.buffer.write("none", b"now it does");
    // As on a faulty disk, only the contents change.
    let copy = open(&out.join("a")).unwrap();
    let modified: SystemTime = copy.metadata().unwrap().modified().unwrap();
    copy.write_all_at(&[!bytes[2 << 20]], 2 << 20).unwrap();
    copy.set_modified(modified).unwrap();
    let second = problem(run(&request, &options(&journal)));
    assert_eq!(second.path, out.join("a"));
    run(&request, &options(&journal)).unwrap();
    assert!(fs::read(out.join("a")).unwrap() == bytes);
    assert_eq!(fs::read(out.join("none")).unwrap(), b"now it does");
}
