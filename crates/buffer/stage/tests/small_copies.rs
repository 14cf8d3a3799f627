//! Small files that are written to the parallel file system, where other files have their names, and for
//! other users.

use crate::support;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;

use forebay_stage::end::{FileKind, FileStat, LocalFileSystem, PutOutcome, SmallFile};
use forebay_stage::{Identity, ItemKind, StageError, StageLocation, StageOptions, Verify};
use support::{Sides, noise, one, picture, run, sides};

const USER: u32 = 12_345;

fn options() -> StageOptions {
    StageOptions { workers: 2, verify: Verify::ReadBack, ..StageOptions::default() }
}

/// A tree `name` of small files on the parallel file system, and in the instance.
fn tree(sides: &Sides, name: &str, seed: u64) {
    let tree = sides.pfs.join(name);
    fs::create_dir(&tree).unwrap();
    for index in 0..60 {
        let path = tree.join(format!("f{index}"));
        fs::write(&path, noise(20 * index as usize, seed + index)).unwrap();
        let modes = [0o600, 0o644, 0o755, 0o4755, 0o2711, 0o000];
        let mode = modes[index as usize % modes.len()];
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    run(&sides.stage_in(ItemKind::Directory, name, name), &options()).unwrap();
}

fn stat(mode: u32) -> FileStat {
    FileStat {
        kind: FileKind::File,
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size: 4,
        allocated: 512,
        nlink: 1,
        inode: (1, 1),
        accessed: Default::default(),
        modified: Default::default(),
        changed: Default::default(),
    }
}

#[test]
fn small_files_are_written_at_once_and_leave_no_other_names() {
    let sides = sides();
    let pfs = LocalFileSystem::open(&[], None).open_dir(&sides.pfs).unwrap();
    let stat = stat(0o640);
    let new =
        |name, contents| SmallFile { name: Path::new(name).as_os_str(), stat: &stat, contents };
    for (round, contents) in [b"once", b"more"].into_iter().enumerate() {
        let put = pfs.put_small_files(&[new("a", contents), new("b", contents)]);
        assert_eq!(put, [Ok(PutOutcome::Stored), Ok(PutOutcome::Stored)], "round {round}");
        for name in ["a", "b"] {
            assert_eq!(fs::read(sides.pfs.join(name)).unwrap(), contents);
            assert_eq!(fs::metadata(sides.pfs.join(name)).unwrap().mode() & 0o7777, 0o640);
        }
    }
    // Files do not replace directories.
    fs::create_dir(sides.pfs.join("c")).unwrap();
    let put = pfs.put_small_files(&[new("c", b"file")]);
    assert_eq!(put, [Ok(PutOutcome::Unsupported)]);
    assert_eq!(fs::read_dir(&sides.pfs).unwrap().count(), 3, "nothing hidden is left");
}

#[test]
fn small_copies_replace_what_has_their_names() {
    let sides = sides();
    tree(&sides, "in", 1);
    let (out, elsewhere) = (sides.pfs.join("out"), sides.pfs.join("elsewhere"));
    fs::create_dir(&out).unwrap();
    fs::write(&elsewhere, b"not to be written").unwrap();
    for index in 0..20 {
        let path = out.join(format!("f{index}"));
        match index % 3 {
            0 => fs::write(&path, b"older and longer than some").unwrap(),
            1 => symlink(&elsewhere, &path).unwrap(),
            _ => fs::hard_link(&elsewhere, &path).unwrap(),
        }
    }
    let like = |name: &str| {
        let time = fs::metadata(sides.pfs.join(name)).unwrap();
        (time.mode(), time.uid(), time.gid())
    };
    run(&sides.stage_out(ItemKind::Directory, "in", "out"), &options()).unwrap();
    let (mut expected, mut found) = (picture(&sides.pfs.join("in")), picture(&out));
    // The directory existed before and keeps its attributes.
    assert_eq!(like("out"), like("in"));
    for tree in [&mut expected, &mut found] {
        tree.remove(Path::new(""));
    }
    assert_eq!(found, expected);
    assert_eq!(fs::read(&elsewhere).unwrap(), b"not to be written");
    assert_eq!(fs::metadata(&elsewhere).unwrap().nlink(), 1);
}

/// Whichever ends last, each copy is that of one of them.
#[test]
fn two_stages_of_small_files_to_the_same_names_do_not_mix_them() {
    let sides = sides();
    tree(&sides, "in0", 1);
    tree(&sides, "in1", 1000);
    for _ in 0..5 {
        let stage = |number: usize| {
            let from = format!("in{number}");
            run(&sides.stage_out(ItemKind::Directory, &from, "out"), &StageOptions::default())
        };
        let outcomes = std::thread::scope(|scope| {
            let first = scope.spawn(|| stage(0));
            [stage(1), first.join().unwrap()]
        });
        for outcome in outcomes {
            if let Err(StageError::Incomplete { problems, .. }) = &outcome {
                let is_busy = |text: &str| text.contains("another stage copies");
                assert!(problems.iter().all(|problem| is_busy(&problem.reason)), "{problems:?}");
            } else {
                outcome.unwrap();
            }
        }
        let copies = picture(&sides.pfs.join("out"));
        let sources = [picture(&sides.pfs.join("in0")), picture(&sides.pfs.join("in1"))];
        for (name, copy) in copies.iter().filter(|(name, _)| !name.as_os_str().is_empty()) {
            assert!(sources.iter().any(|source| source.get(name) == Some(copy)), "{name:?}");
        }
    }
}

#[test]
fn small_copies_for_a_user_belong_to_the_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can act for others: not tried");
        return;
    }
    let sides = sides();
    fs::set_permissions(sides.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(sides.pfs.join("mine")).unwrap();
    chown(sides.pfs.join("mine"), Some(USER), Some(USER)).unwrap();
    let who = Identity::for_user(USER, USER).unwrap().map(Arc::new);
    let pfs = LocalFileSystem::open(&[], who);
    // Files of root, and one of the user.
    tree(&sides, "in", 1);
    let ino = sides.buffer.attr("in/f3").unwrap().ino;
    let set = forebay_protocol::message::SetAttr {
        uid: Some(USER),
        gid: Some(USER),
        mode: Some(0o4755),
        ..Default::default()
    };
    sides.buffer.fs.set_attr(ino, None, set).unwrap();
    let mine = StageLocation::in_pfs(&pfs, sides.pfs.join("mine/out"));
    // The user may not read all of them back.
    let options = StageOptions { verify: Verify::Checksum, ..options() };
    run(&one(ItemKind::Directory, sides.inside("in"), mine), &options).unwrap();
    for index in 0..60 {
        let name = format!("f{index}");
        let copy = fs::metadata(sides.pfs.join("mine/out").join(&name)).unwrap();
        assert_eq!((copy.uid(), copy.gid()), (USER, USER), "{name}");
        let source = sides.buffer.attr(&format!("in/{name}")).unwrap();
        // A program of root's does not become one that runs as the user.
        let set_id = if index == 3 { 0 } else { 0o6000 };
        assert_eq!(copy.mode() & 0o7777, u32::from(source.mode) & !set_id, "{name}");
    }
    // Where the user may not write, nothing is written.
    let theirs = StageLocation::in_pfs(&pfs, sides.pfs.join("in"));
    let refused = run(&one(ItemKind::Directory, sides.inside("in"), theirs), &options);
    assert!(refused.unwrap_err().to_string().contains("Permission denied"));
    // This thread has the identity of root again.
    fs::write(sides.pfs.join("roots"), b"").unwrap();
    assert_eq!(fs::metadata(sides.pfs.join("roots")).unwrap().uid(), 0);
}
