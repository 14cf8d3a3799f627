//! `mount.forebay` as `mount` runs it. Needs root.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../../buffer/daemon/tests/test_pool/mod.rs"]
mod test_pool;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use forebay_control::messages::Owner;
use forebay_daemon::Daemon;
use forebay_units::Bytes;
use test_pool::{TestPool, create_persistent, is_online, wait_for};

fn helper(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mount-forebay")).args(arguments).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn succeed(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    succeed(&output);
    String::from_utf8(output.stdout).unwrap()
}

/// A process that a test in another thread starts has this process's open files until it executes its
/// program: the mount may be in use for a moment.
fn unmount(at: &str) {
    let begin = Instant::now();
    loop {
        let output = Command::new("umount").arg(at).output().unwrap();
        let is_busy = String::from_utf8_lossy(&output.stderr).contains("busy");
        if !is_busy || begin.elapsed() > Duration::from_secs(10) {
            return succeed(&output);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Unmounts at the end, also of a test that fails.
struct MountPoint(std::path::PathBuf);

impl MountPoint {
    fn new(path: &Path) -> MountPoint {
        fs::create_dir(path).unwrap();
        MountPoint(path.canonicalize().unwrap())
    }

    fn options(&self) -> String {
        run("findmnt", &["-n", "-o", "FSTYPE,OPTIONS", "--mountpoint", text(&self.0)])
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-q").arg(&self.0).output();
    }
}

#[test]
fn instance_in_directories_is_mounted_changed_unmounted_and_mounted_again() {
    for nodes in [1, 3] {
        let home = tempfile::tempdir().unwrap();
        let flash = (0..nodes).map(|node| home.path().join(format!("flash{node}")));
        let flash: Vec<_> = flash.inspect(|path| fs::create_dir(path).unwrap()).collect();
        let flash: Vec<&str> = flash.iter().map(|path| text(path)).collect();
        let (source, point) = (flash.join(","), MountPoint::new(&home.path().join("mnt")));
        let at = text(&point.0);
        succeed(&helper(&[&source, at, "-o", "size=1GiB,mode=1777"]));
        let options = point.options();
        assert!(options.starts_with("fuse.forebay ") && options.contains("nosuid"), "{options}");
        assert!(options.contains("default_permissions"), "{options}");
        fs::write(point.0.join("file"), "text").unwrap();
        let space = rustix::fs::statvfs(&point.0).unwrap();
        assert_eq!(space.f_blocks * space.f_frsize, (1 << 30) / nodes * nodes / 4096 * 4096);
        assert_eq!(run("stat", &["-c", "%a", at]).trim(), "1777");
        succeed(&helper(&[&source, at, "-t", "fuse.forebay", "-o", "remount,ro,user_id=0"]));
        let options = point.options();
        for kept in ["ro,", "nosuid", "nodev"] {
            assert!(options.contains(kept), "{kept}: {options}");
        }
        assert!(fs::write(point.0.join("file"), "other").is_err());
        unmount(at);
        // The process of the first mount may still be ending.
        let again = helper(&[&source, at, "-o", "noexec,allow_dev,x-test,size=2GiB"]);
        succeed(&again);
        let warning = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(
            warning.contains("keeps its size") && warning.contains("`size=` of 2 GiB"),
            "{warning}"
        );
        assert_eq!(fs::read_to_string(point.0.join("file")).unwrap(), "text");
        let options = point.options();
        assert!(options.contains("noexec") && !options.contains("nodev"), "{options}");
        unmount(at);
        if nodes > 1 {
            let other = helper(&[flash[0], at]);
            assert_eq!(other.status.code(), Some(32));
            assert!(String::from_utf8_lossy(&other.stderr).contains("in other directories"));
            let new = home.path().join("new");
            fs::create_dir(&new).unwrap();
            let other = helper(&[&format!("{},{source}", text(&new)), at]);
            assert_eq!(other.status.code(), Some(32));
            let found = format!("only {} have an instance", flash.join(", "));
            assert!(String::from_utf8_lossy(&other.stderr).contains(&found));
        }
    }
}

#[test]
fn directories_are_mounted_at_several_places() {
    let home = tempfile::tempdir().unwrap();
    let [flash, link] = ["flash", "link"].map(|name| home.path().join(name));
    fs::create_dir(&flash).unwrap();
    std::os::unix::fs::symlink(&flash, &link).unwrap();
    let [first, second] = ["first", "second"].map(|name| MountPoint::new(&home.path().join(name)));
    succeed(&helper(&[text(&flash), text(&first.0), "-o", "size=1GiB"]));
    succeed(&helper(&[text(&link), text(&second.0), "-o", "ro,noexec"]));
    let options = second.options();
    assert!(["fuse.forebay ro,", "nosuid", "nodev", "noexec"].iter().all(|o| options.contains(o)));
    assert!(!first.options().contains("noexec"));
    fs::write(first.0.join("file"), "text").unwrap();
    assert_eq!(fs::read_to_string(second.0.join("file")).unwrap(), "text");
    let refused = fs::write(second.0.join("file"), "other").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    unmount(text(&first.0));
    assert_eq!(fs::read_to_string(second.0.join("file")).unwrap(), "text");
    // The process still serves the second mount point, and a third one.
    succeed(&helper(&[text(&flash), text(&first.0)]));
    fs::write(first.0.join("file"), "other").unwrap();
    assert_eq!(fs::read_to_string(second.0.join("file")).unwrap(), "other");
    run("pkill", &["-f", &format!("mount-forebay.* {}", text(&flash))]);
    for point in [&first, &second] {
        wait_for("the mounts end", || {
            fs::read_dir(&point.0).unwrap().next().is_none().then_some(())
        });
    }
    succeed(&helper(&[text(&flash), text(&second.0)]));
    assert_eq!(fs::read_to_string(second.0.join("file")).unwrap(), "other");
    unmount(text(&second.0));
}

#[test]
fn wrong_usage_exits_with_1_and_failed_mounts_with_32() {
    let home = tempfile::tempdir().unwrap();
    let at = text(home.path());
    let reason = |arguments: &[&str], code: i32| {
        let output = helper(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(reason(&["/nowhere", at], 32).contains("/nowhere"));
    assert!(reason(&["name", at, "-o", "pool=/nowhere.toml"], 32).contains("/nowhere.toml"));
    assert!(reason(&["/nowhere", at, "-o", "sise=1G"], 1).contains("`sise=1G`"));
    assert!(reason(&["/nowhere", at, "-o", "pool=/nowhere.toml"], 1).contains("`pool=`"));
    let too_large = reason(&[at, at, "-o", "size=9999TiB"], 32);
    assert!(too_large.contains("`size=` of 9999 TiB is more than"), "{too_large}");
    assert!(reason(&["/nowhere"], 1).contains("DIRECTORY"));
    succeed(&helper(&["/nowhere", at, "-f"]));
}

#[test]
fn persistent_instance_of_a_pool_is_mounted_by_name() {
    let pool = TestPool::new(2);
    let controller = pool.controller();
    let storage =
        ["s0", "s1"].map(|name| Daemon::start_storage(&pool.config("key"), name).unwrap());
    wait_for("storage nodes", || (is_online(&pool, "s0") && is_online(&pool, "s1")).then_some(()));
    let owner = Owner { uid: 0, gid: 0 };
    let client = pool.client();
    client.request(create_persistent("climate", owner, Bytes(96 << 20))).unwrap();
    let file = pool.file("key", "controller");
    let point = MountPoint::new(&pool.path("mnt"));
    let option = format!("pool={}", file.display());
    succeed(&helper(&["climate", text(&point.0), "-o", &option]));
    fs::write(point.0.join("file"), vec![7; 5 << 20]).unwrap();
    unmount(text(&point.0));
    succeed(&helper(&["climate", text(&point.0), "-o", &option]));
    assert_eq!(fs::read(point.0.join("file")).unwrap(), vec![7; 5 << 20]);
    let missing = helper(&["weather", text(&point.0), "-o", &option]);
    assert_eq!(missing.status.code(), Some(32));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no instance `weather`"));
    unmount(text(&point.0));
    storage.into_iter().for_each(|daemon| daemon.stop().unwrap());
    controller.stop().unwrap();
}

/// All mounts of directories are one file system of one kernel, so it can decide on locks by itself.
#[test]
fn locks_in_directories_are_those_of_the_kernel_and_end_with_close() {
    use rustix::fs::{FlockOperation, flock};
    use std::os::unix::fs::MetadataExt;
    for nodes in [1, 3] {
        let home = tempfile::tempdir().unwrap();
        let flash = (0..nodes).map(|node| home.path().join(format!("flash{node}")));
        let flash: Vec<_> = flash.inspect(|path| fs::create_dir(path).unwrap()).collect();
        let source = flash.iter().map(|path| text(path)).collect::<Vec<_>>().join(",");
        let [first, second] = ["a", "b"].map(|name| MountPoint::new(&home.path().join(name)));
        for point in [&first, &second] {
            succeed(&helper(&[&source, text(&point.0), "-o", "size=1GiB"]));
        }
        let path = first.0.join("file");
        let held = fs::File::create(&path).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let number = format!(":{} ", held.metadata().unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        assert!(locks.contains(&number), "no lock of inode {number} in\n{locks}");
        let other = fs::File::open(second.0.join("file")).unwrap();
        let refused = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
        drop(held);
        for _ in 0..100 {
            let next = fs::File::open(&path).unwrap();
            // The lock of the one before has ended when that is closed.
            flock(&next, FlockOperation::NonBlockingLockExclusive).unwrap();
        }
        drop(other);
        unmount(text(&second.0));
        unmount(text(&first.0));
    }
}

/// As generic/275 of xfstests: writes fail when all directories together are full, and space that becomes
/// free in one of them can be used by any file.
#[test]
fn directories_share_the_capacity() {
    const SIZE: u64 = 96 << 20;
    let home = tempfile::tempdir().unwrap();
    let flash = (0..3).map(|node| home.path().join(format!("flash{node}")));
    let flash: Vec<_> = flash.inspect(|path| fs::create_dir(path).unwrap()).collect();
    let source = flash.iter().map(|path| text(path)).collect::<Vec<_>>().join(",");
    let point = MountPoint::new(&home.path().join("mnt"));
    succeed(&helper(&[&source, text(&point.0), "-o", &format!("size={}KiB", SIZE >> 10)]));
    let path = |name: String| point.0.join(name);
    // They begin in different directories.
    for file in 0..8 {
        fs::write(path(format!("early{file}")), vec![1; 256 << 10]).unwrap();
        fs::File::create(path(format!("late{file}"))).unwrap();
    }
    let fill = |name: &str, bytes: usize| {
        use std::io::Write;
        let mut file = fs::File::create(point.0.join(name)).unwrap();
        let mut written = 0;
        loop {
            match file.write(&vec![1; bytes]) {
                Ok(count) => written += count as u64,
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                    return written;
                }
            }
        }
    };
    let written = fill("large", 1 << 20) + fill("small", 4096) + 8 * (256 << 10);
    assert!((SIZE - (1 << 20)..=SIZE).contains(&written), "{written} bytes of {SIZE}");
    for file in 0..8 {
        fs::remove_file(path(format!("early{file}"))).unwrap();
        fs::write(path(format!("late{file}")), vec![1; 128 << 10]).unwrap();
        fill("more", 4096);
    }
    let space = rustix::fs::statvfs(&point.0).unwrap();
    assert!((space.f_blocks - space.f_bfree) * space.f_frsize <= SIZE);
    unmount(text(&point.0));
    // So it is after a restart of the daemons.
    succeed(&helper(&[&source, text(&point.0)]));
    assert!(fill("last", 4096) < 1 << 20);
    fs::remove_file(path("large".into())).unwrap();
    assert!(fill("last", 1 << 20) > SIZE * 8 / 10);
    unmount(text(&point.0));
}
