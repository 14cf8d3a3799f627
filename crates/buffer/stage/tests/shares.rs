//! Stages that several movers share: together they give the result of one.

use crate::support;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_stage::{
    ItemKind, StageError, StageItem, StageLocation, StageOptions, StageRequest, Verify,
};
use proptest::prelude::*;
use support::gate::{At, Gate, gated};
use support::shares::{Meeting, run_share, run_shares};
use support::{Sides, noise, picture, sides};

fn options(journal: PathBuf) -> StageOptions {
    StageOptions {
        journal: Some(journal),
        segment_bytes: 32 << 10,
        sync_interval: Duration::from_millis(5),
        workers: 2,
        ..StageOptions::default()
    }
}

/// A request for each of `count` shares, with connections of its own.
fn requests(
    sides: &Sides,
    count: u32,
    request: impl Fn(&Sides, &dyn Fn(&str) -> StageLocation) -> StageRequest,
) -> Vec<StageRequest> {
    let one = |_| {
        let buffer = sides.over_tcp();
        request(sides, &|path| StageLocation::in_instance(&buffer.space, path))
    };
    (0..count).map(one).collect()
}

fn directory_in(sides: &Sides, count: u32, from: &str, to: &str) -> Vec<StageRequest> {
    requests(sides, count, |sides, inside| {
        support::one(ItemKind::Directory, sides.outside(from), inside(to))
    })
}

fn directory_out(sides: &Sides, count: u32, from: &str, to: &str) -> Vec<StageRequest> {
    requests(sides, count, |sides, inside| {
        support::one(ItemKind::Directory, inside(from), sides.outside(to))
    })
}

fn age(path: &Path, seconds: u32) {
    let time = rustix::fs::Timespec { tv_sec: i64::from(seconds), tv_nsec: 123_456_789 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .unwrap();
}

/// An entry of a random tree, in the directory of this number.
#[derive(Clone, Debug)]
struct Entry {
    directory: usize,
    kind: Kind,
    mode: u32,
    time: u32,
}

#[derive(Clone, Debug)]
enum Kind {
    Directory,
    File(usize),
    Sparse(u64),
    Symlink,
    /// A further name of an earlier file.
    HardLink(usize),
}

fn entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        3 => Just(Kind::Directory),
        6 => (0usize..3000).prop_map(Kind::File),
        3 => (0usize..400_000).prop_map(Kind::File),
        1 => (1u64..600_000).prop_map(Kind::Sparse),
        1 => Just(Kind::Symlink),
        2 => (0usize..100).prop_map(Kind::HardLink),
    ];
    let mode = prop_oneof![Just(0o644), Just(0o4750), Just(0o700), Just(0o555)];
    (0usize..100, kind, mode, 1u32..2_000_000_000).prop_map(|(directory, kind, mode, time)| Entry {
        directory,
        kind,
        mode,
        time,
    })
}

fn create_tree(root: &Path, entries: &[Entry]) {
    fs::create_dir(root).unwrap();
    let (mut directories, mut files) = (vec![root.to_owned()], Vec::<PathBuf>::new());
    let mut made = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let parent = &directories[entry.directory % directories.len()];
        let path = parent.join(format!("e{index}"));
        match &entry.kind {
            Kind::Directory => {
                fs::create_dir(&path).unwrap();
                directories.push(path.clone());
            }
            Kind::File(size) => fs::write(&path, noise(*size, index as u64)).unwrap(),
            Kind::Sparse(size) => {
                let file = fs::File::create(&path).unwrap();
                file.set_len(*size).unwrap();
                file.write_all_at(b"data", size / 2).unwrap();
            }
            Kind::Symlink => symlink("somewhere/else", &path).unwrap(),
            Kind::HardLink(of) if files.is_empty() => fs::write(&path, of.to_string()).unwrap(),
            Kind::HardLink(of) => fs::hard_link(&files[of % files.len()], &path).unwrap(),
        }
        if matches!(entry.kind, Kind::File(_) | Kind::Sparse(_)) {
            files.push(path.clone());
        }
        made.push((path, entry));
    }
    // Inner directories first: a change in a directory changes its time.
    for (path, entry) in made.iter().rev() {
        if !matches!(entry.kind, Kind::Symlink) {
            fs::set_permissions(path, fs::Permissions::from_mode(entry.mode)).unwrap();
        }
        age(path, entry.time);
    }
    age(root, 7);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// Movers that are interrupted at any time copy a tree into an instance, and out again.
    #[test]
    fn any_number_of_movers_copies_a_tree(
        entries in proptest::collection::vec(entry(), 0..60),
        counts in (1u32..6, 1u32..6),
        read_back: bool,
        interruptions in proptest::collection::vec(
            proptest::collection::vec(0u64..300_000, 0..4), 5),
        key: u64,
    ) {
        let sides = sides();
        create_tree(&sides.pfs.join("in"), &entries);
        let expected = picture(&sides.pfs.join("in"));
        let verify = if read_back { Verify::ReadBack } else { Verify::Checksum };
        let options = |name| StageOptions { verify, ..options(sides.directory.path().join(name)) };
        let meeting = Meeting::new(counts.0, key);
        let ends = run_shares(
            &meeting,
            &directory_in(&sides, counts.0, "in", "there"),
            &options("journal-in"),
            &interruptions,
        );
        for end in &ends {
            prop_assert!(end.outcome.is_ok(), "{ends:?}");
        }
        prop_assert_eq!(sides.buffer.picture("there"), expected.clone());
        let meeting = Meeting::new(counts.1, key);
        let ends = run_shares(
            &meeting,
            &directory_out(&sides, counts.1, "there", "out"),
            &options("journal-out"),
            &interruptions,
        );
        for end in &ends {
            prop_assert!(end.outcome.is_ok(), "{ends:?}");
        }
        prop_assert_eq!(picture(&sides.pfs.join("out")), expected);
    }
}

#[test]
fn one_large_file_is_copied_by_all_movers() {
    let sides = sides();
    let contents = noise(3_000_000, 5);
    fs::write(sides.pfs.join("large"), &contents).unwrap();
    age(&sides.pfs.join("large"), 1000);
    let requests = requests(&sides, 3, |sides, inside| {
        support::one(ItemKind::File, sides.outside("large"), inside("deep/down/large"))
    });
    let options = options(sides.directory.path().join("journal"));
    let ends = run_shares(&Meeting::new(3, 1), &requests, &options, &[]);
    let files: u64 = ends.iter().map(|end| end.progress.files).sum();
    let bytes: Vec<u64> = ends.iter().map(|end| end.progress.bytes).collect();
    assert_eq!((files, bytes.iter().sum::<u64>()), (1, 3_000_000), "{ends:?}");
    assert!(bytes.iter().all(|bytes| *bytes > 800_000), "{bytes:?}");
    let totals: u64 = ends.iter().map(|end| end.progress.bytes_total).sum();
    assert_eq!(totals, 3_000_000);
    assert_eq!(sides.buffer.read("deep/down/large"), contents);
    assert_eq!(sides.buffer.attr("deep/down/large").unwrap().mtime.secs, 1000);
    assert_eq!(sides.buffer.entries("deep/down").iter().filter(|e| e.name[0] != b'.').count(), 1);
}

#[test]
fn file_whose_copy_cannot_be_looked_up_is_not_taken_for_complete() {
    let sides = sides();
    let contents = noise(1_000_000, 5);
    sides.buffer.write("large", &contents);
    let gate = Arc::new(Gate::default());
    let mut requests = requests(&sides, 2, |sides, inside| {
        support::one(ItemKind::File, inside("large"), sides.outside("large"))
    });
    requests[0].items[0].target =
        StageLocation::in_pfs(&gated(&sides.pfs, &gate), sides.pfs.join("large"));
    let options = options(sides.directory.path().join("journal"));
    gate.close(Some(At::Flush));
    let ends = std::thread::scope(|scope| {
        let both = scope.spawn(|| run_shares(&Meeting::new(2, 1), &requests, &options, &[]));
        // The first share, which names the file, has created the copy.
        gate.wait();
        gate.copies_fail.store(true, Ordering::SeqCst);
        gate.close(None);
        both.join().unwrap()
    });
    let StageError::Incomplete { problems, .. } = ends[0].outcome.as_ref().unwrap_err() else {
        panic!("{ends:?}");
    };
    assert!(problems[0].reason.contains("looking for its copy"), "{ends:?}");
    assert!(!sides.pfs.join("large").exists());
    // The next attempt completes it.
    gate.copies_fail.store(false, Ordering::SeqCst);
    let ends = run_shares(&Meeting::new(2, 2), &requests, &options, &[]);
    assert!(ends.iter().all(|end| end.outcome.is_ok()), "{ends:?}");
    assert_eq!(fs::read(sides.pfs.join("large")).unwrap(), contents);
    assert!(hidden_below(&sides.pfs).is_empty());
}

#[test]
fn list_of_files_is_shared() {
    let sides = sides();
    fs::create_dir(sides.pfs.join("in")).unwrap();
    // The share of a file depends on its path, which is another one in each run: with fewer files a share
    // may get none.
    for count in [64, 100] {
        for index in 0..count {
            fs::write(sides.pfs.join(format!("in/f{index}")), noise(50_000, index)).unwrap();
        }
        let target = format!("to{count}");
        let requests = requests(&sides, 4, |sides, inside| {
            let item = |index| StageItem {
                kind: ItemKind::File,
                source: sides.outside(&format!("in/f{index}")),
                target: inside(&format!("{target}/f{index}")),
            };
            StageRequest { items: (0..count).map(item).collect() }
        });
        let options = StageOptions {
            segment_bytes: 1 << 20,
            ..options(sides.directory.path().join(&target))
        };
        let ends = run_shares(&Meeting::new(4, 9), &requests, &options, &[]);
        let files: Vec<u64> = ends.iter().map(|end| end.progress.files).collect();
        assert!(files.iter().all(|files| *files > 0), "{ends:?}");
        assert_eq!(files.iter().sum::<u64>(), count);
        for index in 0..count {
            assert_eq!(sides.buffer.read(&format!("{target}/f{index}")), noise(50_000, index));
        }
    }
}

#[test]
fn files_are_staged_out_by_all_movers() {
    let sides = sides();
    sides.buffer.write("large", &noise(1_000_000, 1));
    sides.buffer.write("small", b"small");
    fs::create_dir(sides.pfs.join("out")).unwrap();
    let requests = requests(&sides, 3, |sides, inside| {
        let item = |name| StageItem {
            kind: ItemKind::File,
            source: inside(name),
            target: sides.outside(&format!("out/{name}")),
        };
        StageRequest { items: ["large", "small"].map(item).to_vec() }
    });
    let options = StageOptions {
        verify: Verify::ReadBack,
        ..options(sides.directory.path().join("journal"))
    };
    let ends = run_shares(&Meeting::new(3, 1), &requests, &options, &[]);
    assert!(ends.iter().all(|end| end.outcome.is_ok()), "{ends:?}");
    assert_eq!(fs::read(sides.pfs.join("out/large")).unwrap(), noise(1_000_000, 1));
    assert_eq!(fs::read(sides.pfs.join("out/small")).unwrap(), b"small");
    let read_back: u64 = ends.iter().map(|end| end.progress.read_back.bytes).sum();
    assert_eq!(read_back, 1_000_005);
    assert!(hidden_below(&sides.pfs.join("out")).is_empty());
}

/// Names of incomplete copies below a directory.
fn hidden_below(root: &Path) -> Vec<PathBuf> {
    let is_hidden = |path: &&PathBuf| path.to_string_lossy().contains(".forebay-stage-");
    picture(root).keys().filter(is_hidden).cloned().collect()
}

fn tree_of_large_files(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/large"), noise(2_000_000, 1)).unwrap();
    for index in 0..30 {
        fs::write(root.join(format!("a/b/f{index}")), noise(3000, index)).unwrap();
    }
    for name in ["a/b", "a", ""] {
        age(&root.join(name), 5000);
    }
}

#[test]
fn all_files_but_one_are_staged_if_one_cannot_be() {
    let sides = sides();
    tree_of_large_files(&sides.pfs.join("in"));
    let options = options(sides.directory.path().join("journal"));
    let ends =
        run_shares(&Meeting::new(3, 1), &directory_in(&sides, 3, "in", "there"), &options, &[]);
    assert!(ends.iter().all(|end| end.outcome.is_ok()), "{ends:?}");
    // A file in an instance that cannot be staged out.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        sides.pfs.join("in/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    age(&sides.pfs.join("in"), 6000);
    let again = run_shares(
        &Meeting::new(3, 2),
        &directory_in(&sides, 3, "in", "other"),
        &StageOptions { journal: None, ..options.clone() },
        &[],
    );
    let reported = again.iter().filter(|end| match &end.outcome {
        Err(StageError::Incomplete { problems, count: 1 }) => problems[0].path.ends_with("in/pipe"),
        Err(StageError::OtherShare) => false,
        other => panic!("{other:?}"),
    });
    assert_eq!(reported.count(), 1, "{again:?}");
    for index in 0..30 {
        assert_eq!(sides.buffer.read(&format!("other/a/b/f{index}")), noise(3000, index));
    }
    assert_eq!(sides.buffer.attr("other/a/b").unwrap().mtime.secs, 5000);
    // Part of what all movers copy may be missing.
    let picture = sides.buffer.picture("other");
    assert!(!picture.contains_key(Path::new("a/large")));
    assert!(picture.keys().all(|path| !path.to_string_lossy().contains("forebay")), "{picture:?}");
}

#[test]
fn file_created_between_the_walks_of_two_movers_is_noticed() {
    let sides = sides();
    tree_of_large_files(&sides.pfs.join("in"));
    let requests = directory_in(&sides, 2, "in", "there");
    let options = options(sides.directory.path().join("journal"));
    let meeting = Meeting::new(2, 1);
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| run_share(&meeting, 1, &requests[1], &options, &[]));
        meeting.await_waiting(&[1]);
        for index in 0..8 {
            fs::write(sides.pfs.join(format!("in/a/late{index}")), b"late").unwrap();
        }
        let first = run_share(&meeting, 0, &requests[0], &options, &[]);
        (first, second.join().unwrap())
    });
    assert_eq!(first.outcome, Err(StageError::OtherShare));
    assert_eq!(second.outcome, Err(StageError::OtherShare));
    // The next attempt copies them.
    let ends = run_shares(&Meeting::new(2, 2), &requests, &options, &[]);
    assert!(ends.iter().all(|end| end.outcome.is_ok()), "{ends:?}");
    assert_eq!(sides.buffer.picture("there"), picture(&sides.pfs.join("in")));
}

#[test]
fn cancelled_movers_leave_no_incomplete_copies() {
    let sides = sides();
    tree_of_large_files(&sides.pfs.join("in"));
    let meeting = Meeting::new(2, 1);
    let requests = directory_in(&sides, 2, "in", "there");
    let journal = options(sides.directory.path().join("journal"));
    let ends = run_shares(&meeting, &requests, &journal, &[]);
    assert!(ends.iter().all(|end| end.outcome.is_ok()), "{ends:?}");
    let requests = directory_out(&sides, 2, "there", "out");
    let meeting = Meeting::new(2, 2);
    let counters = [(); 2].map(|()| forebay_stage::ProgressCounters::new());
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for index in 0..2 {
            // The second mover waits for a third one, which never comes.
            let (request, progress) = (&requests[index], &counters[index]);
            let share = Meeting::share(&Meeting::new(2, 2), index as u32);
            let options = StageOptions { share: Some(share), journal: None, ..journal.clone() };
            threads
                .push(scope.spawn(move || forebay_stage::run_stage(request, &options, progress)));
        }
        let waits = |progress: &forebay_stage::ProgressCounters| {
            let now = progress.snapshot();
            now.all_found && now.bytes == now.bytes_total
        };
        while !counters.iter().all(waits) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(hidden_below(&sides.pfs.join("out")).len(), 1);
        counters.iter().for_each(forebay_stage::ProgressCounters::cancel);
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Err(StageError::Cancelled));
        }
    });
    drop(meeting);
    assert!(hidden_below(&sides.pfs.join("out")).is_empty());
    assert!(!sides.pfs.join("out/a/large").exists());
}
