//! A parallel file system whose server restarts between two runs of a stage and loses unsynced data.
//! No client has a file open at that time to which it could report the loss.

use crate::support;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use forebay_stage::{ProgressCounters, StageError, StageOptions, Verify, run_stage};
use support::{noise, run, sides};

#[test]
fn data_lost_by_the_pfs_between_runs_are_copied_again() {
    let sides = sides();
    let (small, large) = (noise(70_000, 1), noise(64 << 20, 2));
    sides.buffer.write("small", &small);
    sides.buffer.write("large", &large);
    let (out, request) = sides.files_out(&["small", "large"]);
    let options = StageOptions {
        workers: 1,
        verify: Verify::Checksum,
        journal: Some(sides.directory.path().join("journal")),
        sync_interval: Duration::from_secs(3600),
        segment_bytes: 1 << 20,
        ..StageOptions::default()
    };
    // Two runs end early; after each, the file system has lost all contents, but not names, lengths
    // and times.
    for round in 1..3 {
        let progress = ProgressCounters::new();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while progress.snapshot().bytes < round * (4 << 20) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                progress.suspend();
            });
            run_stage(&request, &options, &progress)
        });
        assert_eq!(outcome, Err(StageError::Cancelled));
        let entries = fs::read_dir(&out).unwrap();
        let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(paths.len(), 2, "the small one, and the large one in part");
        for path in paths {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            let state = file.metadata().unwrap();
            let modified: SystemTime = state.modified().unwrap();
            let nothing = vec![0; usize::try_from(state.len()).unwrap()];
            file.write_all_at(&nothing, 0).unwrap();
            file.set_modified(modified).unwrap();
        }
    }
    run(&request, &options).unwrap();
    assert!(fs::read(out.join("small")).unwrap() == small);
    assert!(fs::read(out.join("large")).unwrap() == large);
}
