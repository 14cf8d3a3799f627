//! Small files of one directory, which are read together from an instance.

use crate::support;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_stage::{ItemKind, StageError, StageLocation, StageOptions, Verify};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use support::gate::{At, Gate, gated};
use support::{Sides, noise, one, picture, run, sides};

/// One thread, so that batches do not depend on its speed.
fn in_order() -> StageOptions {
    StageOptions { workers: 0, verify: Verify::ReadBack, ..StageOptions::default() }
}

/// Requests of this kind answered so far.
fn answered(sides: &Sides, kind: &str) -> u64 {
    let requests = sides.daemon.stats().collect_report(Duration::ZERO).requests;
    requests.get(kind).map_or(0, |stats| stats.latency.count())
}

#[test]
fn small_files_of_a_directory_are_read_together() {
    let sides = sides();
    for directory in ["in/a", "in/b"] {
        fs::create_dir_all(sides.pfs.join(directory)).unwrap();
        for index in 0..100 {
            let path = sides.pfs.join(directory).join(format!("f{index}"));
            fs::write(path, noise(index * 40, index as u64)).unwrap();
        }
    }
    run(&sides.stage_in(ItemKind::Directory, "in", "in"), &in_order()).unwrap();
    for (name, buffer) in [("here", None), ("there", Some(sides.over_tcp()))] {
        let buffer = buffer.as_ref().unwrap_or(&sides.buffer);
        let kinds = ["batch", "get_file", "open"];
        let before = kinds.map(|kind| answered(&sides, kind));
        let inside = StageLocation::in_instance(&buffer.space, "in");
        let request = one(ItemKind::Directory, inside, sides.outside(name));
        assert_eq!(run(&request, &in_order()).unwrap().files, 200);
        let after = kinds.map(|kind| answered(&sides, kind));
        let count = |kind: usize| after[kind] - before[kind];
        assert_eq!([count(0), count(1), count(2)], [8, 200, 0], "{name}");
        assert_eq!(picture(&sides.pfs.join(name)), picture(&sides.pfs.join("in")));
    }
}

/// Together they are longer than several messages.
#[test]
fn files_of_all_kinds_and_names_are_read_together() {
    let sides = sides();
    let tree = sides.pfs.join("in");
    fs::create_dir(&tree).unwrap();
    let names = [vec![b'n'; 255], b" ".to_vec(), b"\n\"'\\".to_vec(), vec![0xff, 0xfe, b'*']];
    for (index, name) in names.into_iter().enumerate() {
        fs::write(tree.join(OsString::from_vec(name)), noise(100, index as u64)).unwrap();
    }
    for (index, length) in [0, 1, 4096, 65_535, 65_536, 65_537].into_iter().enumerate() {
        fs::write(tree.join(format!("long{length}")), noise(length, index as u64)).unwrap();
    }
    for index in 0..20 {
        fs::write(tree.join(format!("f{index}")), noise(40_000, index)).unwrap();
    }
    fs::hard_link(tree.join("f1"), tree.join("same")).unwrap();
    symlink("f1", tree.join("link")).unwrap();
    fs::write(tree.join("with attribute"), b"x").unwrap();
    let attribute = (tree.join("with attribute"), "user.origin");
    let has_attribute = setxattr(&attribute.0, attribute.1, b"run 7", XattrFlags::empty()).is_ok();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(60_000).unwrap();
    sparse.write_all_at(b"end", 50_000).unwrap();
    run(&sides.stage_in(ItemKind::Directory, "in", "in"), &StageOptions::default()).unwrap();
    for workers in [0, 4] {
        let out = format!("out{workers}");
        let request = sides.stage_out(ItemKind::Directory, "in", &out);
        run(&request, &StageOptions { workers, ..in_order() }).unwrap();
        let out = sides.pfs.join(out);
        assert_eq!(picture(&out), picture(&tree));
        if has_attribute {
            let mut value = [0; 16];
            let length = getxattr(out.join("with attribute"), attribute.1, &mut value[..]);
            assert_eq!(&value[..length.unwrap()], b"run 7");
        }
    }
}

/// Makes what the daemon has stored of a file unreadable.
fn damage(sides: &Sides, path: &str) {
    let ino = sides.buffer.attr(path).unwrap().ino.0;
    let object = format!("flash/objects/{:016x}/{:02x}/{ino:016x}", 1, ino % 64);
    let object = sides.directory.path().join(object);
    fs::remove_file(&object).unwrap();
    fs::create_dir_all(object.join("not a file")).unwrap();
}

/// Files that change between their listing and their copy: each has its own result.
#[test]
fn files_that_change_vanish_or_cannot_be_read_have_results_of_their_own() {
    let sides = sides();
    let tree = sides.pfs.join("in");
    fs::create_dir(&tree).unwrap();
    for index in 0..100 {
        fs::write(tree.join(format!("f{index:02}")), noise(500, index)).unwrap();
    }
    run(&sides.stage_in(ItemKind::Directory, "in", "in"), &StageOptions::default()).unwrap();
    // Those of the last batch, in the order in which they are listed.
    let listed: Vec<String> = sides
        .buffer
        .entries("in")
        .into_iter()
        .map(|entry| String::from_utf8(entry.name).unwrap())
        .filter(|name| name.starts_with('f'))
        .collect();
    let [.., vanishes, shrinks, grows, damaged, last] = &listed[..] else { panic!("{listed:?}") };
    damage(&sides, &format!("in/{damaged}"));
    let gate = Arc::new(Gate::default());
    let outside = gated(&sides.pfs, &gate);
    let target = StageLocation::in_pfs(&outside, sides.pfs.join("out"));
    let request = &one(ItemKind::Directory, sides.inside("in"), target);
    gate.close(Some(At::Write));
    let outcome = std::thread::scope(|scope| {
        // What has become large is copied in parts.
        let options = StageOptions { segment_bytes: 64 << 10, ..in_order() };
        let stage = scope.spawn(move || run(request, &options));
        gate.wait();
        let at = |name: &str| format!("in/{name}");
        sides.buffer.remove(&at(vanishes));
        sides.buffer.write(&at(shrinks), b"short");
        sides.buffer.write(&at(grows), &noise(200_000, 7));
        gate.close(None);
        stage.join().unwrap()
    });
    let error = outcome.unwrap_err();
    let StageError::Incomplete { problems, count: 3 } = &error else { panic!("{error}") };
    let is_gone = problems.iter().any(|problem| problem.reason == "vanished while it was staged");
    assert!(is_gone, "{error}");
    let paths: Vec<&Path> = problems.iter().map(|problem| &*problem.path).collect();
    let shown = |name: &String| PathBuf::from("$DW_JOB_STRIPED/in").join(name);
    // The directory has lost an entry.
    let mut failed = [PathBuf::from("$DW_JOB_STRIPED/in"), shown(vanishes), shown(damaged)];
    failed.sort();
    assert_eq!(paths, failed, "{error}");
    let out = sides.pfs.join("out");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 98, "no part of another one is left");
    assert_eq!(fs::read(out.join(shrinks)).unwrap(), b"short");
    assert_eq!(fs::read(out.join(grows)).unwrap(), noise(200_000, 7));
    assert_eq!(fs::read(out.join(last)).unwrap(), fs::read(tree.join(last)).unwrap());
}
