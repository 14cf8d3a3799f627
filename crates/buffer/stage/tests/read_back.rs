//! What is damaged between being copied and being done is found, told and not left under its name.
#![allow(
    clippy::unwrap_used,
    reason = "a test: what cannot be unwrapped has failed"
)]

mod support;

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

/// Waits until a file that is looked for has this byte at 10, and changes it.
fn damage(looked_for: impl Fn() -> Option<PathBuf>, byte: u8) {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never came");
        if let Some(file) = looked_for().and_then(|path| open(&path)) {
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

/// The one problem that a stage had.
fn problem(outcome: Result<forebay_stage::StageReport, StageError>) -> Problem {
    match outcome {
        Err(StageError::Incomplete { problems, count: 1 }) => problems[0].clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_that_is_damaged_after_it_was_written_is_told_and_made_anew() {
    let sides = sides();
    let (small, large) = (noise(5000, 1), noise(LARGE, 2));
    sides.buffer.write("small", &small);
    sides.buffer.write("large", &large);
    // The small one is there while the large one is still copied, under a hidden name.
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
        // The next try copies what was damaged, and that alone.
        let report = run(&request, &options(&journal)).unwrap();
        assert_eq!((report.files, report.resumed), (2, 1));
        assert!(fs::read(out.join("small")).unwrap() == small);
        assert!(fs::read(out.join("large")).unwrap() == large);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    }
}

#[test]
fn what_an_interrupted_stage_had_copied_is_read_back_too() {
    let sides = sides();
    let bytes = noise(3 << 20, 3);
    sides.buffer.write("a", &bytes);
    sides.buffer.write("b", b"b");
    let (out, request) = sides.files_out(&["a", "b", "none"]);
    let journal = sides.directory.path().join("journal");
    let first = problem(run(&request, &options(&journal)));
    assert!(first.reason.contains("does not exist"), "{first}");
    sides.buffer.write("none", b"now it does");
    // As a faulty disk does it: nothing but the bytes changes.
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
