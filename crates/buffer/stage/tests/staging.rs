//! Staging between a directory and an instance: copies are equal to their sources, or the difference
//! is reported.

use crate::support;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use forebay_stage::{
    ItemKind, ProgressCounters, StageError, StageLocation, StageOptions, Verify, run_stage,
};
use rustix::fs::{XattrFlags, setxattr};
use support::{noise, one, picture, run, sides};

fn age(path: &Path, seconds: i64) {
    let time = rustix::fs::Timespec { tv_sec: 1_000_000_000 + seconds, tv_nsec: 123_456_789 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .unwrap();
}

/// A tree with files, directories and links of each kind.
fn create_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b c/ünï")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("a/file"), noise(300_000, 1)).unwrap();
    fs::write(root.join("a/nothing"), b"").unwrap();
    fs::write(root.join("a/b c/script"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("a/b c/script"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::write(root.join("a/b c/ünï/secret"), b"x").unwrap();
    fs::set_permissions(root.join("a/b c/ünï/secret"), fs::Permissions::from_mode(0o400)).unwrap();
    symlink("../file", root.join("a/b c/link")).unwrap();
    symlink("/nowhere/at/all", root.join("dangling")).unwrap();
    fs::hard_link(root.join("a/file"), root.join("a/b c/same")).unwrap();
    fs::hard_link(root.join("a/file"), root.join("z")).unwrap();
    for (index, name) in
        ["a/file", "a/b c/script", "a/b c/ünï", "a/b c", "a", "empty", ""].iter().enumerate()
    {
        age(&root.join(name), index as i64 * 1000);
    }
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o555)).unwrap();
}

#[test]
fn tree_survives_stage_in_and_stage_out() {
    let sides = sides();
    fs::create_dir(sides.pfs.join("in")).unwrap();
    create_tree(&sides.pfs.join("in"));
    for verify in [Verify::Off, Verify::Checksum, Verify::ReadBack] {
        let options = StageOptions { verify, segment_bytes: 65_536, ..StageOptions::default() };
        let (there, back) = (format!("deep/{verify:?}"), format!("back{verify:?}"));
        let report = run(&sides.stage_in(ItemKind::Directory, "in", &there), &options).unwrap();
        assert_eq!((report.files, report.directories), (4, 5), "{report:?}");
        assert_eq!((report.symbolic_links, report.hard_links), (2, 2));
        assert_eq!(report.bytes, 300_000 + 10 + 1);
        assert!(report.warnings.is_empty(), "{:?}", report.warnings);
        assert_eq!(sides.buffer.picture(&there), picture(&sides.pfs.join("in")));
        run(&sides.stage_out(ItemKind::Directory, &there, &back), &options).unwrap();
        assert_eq!(picture(&sides.pfs.join(&back)), picture(&sides.pfs.join("in")));
    }
}

#[test]
fn existing_file_is_replaced_atomically() {
    let sides = sides();
    sides.buffer.write("new", b"new contents");
    fs::write(sides.pfs.join("result"), b"old").unwrap();
    run(&sides.stage_out(ItemKind::File, "new", "result"), &StageOptions::default()).unwrap();
    assert_eq!(fs::read(sides.pfs.join("result")).unwrap(), b"new contents");
    let names: Vec<_> = fs::read_dir(&sides.pfs).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing hidden is left: {names:?}");
    // A link inside the instance is followed to its target.
    sides.buffer.symlink(Path::new("new"), "latest");
    run(&sides.stage_out(ItemKind::File, "latest", "copy"), &StageOptions::default()).unwrap();
    assert_eq!(fs::read(sides.pfs.join("copy")).unwrap(), b"new contents");
}

#[test]
fn holes_are_preserved() {
    use std::os::unix::fs::FileExt;
    let sides = sides();
    let file = fs::File::create(sides.pfs.join("sparse")).unwrap();
    file.set_len(3 << 30).unwrap();
    file.write_all_at(&noise(10_000, 3), 1 << 30).unwrap();
    file.write_all_at(b"end", (2 << 30) - 3).unwrap();
    file.sync_all().unwrap();
    for verify in [Verify::Off, Verify::ReadBack] {
        let options = StageOptions { verify, ..StageOptions::default() };
        run(&sides.stage_in(ItemKind::File, "sparse", "sparse"), &options).unwrap();
        let attr = sides.buffer.attr("sparse").unwrap();
        assert_eq!(attr.size, 3 << 30);
        assert!(attr.blocks * 512 < 10 << 20, "{} blocks", attr.blocks);
        let bytes = sides.buffer.read_at("sparse", 1 << 30, 10_000);
        assert_eq!(bytes, noise(10_000, 3));
        assert_eq!(sides.buffer.read_at("sparse", (2 << 30) - 3, 4), b"end\0");
    }
}

#[test]
fn extended_attributes_are_preserved() {
    let sides = sides();
    let file = sides.pfs.join("f");
    fs::write(&file, b"x").unwrap();
    if setxattr(&file, "user.origin", b"run 7", XattrFlags::empty()).is_err() {
        eprintln!("this file system has no extended attributes: not tried");
        return;
    }
    run(&sides.stage_in(ItemKind::File, "f", "f"), &StageOptions::default()).unwrap();
    let ino = sides.buffer.attr("f").unwrap().ino;
    assert_eq!(sides.buffer.fs.get_xattr(ino, b"user.origin").unwrap(), b"run 7");
}

#[test]
fn interrupted_stage_continues_from_its_journal() {
    let sides = sides();
    fs::create_dir(sides.pfs.join("in")).unwrap();
    for index in 0..40 {
        fs::write(sides.pfs.join(format!("in/f{index}")), noise(200_000, index)).unwrap();
    }
    fs::write(sides.pfs.join("in/large"), noise(40 << 20, 99)).unwrap();
    let journal = sides.pfs.join("journal");
    let options = StageOptions {
        journal: Some(journal),
        sync_interval: Duration::from_millis(1),
        segment_bytes: 1 << 20,
        workers: 2,
        ..StageOptions::default()
    };
    let request = sides.stage_in(ItemKind::Directory, "in", "in");
    let mut rounds = 0;
    let report = loop {
        rounds += 1;
        assert!(rounds < 100, "it never ends");
        let progress = ProgressCounters::new();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Interrupts each of the first rounds after some megabytes.
                while rounds < 4 && progress.snapshot().bytes < rounds << 23 {
                    std::thread::sleep(Duration::from_micros(200));
                }
                if rounds < 4 {
                    progress.suspend();
                }
            });
            run_stage(&request, &options, &progress)
        });
        match outcome {
            Ok(report) => break report,
            Err(error) => assert_eq!(error, StageError::Cancelled),
        }
        assert!(!sides.buffer.exists("in/large") || rounds > 1);
    };
    assert!(report.resumed > 0, "{report:?}");
    assert_eq!(sides.buffer.picture("in"), picture(&sides.pfs.join("in")));
    // A run of a complete stage does nothing.
    sides.buffer.remove("in/f0");
    assert_eq!(run(&request, &options).unwrap().files, 0);
    assert!(!sides.buffer.exists("in/f0"));
}

#[test]
fn cancelled_stage_leaves_no_incomplete_copy_and_can_be_repeated() {
    let sides = sides();
    sides.buffer.write("big", &noise(64 << 20, 1));
    let out = sides.pfs.join("out");
    fs::create_dir(&out).unwrap();
    let options = StageOptions {
        journal: Some(sides.pfs.join("journal")),
        sync_interval: Duration::from_millis(1),
        segment_bytes: 1 << 20,
        ..StageOptions::default()
    };
    let request = sides.stage_out(ItemKind::File, "big", "out/big");
    let progress = ProgressCounters::new();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.snapshot().bytes < 4 << 20 {
                std::thread::sleep(Duration::from_micros(100));
            }
            progress.cancel();
        });
        run_stage(&request, &options, &progress)
    });
    assert_eq!(outcome, Err(StageError::Cancelled));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    run(&request, &options).unwrap();
    assert!(fs::read(out.join("big")).unwrap() == noise(64 << 20, 1));
}

#[test]
fn file_changed_between_runs_is_copied_again() {
    let sides = sides();
    fs::create_dir(sides.pfs.join("in")).unwrap();
    fs::write(sides.pfs.join("in/a"), b"one").unwrap();
    symlink("/proc/self/mem", sides.pfs.join("in/link")).unwrap();
    let fifo = std::ffi::CString::new(sides.pfs.join("in/pipe").to_str().unwrap()).unwrap();
    // SAFETY: the argument is a C string that lives during the call.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    let options =
        StageOptions { journal: Some(sides.pfs.join("journal")), ..StageOptions::default() };
    let request = sides.stage_in(ItemKind::Directory, "in", "in");
    let error = run(&request, &options).unwrap_err().to_string();
    assert!(error.contains("in/pipe: is a device, a pipe or a socket"), "{error}");
    assert_eq!(sides.buffer.read("in/a"), b"one", "all others are staged");
    fs::write(sides.pfs.join("in/a"), b"two").unwrap();
    fs::remove_file(sides.pfs.join("in/pipe")).unwrap();
    run(&request, &options).unwrap();
    assert_eq!(sides.buffer.read("in/a"), b"two");
}

/// As `cp -p` or `touch -r` set it.
#[test]
fn rewritten_file_with_old_mtime_is_copied_again() {
    let sides = sides();
    fs::create_dir(sides.pfs.join("in")).unwrap();
    let names = ["small", "large"].map(|name| sides.pfs.join("in").join(name));
    let contents = |seed| [noise(1000, seed), noise(200_000, seed)];
    for (name, bytes) in names.iter().zip(contents(1)) {
        fs::write(name, bytes).unwrap();
    }
    for verify in [Verify::Checksum, Verify::ReadBack] {
        let options = StageOptions {
            verify,
            journal: Some(sides.pfs.join(format!("journal{verify:?}"))),
            segment_bytes: 65_536,
            ..StageOptions::default()
        };
        let there = format!("{verify:?}");
        let mut request = sides.stage_in(ItemKind::Directory, "in", &there);
        let absent = sides.stage_in(ItemKind::File, "absent", "absent");
        request.items.extend(absent.items);
        assert!(run(&request, &options).is_err(), "one file is not there");
        for (seed, name) in [3, 4].into_iter().zip(&names) {
            let modified = fs::metadata(name).unwrap().modified().unwrap();
            let length = fs::metadata(name).unwrap().len();
            fs::write(name, noise(length as usize, seed)).unwrap();
            let file = fs::OpenOptions::new().write(true).open(name).unwrap();
            file.set_modified(modified).unwrap();
        }
        fs::write(sides.pfs.join("absent"), b"").unwrap();
        let report = run(&request, &options).unwrap();
        assert_eq!((report.files, report.resumed), (3, 0), "{verify:?}");
        assert_eq!(sides.buffer.picture(&there), picture(&sides.pfs.join("in")));
        fs::remove_file(sides.pfs.join("absent")).unwrap();
    }
}

#[test]
fn source_files_that_change_or_vanish_are_reported() {
    let sides = sides();
    let source = sides.pfs.join("growing");
    fs::write(&source, noise(64 << 20, 5)).unwrap();
    let progress = ProgressCounters::new();
    let request = sides.stage_in(ItemKind::File, "growing", "growing");
    let options = StageOptions { segment_bytes: 1 << 20, workers: 1, ..StageOptions::default() };
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.snapshot().bytes < 1 << 20 {
                std::thread::sleep(Duration::from_micros(100));
            }
            use std::io::Write;
            fs::OpenOptions::new().append(true).open(&source).unwrap().write_all(b"more").unwrap();
        });
        run_stage(&request, &options, &progress)
    });
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("growing: changed while it was staged"), "{error}");
    assert_eq!(sides.buffer.entries("").len(), 0, "no half of it is left");
    let missing =
        run(&sides.stage_in(ItemKind::File, "gone", "x"), &StageOptions::default()).unwrap_err();
    assert!(missing.to_string().ends_with("pfs/gone: does not exist"), "{missing}");
    sides.buffer.write("r", b"r");
    let error = run(&sides.stage_out(ItemKind::File, "r", "unmounted/r"), &StageOptions::default())
        .unwrap_err();
    assert!(error.to_string().contains("pfs/unmounted: the directory does not exist"), "{error}");
    assert!(!sides.pfs.join("unmounted").exists());
}

#[test]
fn paths_and_links_never_lead_out_of_an_instance() {
    let sides = sides();
    fs::write(sides.pfs.join("secret"), b"secret").unwrap();
    fs::create_dir(sides.pfs.join("victim")).unwrap();
    sides.buffer.symlink(&sides.pfs.join("secret"), "absolute");
    sides.buffer.symlink(Path::new("../pfs/secret"), "relative");
    sides.buffer.symlink(Path::new("../pfs/victim"), "directory");
    for path in ["absolute", "relative", "../pfs/secret", "directory/../../pfs/secret"] {
        let error = run(&sides.stage_out(ItemKind::File, path, "stolen"), &StageOptions::default())
            .unwrap_err();
        assert!(error.to_string().contains("leads out of the instance"), "{path}: {error}");
        assert!(!sides.pfs.join("stolen").exists());
    }
    fs::write(sides.pfs.join("in"), b"x").unwrap();
    for path in ["directory/x", "../pfs/victim/x"] {
        let error =
            run(&sides.stage_in(ItemKind::File, "in", path), &StageOptions::default()).unwrap_err();
        assert!(
            error.to_string().contains("symbolic link") || error.to_string().contains("leads out"),
            "{error}"
        );
    }
    assert_eq!(fs::read_dir(sides.pfs.join("victim")).unwrap().count(), 0);
}

#[test]
fn thousands_of_small_files_are_staged_and_counted() {
    let sides = sides();
    for directory in 0..20 {
        let path = sides.pfs.join(format!("many/d{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..250 {
            fs::write(path.join(format!("f{file}")), [directory as u8, file as u8]).unwrap();
        }
        symlink("f0", path.join("link")).unwrap();
        fs::hard_link(path.join("f1"), path.join("hard")).unwrap();
    }
    let progress = ProgressCounters::new();
    let mut has_advanced = false;
    let request = sides.stage_in(ItemKind::Directory, "many", "many");
    let report = std::thread::scope(|scope| {
        let stage = scope.spawn(|| run_stage(&request, &StageOptions::default(), &progress));
        while !stage.is_finished() {
            has_advanced |= progress.snapshot().files > 0;
            std::thread::sleep(Duration::from_millis(5));
        }
        stage.join().unwrap().unwrap()
    });
    assert_eq!((report.files, report.symbolic_links, report.hard_links), (5000, 20, 20));
    let end = progress.snapshot();
    let copied = end.copied();
    assert_eq!((copied.files, copied.files_total, copied.bytes), (5040, 5040, 10_000));
    assert_eq!(end.read_back.files_total, 0, "nothing is to be read back");
    assert!(end.all_found && has_advanced);
    assert_eq!(sides.buffer.picture("many"), picture(&sides.pfs.join("many")));
}

#[test]
fn full_target_fails_the_stage_without_incomplete_files() {
    let sides = sides();
    let small = sides.pfs.join("small");
    fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"])
        .arg(&small)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        eprintln!("a small file system cannot be mounted here: not tried");
        return;
    }
    sides.buffer.write("big", &noise(4 << 20, 1));
    // Also with a journal: parts that wait for another run would keep the file system full.
    let options = StageOptions {
        journal: Some(sides.pfs.join("journal")),
        segment_bytes: 1 << 18,
        ..StageOptions::default()
    };
    let outcome = run(&sides.stage_out(ItemKind::File, "big", "small/big"), &options);
    let left = fs::read_dir(&small).unwrap().count();
    assert!(std::process::Command::new("umount").arg(&small).status().unwrap().success());
    let error = outcome.unwrap_err();
    assert!(matches!(error, StageError::Stopped(_)), "{error}");
    assert!(error.to_string().contains("no space left there"), "{error}");
    assert_eq!(left, 0);
}

#[test]
fn small_file_takes_one_request_each_way() {
    const FILES: u64 = 300;
    let sides = sides();
    let source = sides.pfs.join("in");
    fs::create_dir(&source).unwrap();
    for index in 0..FILES {
        fs::write(source.join(format!("f{index}")), vec![7; index as usize * 100]).unwrap();
    }
    let stats = sides.daemon.stats();
    let requests = || stats.collect_report(Duration::ZERO).total_latency().count();
    let around = 100; // to attach, to read the directory, to sync
    for (name, buffer) in [("here", None), ("there", Some(sides.over_tcp()))] {
        let buffer = buffer.as_ref().unwrap_or(&sides.buffer);
        let inside = || StageLocation::in_instance(&buffer.space, name);
        let options = StageOptions {
            journal: Some(sides.pfs.join(format!("journal-{name}"))),
            ..StageOptions::default()
        };
        let before = requests();
        let request = one(ItemKind::Directory, sides.outside("in"), inside());
        assert_eq!(run(&request, &options).unwrap().files, FILES);
        let into = requests() - before;
        assert!(into <= FILES + around, "{name}: {into} requests");
        // All files are in the journal, and none is copied again.
        let repeated = run(&request, &options).unwrap();
        assert_eq!((repeated.files, repeated.resumed), (0, 0), "{name}");
        let before = requests();
        let request = one(ItemKind::Directory, inside(), sides.outside(name));
        run(&request, &StageOptions::default()).unwrap();
        let out = requests() - before;
        assert!(out <= FILES + around, "{name}: {out} requests");
        assert_eq!(picture(&sides.pfs.join(name)), picture(&source));
    }
}

#[test]
fn small_files_of_a_directory_are_written_together_and_each_has_its_result() {
    let sides = sides();
    for directory in ["in/a", "in/b"] {
        fs::create_dir_all(sides.pfs.join(directory)).unwrap();
        for index in 0..100 {
            fs::write(sides.pfs.join(directory).join(format!("f{index}")), [index; 10]).unwrap();
        }
    }
    let stats = sides.daemon.stats();
    let answered = |kind| {
        let requests = stats.collect_report(Duration::ZERO).requests;
        requests.get(kind).map_or(0, |stats| stats.latency.count())
    };
    let in_order = StageOptions { workers: 0, ..StageOptions::default() };
    let request = sides.stage_in(ItemKind::Directory, "in", "in");
    assert_eq!(run(&request, &in_order).unwrap().files, 200);
    assert_eq!((answered("batch"), answered("put_file")), (8, 200));
    assert_eq!(sides.buffer.picture("in"), picture(&sides.pfs.join("in")));

    // One of the copies cannot get its name.
    sides.buffer.remove("in/a/f7");
    sides.buffer.fs.mkdir(sides.buffer.attr("in/a").unwrap().ino, b"f7", 0o755).unwrap();
    fs::write(sides.pfs.join("in/a/f8"), "changed").unwrap();
    let error = run(&request, &in_order).unwrap_err();
    let StageError::Incomplete { problems, count: 1 } = &error else { panic!("{error}") };
    assert!(problems[0].path.ends_with("in/a/f7"), "{error}");
    assert_eq!(sides.buffer.read("in/a/f8"), b"changed");
}
