//! Failures fail the stage and have no other effect: missing paths, missing permissions, full
//! instances.

use crate::support;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use forebay_stage::end::LocalFileSystem;
use forebay_stage::{
    Identity, ItemKind, ProgressCounters, StageError, StageItem, StageLocation, StageOptions,
    StageRequest, Verify, run_stage,
};
use support::{noise, one, picture, run, sides, sides_of};

const USER: u32 = 12_345;

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn tree_staged_over_tcp_is_equal_to_its_source() {
    let sides = sides();
    let far = sides.over_tcp();
    fs::create_dir_all(sides.pfs.join("in/a")).unwrap();
    for index in 0..20 {
        let size = 1000 * index as usize;
        fs::write(sides.pfs.join(format!("in/a/f{index}")), noise(size, index)).unwrap();
    }
    fs::write(sides.pfs.join("in/large"), noise(9 << 20, 7)).unwrap();
    let sparse = fs::File::create(sides.pfs.join("in/sparse")).unwrap();
    sparse.set_len(30 << 20).unwrap();
    fs::hard_link(sides.pfs.join("in/a/f3"), sides.pfs.join("in/other")).unwrap();
    std::os::unix::fs::symlink("large", sides.pfs.join("in/link")).unwrap();
    for verify in [Verify::Off, Verify::ReadBack] {
        let options = StageOptions { verify, segment_bytes: 1 << 20, ..StageOptions::default() };
        let there = format!("{verify:?}");
        let inside = || StageLocation::in_instance(&far.space, &there);
        let request = one(ItemKind::Directory, sides.outside("in"), inside());
        run(&request, &options).unwrap();
        assert_eq!(far.picture(&there), picture(&sides.pfs.join("in")));
        let attr = far.attr(&format!("{there}/sparse")).unwrap();
        assert!(attr.blocks < 100, "a hole stays one: {attr:?}");
        let back = format!("back{there}");
        let request = one(ItemKind::Directory, inside(), sides.outside(&back));
        run(&request, &options).unwrap();
        assert_eq!(picture(&sides.pfs.join(&back)), picture(&sides.pfs.join("in")));
    }
}

/// A small tmpfs, mounted while this lives.
struct TmpFs(tempfile::TempDir);

impl TmpFs {
    fn mount(bytes: u64) -> TmpFs {
        assert!(root(), "this test mounts a file system: run it as root");
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mount = ["-t", "tmpfs", "-o", &size, "tmpfs"];
        let mounted = Command::new("mount").args(mount).arg(directory.path()).status();
        assert!(mounted.is_ok_and(|status| status.success()), "mount fails");
        TmpFs(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TmpFs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "umount fails");
    }
}

#[test]
fn stage_succeeds_without_space_for_its_journal() {
    let sides = sides();
    fs::create_dir(sides.pfs.join("in")).unwrap();
    for index in 0..500 {
        let name = format!("in/a-file-with-a-long-name-in-the-journal-{index}");
        fs::write(sides.pfs.join(name), noise(100, index)).unwrap();
    }
    fs::write(sides.pfs.join("in/large"), noise(9 << 20, 7)).unwrap();
    let disk = TmpFs::mount(16 << 10);
    for (round, full) in [false, true].into_iter().enumerate() {
        if full {
            fs::write(disk.path().join("filler"), vec![0; 64 << 10]).unwrap_err();
        }
        let journal = Some(disk.path().join("journal"));
        let options = StageOptions { journal, segment_bytes: 1 << 20, ..StageOptions::default() };
        let there = format!("in{round}");
        let request = one(ItemKind::Directory, sides.outside("in"), sides.inside(&there));
        run(&request, &options).unwrap();
        let back = one(ItemKind::Directory, sides.inside(&there), sides.outside(&there));
        run(&back, &StageOptions::default()).unwrap();
        assert_eq!(picture(&sides.pfs.join(there)), picture(&sides.pfs.join("in")));
    }
}

#[test]
fn of_two_stages_to_one_name_at_a_time_only_one_copies() {
    let sides = sides();
    let sources = [noise(24 << 20, 1), noise(24 << 20, 2)];
    for (number, data) in sources.iter().enumerate() {
        fs::write(sides.pfs.join(format!("in{number}")), data).unwrap();
    }
    let options = StageOptions { segment_bytes: 1 << 20, ..StageOptions::default() };
    for _ in 0..5 {
        let stage = |number: usize| {
            let source = sides.outside(&format!("in{number}"));
            run(&one(ItemKind::File, source, sides.outside("out")), &options)
        };
        let outcomes = std::thread::scope(|scope| {
            let first = scope.spawn(|| stage(0));
            [stage(1), first.join().unwrap()]
        });
        assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
        for problem in outcomes.into_iter().filter_map(Result::err) {
            assert!(problem.to_string().contains("another stage copies"), "{problem}");
        }
        let copied = fs::read(sides.pfs.join("out")).unwrap();
        assert!(sources.contains(&copied), "the copy has parts of both");
    }
}

#[test]
fn stage_as_user_is_limited_to_the_users_permissions() {
    if !root() {
        eprintln!("only root can act for others: not tried");
        return;
    }
    let sides = sides();
    fs::set_permissions(sides.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let user = sides.as_user(USER, USER);
    let who = Identity::for_user(USER, USER).unwrap().map(Arc::new);
    assert!(who.is_some());
    let pfs = LocalFileSystem::open(&[], who);
    let outside = |path: &str| StageLocation::in_pfs(&pfs, sides.pfs.join(path));
    fs::create_dir(sides.pfs.join("in")).unwrap();
    fs::write(sides.pfs.join("in/open"), b"for all").unwrap();
    fs::write(sides.pfs.join("in/secret"), b"root's").unwrap();
    fs::set_permissions(sides.pfs.join("in/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let request =
        one(ItemKind::Directory, outside("in"), StageLocation::in_instance(&user.space, "in"));
    let Err(StageError::Incomplete { problems, count }) = run(&request, &StageOptions::default())
    else {
        panic!("a secret was staged");
    };
    assert_eq!((count, problems[0].code), (1, libc::EACCES));
    assert!(problems[0].path.ends_with("in/secret"), "{:?}", problems[0]);
    assert_eq!(user.read("in/open"), b"for all", "all others are staged");
    assert_eq!(user.attr("in/open").unwrap().uid, USER);
    assert!(!user.exists("in/secret"));
    // Stage out to a directory of the user, and to one of root.
    fs::create_dir(sides.pfs.join("mine")).unwrap();
    std::os::unix::fs::chown(sides.pfs.join("mine"), Some(USER), Some(USER)).unwrap();
    let inside = || StageLocation::in_instance(&user.space, "in/open");
    let out = one(ItemKind::File, inside(), outside("mine/copy"));
    run(&out, &StageOptions::default()).unwrap();
    let copy = fs::metadata(sides.pfs.join("mine/copy")).unwrap();
    assert_eq!((copy.uid(), copy.gid()), (USER, USER));
    let out = one(ItemKind::File, inside(), outside("in/copy"));
    let error = run(&out, &StageOptions::default()).unwrap_err();
    assert!(error.to_string().contains("Permission denied"), "{error}");
    assert!(!sides.pfs.join("in/copy").exists());
    // Files of other users in the instance keep their owner.
    sides.buffer.write("roots", b"x");
    let mode = forebay_protocol::message::SetAttr { mode: Some(0o600), ..Default::default() };
    let ino = sides.buffer.attr("roots").unwrap().ino;
    sides.buffer.fs.set_attr(ino, None, mode).unwrap();
    let out =
        one(ItemKind::File, StageLocation::in_instance(&user.space, "roots"), outside("mine/x"));
    let error = run(&out, &StageOptions::default()).unwrap_err();
    assert!(error.to_string().contains("Permission denied"), "{error}");
    // This thread has the identity of root again.
    fs::write(sides.pfs.join("in/mine"), b"").unwrap();
    assert_eq!(fs::metadata(sides.pfs.join("in/mine")).unwrap().uid(), 0);
}

#[test]
fn full_instance_fails_the_stage_without_incomplete_files() {
    let sides = sides_of(1 << 20);
    fs::write(sides.pfs.join("big"), noise(4 << 20, 1)).unwrap();
    for verify in [Verify::Off, Verify::Checksum] {
        for segment in [1 << 18, 64 << 20] {
            let options =
                StageOptions { verify, segment_bytes: segment, ..StageOptions::default() };
            let request = sides.stage_in(ItemKind::File, "big", "big");
            let Err(StageError::Stopped(problem)) = run(&request, &options) else {
                panic!("4 MiB fitted into 1 MiB");
            };
            assert_eq!(problem.code, libc::ENOSPC, "{problem}");
            assert!(problem.reason.contains("no space left there"), "{problem}");
            assert!(sides.buffer.entries("").is_empty());
        }
    }
    assert_eq!(fs::read(sides.pfs.join("big")).unwrap(), noise(4 << 20, 1));
    // Its space is free again.
    fs::write(sides.pfs.join("fits"), noise(700_000, 1)).unwrap();
    run(&sides.stage_in(ItemKind::File, "fits", "fits"), &StageOptions::default()).unwrap();
}

#[test]
fn removed_target_fails_the_stage_and_keeps_the_source() {
    let sides = sides();
    for index in 0..8 {
        let name = format!("f{index}");
        sides.buffer.write(&name, &noise(16 << 20, index));
    }
    fs::create_dir(sides.pfs.join("out")).unwrap();
    let item = |index: u64| StageItem {
        kind: ItemKind::File,
        source: sides.inside(&format!("f{index}")),
        target: sides.outside(&format!("out/f{index}")),
    };
    let request = StageRequest { items: (0..8).map(item).collect() };
    let options = StageOptions { workers: 1, ..StageOptions::default() };
    let progress = ProgressCounters::new();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.snapshot().files == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            fs::rename(sides.pfs.join("out"), sides.pfs.join("moved")).unwrap();
        });
        run_stage(&request, &options, &progress)
    });
    let Err(StageError::Incomplete { problems, .. }) = outcome else {
        panic!("files went to a directory that was not there: {outcome:?}");
    };
    assert!(
        problems.iter().all(|p| p.code == libc::ENOENT
            && p.reason.contains("the directory does not exist; create it before staging out")),
        "{problems:?}"
    );
    assert!(!sides.pfs.join("out").exists(), "it was not made anew");
    // When the directory exists again, everything is staged out.
    fs::rename(sides.pfs.join("moved"), sides.pfs.join("out")).unwrap();
    run(&request, &options).unwrap();
    for index in 0..8 {
        let bytes = fs::read(sides.pfs.join(format!("out/f{index}"))).unwrap();
        assert_eq!(bytes, noise(16 << 20, index));
    }
    assert_eq!(fs::read_dir(sides.pfs.join("out")).unwrap().count(), 8);
}

/// As root, a stage to `/dev/null` would replace the device by a file for all users.
#[test]
fn existing_pipe_is_not_replaced_by_a_file() {
    let sides = sides();
    sides.buffer.write("file", b"a result");
    let pipe = sides.pfs.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let request = sides.stage_out(ItemKind::File, "file", "pipe");
    let error = run(&request, &StageOptions::default()).unwrap_err().to_string();
    assert!(
        error.contains("pipe: is a device, a pipe or a socket; it is not replaced by a file"),
        "{error}"
    );
    use std::os::unix::fs::FileTypeExt;
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn file_staged_as_directory_is_refused() {
    let sides = sides();
    fs::write(sides.pfs.join("file"), "one").unwrap();
    let request = sides.stage_in(ItemKind::Directory, "file", "tree");
    let error = run(&request, &StageOptions::default()).unwrap_err().to_string();
    assert!(error.contains("file: is not a directory; stage it with type=file"), "{error}");
}
