//! The reported phase of a stage is the actual one, and each phase can be cancelled.

use crate::support;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use forebay_protocol::progress::{StagePhase, StageProgress};
use forebay_stage::{
    ItemKind, ProgressCounters, StageError, StageLocation, StageOptions, StageReport, StageRequest,
    Verify, run_stage,
};
use support::gate::{At, Gate, gated};
use support::{Sides, noise, one, picture, run, sides};

/// Sizes of files; the last one has two parts. There are also a hard link and a symbolic link.
const SIZES: [usize; 3] = [0, 5_000, 90_000];
const BYTES: u64 = 95_000;

/// Creates a tree in the instance. Returns the request that stages it out through a gate.
fn create_tree(sides: &Sides, gate: &Arc<Gate>) -> StageRequest {
    let tree = sides.pfs.join("in");
    fs::create_dir(&tree).unwrap();
    for (index, size) in SIZES.into_iter().enumerate() {
        fs::write(tree.join(format!("f{index}")), noise(size, index as u64)).unwrap();
    }
    fs::hard_link(tree.join("f1"), tree.join("same")).unwrap();
    std::os::unix::fs::symlink("f1", tree.join("link")).unwrap();
    let request = sides.stage_in(ItemKind::Directory, "in", "tree");
    run(&request, &StageOptions::default()).unwrap();
    let outside = gated(&sides.pfs, gate);
    let target = StageLocation::in_pfs(&outside, sides.pfs.join("out"));
    one(ItemKind::Directory, sides.inside("tree"), target)
}

fn options(sides: &Sides, verify: Verify) -> StageOptions {
    StageOptions {
        verify,
        journal: Some(sides.directory.path().join("journal")),
        segment_bytes: 65_536,
        ..StageOptions::default()
    }
}

/// Opens a gate when dropped, also if the test fails.
struct Opened<'a>(&'a Gate);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.close(None);
    }
}

/// Runs a stage until an operation waits at the gate; then runs `check`, and opens the gate.
fn run_until_gate(
    request: &StageRequest,
    options: &StageOptions,
    (gate, at): (&Gate, At),
    check: impl FnOnce(&ProgressCounters),
) -> (Result<StageReport, StageError>, StageProgress) {
    let progress = ProgressCounters::new();
    gate.close(Some(at));
    let outcome = std::thread::scope(|scope| {
        let stage = scope.spawn(|| run_stage(request, options, &progress));
        let opened = Opened(gate);
        gate.wait();
        check(&progress);
        drop(opened);
        stage.join().unwrap()
    });
    (outcome, progress.snapshot())
}

#[test]
fn each_phase_is_reported_and_can_be_cancelled() {
    let sides = sides();
    let gate = Arc::new(Gate::default());
    let request = create_tree(&sides, &gate);
    let options = options(&sides, Verify::ReadBack);
    for (at, phase) in [
        (At::Write, StagePhase::Copying),
        (At::Flush, StagePhase::Syncing),
        (At::Read, StagePhase::ReadingBack),
        (At::Link, StagePhase::Finishing),
    ] {
        let (outcome, end) = run_until_gate(&request, &options, (&gate, at), |progress| {
            let now = progress.snapshot();
            assert_eq!(now.phase, phase);
            assert_eq!(now.files == 4, phase > StagePhase::Copying, "{now:?}");
            let all_read = now.read_back.files == 3;
            assert_eq!(all_read, phase > StagePhase::ReadingBack, "{now:?}");
            progress.cancel();
        });
        assert_eq!(outcome, Err(StageError::Cancelled), "{phase:?}");
        assert_eq!(end.phase, phase, "nothing more is started");
        // A copy that is not verified has one name only.
        let both = ["f1", "same"].map(|name| sides.pfs.join("out").join(name).exists());
        assert_eq!(both == [true, true], at == At::Link);
        assert!(sides.buffer.exists("tree/f2"), "the source is there");
    }
    let report = run(&request, &options).unwrap();
    assert_eq!((report.files, report.resumed), (3, 3), "{report:?}");
    assert_eq!(report.read_back, BYTES);
    let (out, tree) = (sides.pfs.join("out"), sides.pfs.join("in"));
    assert_eq!(picture(&out), picture(&tree));
}

#[test]
fn read_back_progress_counts_verified_bytes() {
    let sides = sides();
    let gate = Arc::new(Gate::default());
    let request = create_tree(&sides, &gate);
    let options = options(&sides, Verify::ReadBack);
    let (outcome, end) = run_until_gate(&request, &options, (&gate, At::Read), |progress| {
        let present = progress.snapshot().present();
        assert_eq!((present.files_total, present.bytes_total), (3, BYTES));
        // Nothing was read yet except the empty file, if that came first.
        assert_eq!(present.bytes, 0, "{present:?}");
        assert!(present.files <= 1, "{present:?}");
        // The time of a phase is reported after its end.
        assert_eq!(progress.snapshot().times.reading_back, Duration::ZERO);
        std::thread::sleep(Duration::from_millis(20));
    });
    let report = outcome.unwrap();
    assert_eq!(report.read_back, BYTES);
    assert_eq!((end.read_back.files, end.read_back.bytes), (3, BYTES));
    assert_eq!(end.phase, StagePhase::Finishing);
    let times = report.times;
    assert!(times.reading_back >= Duration::from_millis(20), "{times:?}");
    assert!(times.copying > Duration::ZERO, "{times:?}");
    let sum = times.until_durable() + times.reading_back + times.finishing;
    assert!(sum <= report.time, "{report:?}");
    assert!(report.time < sum + Duration::from_millis(20), "{report:?}");
}

/// Stages out while a directory above the destination is renamed, and again.
fn rename_while_staged(sides: &Sides, gate: &Arc<Gate>, request: &StageRequest) -> String {
    let options = options(sides, Verify::ReadBack);
    let results = sides.pfs.join("results");
    let (outcome, _) = run_until_gate(request, &options, (gate, At::Write), |_| {
        fs::rename(&results, sides.pfs.join("renamed")).unwrap();
    });
    fs::create_dir(&results).unwrap();
    run(request, &options).unwrap();
    outcome.unwrap_err().to_string()
}

#[test]
fn stage_to_a_directory_that_is_renamed_meanwhile_fails_and_the_next_run_copies_to_the_path() {
    let sides = sides();
    let gate = Arc::new(Gate::default());
    create_tree(&sides, &gate);
    let results = sides.pfs.join("results");
    fs::create_dir(&results).unwrap();
    let outside = gated(&sides.pfs, &gate);
    let target = StageLocation::in_pfs(&outside, results.join("out"));
    let request = one(ItemKind::Directory, sides.inside("tree"), target);
    let failed = rename_while_staged(&sides, &gate, &request);
    assert!(failed.contains("was renamed, removed or replaced while it was staged"), "{failed}");
    assert_eq!(picture(&results.join("out")), picture(&sides.pfs.join("in")));
}

#[test]
fn file_staged_to_a_directory_that_is_renamed_meanwhile_fails_and_is_copied_by_the_next_run() {
    let sides = sides();
    let gate = Arc::new(Gate::default());
    create_tree(&sides, &gate);
    let results = sides.pfs.join("results");
    fs::create_dir(&results).unwrap();
    let outside = gated(&sides.pfs, &gate);
    let target = StageLocation::in_pfs(&outside, results.join("f2"));
    let request = one(ItemKind::File, sides.inside("tree/f2"), target);
    let failed = rename_while_staged(&sides, &gate, &request);
    assert!(failed.contains("results"), "{failed}");
    let staged = fs::read(results.join("f2")).unwrap();
    assert!(staged == fs::read(sides.pfs.join("in/f2")).unwrap());
}

#[test]
fn source_that_is_removed_when_its_copy_is_complete_does_not_fail_the_stage() {
    let sides = sides();
    let gate = Arc::new(Gate::default());
    create_tree(&sides, &gate);
    let outside = gated(&sides.pfs, &gate);
    let source = sides.pfs.join("in/f2");
    let contents = fs::read(&source).unwrap();
    let target = StageLocation::in_pfs(&outside, sides.pfs.join("copy"));
    let request = one(ItemKind::File, StageLocation::in_pfs(&outside, source.clone()), target);
    let options = options(&sides, Verify::Checksum);
    let (outcome, _) = run_until_gate(&request, &options, (&gate, At::Flush), |_| {
        fs::remove_file(&source).unwrap();
    });
    outcome.unwrap();
    assert!(fs::read(sides.pfs.join("copy")).unwrap() == contents);
}

#[test]
fn stage_without_read_back_ends_with_a_sync() {
    let sides = sides();
    let gate = Arc::new(Gate::default());
    let request = create_tree(&sides, &gate);
    let options = options(&sides, Verify::Checksum);
    let (outcome, end) = run_until_gate(&request, &options, (&gate, At::Flush), |progress| {
        let now = progress.snapshot();
        assert_eq!(now.phase, StagePhase::Syncing);
        assert_eq!((now.files, now.read_back.files_total), (5, 0));
        std::thread::sleep(Duration::from_millis(20));
    });
    let report = outcome.unwrap();
    assert!(report.times.syncing >= Duration::from_millis(20), "{report:?}");
    assert_eq!(report.times.reading_back, Duration::ZERO);
    assert_eq!((report.read_back, end.phase), (0, StagePhase::Syncing));
}
