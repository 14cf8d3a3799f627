//! Disks without a free block: daemons start on them, files can be read and removed, and then all
//! operations succeed again. Each on a small tmpfs and a small ext4, which need root to mount.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs, NodeAddresses};
use forebay_protocol::message::{OpenMode, SetAttr, XattrMode};
use forebay_protocol::{Errno, Ino, InstanceId};
use forebay_store::daemon::{self, Daemon};
use forebay_store::log::LogSpace;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::process::Process;
use support::{INSTANCE, READ_WRITE, Temporary, attach, make_instance, mount_at, shell, spec};

/// Small enough that a test can fill it.
const SEGMENT: u64 = 4 << 20;
const OTHER: InstanceId = InstanceId(2);
const FILES: u64 = 12;
const LENGTH: usize = 1 << 20;
/// Time for the daemon to restore its reserved space.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A small file system.
struct Disk {
    path: PathBuf,
    temporary: Temporary,
}

impl Disk {
    fn tmpfs() -> Disk {
        let (temporary, path) = Disk::mount_point();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=80m", "tmpfs"])
            .arg(&path)
            .status();
        assert!(mount.unwrap().success(), "tmpfs cannot be mounted");
        Disk { path, temporary }
    }

    /// `None` where there are no loop devices, and need not be.
    fn ext4() -> Option<Disk> {
        let (temporary, path) = Disk::mount_point();
        let image = temporary.0.join("image");
        std::fs::File::create(&image).unwrap().set_len(96 << 20).unwrap();
        let created = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image).status();
        assert!(created.unwrap().success(), "mkfs.ext4 fails");
        let mount = Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&path).status();
        if !mount.unwrap().success() {
            support::expect_no_loop_devices("a full ext4");
            return None;
        }
        Some(Disk { path, temporary })
    }

    fn mount_point() -> (Temporary, PathBuf) {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests mount file systems: run as root"
        );
        let temporary = Temporary::new();
        let path = temporary.dir("disk");
        (temporary, path)
    }

    fn home(&self) -> PathBuf {
        self.path.join("flash")
    }

    /// Fills all blocks.
    fn fill(&self) {
        let mut ballast = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path.join("ballast"))
            .unwrap();
        for size in [1 << 20, 4096, 1] {
            let bytes = vec![1; size];
            while ballast.write_all(&bytes).is_ok() {}
        }
        let _ = ballast.sync_all();
    }

    fn empty(&self) {
        std::fs::remove_file(self.path.join("ballast")).unwrap();
    }

    /// Waits until the daemon has reserved its space.
    fn await_reserve(&self) {
        let started = Instant::now();
        let is_there = |name| self.home().join("log").join(name).exists();
        while !(is_there("spare") && is_there("spare.checkpoint")) {
            assert!(started.elapsed() < TIMEOUT, "no space is reserved");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Removes the reserved space.
    fn take_reserve(&self) {
        for entry in std::fs::read_dir(self.home().join("log")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with("spare") {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
        let _ = &self.temporary; // removed after that
    }
}

/// Runs `test` on each type of file system.
fn on_each(test: impl Fn(&Disk)) {
    test(&Disk::tmpfs());
    if let Some(disk) = Disk::ext4() {
        test(&disk);
    }
}

fn name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

fn contents(number: u64) -> Vec<u8> {
    vec![number as u8 + 1; LENGTH]
}

fn write(fs: &Fs, name: &[u8], data: &[u8]) -> Result<(), Errno> {
    let created = fs.create(Ino::ROOT, name, 0o644, false, READ_WRITE)?;
    created.file.write_all_at(data, 0)?;
    created.file.fsync(false)
}

fn read(fs: &Fs, name: &[u8]) -> Vec<u8> {
    let attr = fs.lookup(Ino::ROOT, name).unwrap();
    let mode = OpenMode { write: false, ..READ_WRITE };
    let file = fs.open(attr.ino, mode).unwrap().file;
    let mut data = vec![0; attr.size as usize];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
    data
}

fn create_files(process: &Process) {
    make_instance(process.local(), 1 << 30);
    let fs = attach(process.local());
    for number in 0..FILES {
        write(&fs, &name(number), &contents(number)).unwrap();
    }
    let admin = Admin::connect(process.local(), ClientOptions::default()).unwrap();
    let other = forebay_protocol::message::InstanceSpec { id: OTHER, ..spec(1 << 30) };
    admin.create_instance(other).unwrap();
    let fs = Fs::attach(process.local(), OTHER, ClientOptions::default()).unwrap();
    for number in 0..FILES {
        write(&fs, &name(number), &contents(number)).unwrap();
    }
}

/// Repeats `act` until it does not fail for lack of space.
fn retry_enospc<T>(what: &str, act: impl Fn() -> Result<T, Errno>) -> T {
    let started = Instant::now();
    loop {
        match act() {
            Ok(done) => return done,
            Err(Errno::ENOSPC) => {
                assert!(started.elapsed() < TIMEOUT, "{what}: still no space");
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// Checks that all files exist with their contents, except those below `removed`.
fn check(fs: &Fs, removed: u64) {
    for number in 0..FILES {
        if number < removed {
            assert_eq!(fs.lookup(Ino::ROOT, &name(number)).err(), Some(Errno::ENOENT));
        } else {
            assert!(read(fs, &name(number)) == contents(number), "file {number}");
        }
    }
}

fn truncate(fs: &Fs, name: &[u8], size: u64) -> Result<(), Errno> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    let ino = fs.lookup(Ino::ROOT, name)?.ino;
    fs.set_attr(ino, None, set).map(|_| ())
}

fn full_without_reserve(disk: &Disk) {
    let mut process = Process::start_with(&disk.home(), Some(SEGMENT));
    create_files(&process);
    process.kill();
    disk.take_reserve();
    disk.fill();

    // It starts; all files exist; nothing can be added.
    process.restart();
    let fs = attach(process.local());
    check(&fs, 0);
    assert_eq!(fs.mkdir(Ino::ROOT, b"d", 0o755).err(), Some(Errno::ENOSPC));
    assert_eq!(write(&fs, b"new", b"x"), Err(Errno::ENOSPC));

    // Files can be removed and truncated, durably.
    fs.unlink(Ino::ROOT, &name(0)).unwrap();
    truncate(&fs, &name(11), 10).unwrap();
    fs.sync().unwrap();
    disk.fill(); // another program takes the freed space
    process.kill();
    process.restart();
    let fs = attach(process.local());
    let short = read(&fs, &name(11));
    assert!(short == contents(11)[..10], "{} bytes", short.len());
    fs.unlink(Ino::ROOT, &name(11)).unwrap();
    fs.unlink(Ino::ROOT, &name(1)).unwrap();

    // An instance is removed; with its space all operations succeed.
    let admin = Admin::connect(process.local(), ClientOptions::default()).unwrap();
    admin.remove_instance(OTHER, true).unwrap();
    retry_enospc("a directory", || fs.mkdir(Ino::ROOT, b"d", 0o755));
    retry_enospc("a file", || write(&fs, b"new", b"something"));
    process.kill();
    process.restart();
    let fs = attach(process.local());
    assert_eq!(read(&fs, b"new"), b"something");
    for number in 2..11 {
        assert!(read(&fs, &name(number)) == contents(number));
    }
    assert_eq!(fs.lookup(Ino::ROOT, &name(11)).err(), Some(Errno::ENOENT));
    assert_eq!(admin_instances(&process), [INSTANCE]);
}

fn admin_instances(process: &Process) -> Vec<InstanceId> {
    let admin = Admin::connect(process.local(), ClientOptions::default()).unwrap();
    let all = admin.instances().unwrap();
    all.iter().map(|usage| usage.spec.id).collect()
}

#[test]
fn daemon_starts_on_a_full_disk_and_files_can_be_removed() {
    on_each(full_without_reserve);
}

fn full_while_it_runs(disk: &Disk) {
    let mut process = Process::start_with(&disk.home(), Some(SEGMENT));
    create_files(&process);
    disk.fill();
    let fs = attach(process.local());
    // Writes fail for lack of space, and no request hangs.
    let first = fs.lookup(Ino::ROOT, &name(0)).unwrap().ino;
    let file = fs.open(first, READ_WRITE).unwrap().file;
    assert_eq!(file.write_all_at(&vec![9; LENGTH], LENGTH as u64), Err(Errno::ENOSPC));
    drop(file);
    truncate(&fs, &name(0), LENGTH as u64).unwrap();
    // The log continues through many segments in its own space.
    let value = vec![7; 60 << 10];
    let set = |number: u64| {
        let value = [&number.to_le_bytes(), &value[..]].concat();
        fs.set_xattr(first, b"user.a", &value, XattrMode::Any)
    };
    let rounds = 6 * SEGMENT / value.len() as u64;
    for number in 0..rounds {
        retry_enospc("an attribute", || set(number));
        if number == rounds / 2 {
            disk.await_reserve();
            disk.fill();
            process.kill();
            process.restart();
        }
    }
    let value = fs.get_xattr(first, b"user.a").unwrap();
    assert_eq!(value[..8], (rounds - 1).to_le_bytes());
    fs.remove_xattr(first, b"user.a").unwrap();
    check(&fs, 0);
    // When another program frees space, writes succeed.
    disk.empty();
    retry_enospc("a file", || write(&fs, b"new", &contents(99)));
    process.kill();
    process.restart();
    let fs = attach(process.local());
    assert!(read(&fs, b"new") == contents(99));
    check(&fs, 0);
}

#[test]
fn full_disk_refuses_only_requests_that_need_space() {
    on_each(full_while_it_runs);
}

/// Programs on a mount; the first daemon has a full disk and no reserved space.
fn empty_by_programs(nodes: usize) {
    let disk = Disk::tmpfs();
    let homes = (1..nodes).map(|node| disk.temporary.dir(&format!("flash{node}")));
    let homes = std::iter::once(disk.home()).chain(homes);
    let mut processes: Vec<Process> =
        homes.map(|home| Process::start_with(&home, Some(SEGMENT))).collect();
    let locals: Vec<_> = processes.iter().map(Process::local).collect();
    let addresses = || NodeAddresses::from(locals.clone());
    make_instance(addresses(), 1 << 30);
    let path = disk.temporary.dir("mnt");
    let mount = mount_at(attach(addresses()), &path);
    shell(
        &path,
        "for d in 1 2 3 4 5 6 7 8; do mkdir -p d$d/e; seq 50000 > d$d/e/f; done
         for f in 1 2 3 4 5 6; do seq 60000 > f$f; done; ln f1 d1/f1; ln -s f1 s; sync",
    );
    let before = shell(&path, "find . -type f | sort | xargs md5sum");
    support::unmount(mount);
    processes[0].kill();
    disk.take_reserve();
    disk.fill();
    processes[0].restart();
    let mount = mount_at(attach(addresses()), &path);
    assert_eq!(shell(&path, "find . -type f | sort | xargs md5sum"), before);
    shell(
        &path,
        "for n in 1 2 3 4; do mkdir n$n 2> /dev/null && exit 1; done
         rm f1 d1/f1 s
         truncate -s 5 f2 && test \"$(cat f2)\" = \"$(printf '1\\n2\\n3')\"
         : > f3 && test ! -s f3
         rm -r d1 d2 d3 d4 && test ! -e d1",
    );
    disk.empty();
    let started = Instant::now();
    while std::fs::create_dir(path.join("new")).is_err() {
        assert!(started.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(50));
    }
    let left = "d5 d5/e d5/e/f d6 d6/e d6/e/f d7 d7/e d7/e/f d8 d8/e d8/e/f f2 f3 f4 f5 f6 new\n";
    let found = shell(
        &path,
        "seq 9 > new/f; find . -mindepth 1 ! -path './new/*' -printf '%P\\n' | sort | paste -sd' '",
    );
    assert_eq!(found, left);
    assert_eq!(shell(&path, "cat new/f"), shell(&path, "seq 9"));
    support::unmount(mount);
}

#[test]
fn full_disk_can_be_emptied_through_a_mount() {
    empty_by_programs(1);
}

#[test]
fn full_node_of_three_can_be_emptied_through_a_mount() {
    empty_by_programs(3);
}

fn start(home: &Path) -> Daemon {
    let mut options = daemon::StoreOptions::new(home);
    options.segment_size = SEGMENT;
    options.sync_interval = Duration::from_millis(50);
    Daemon::start(options).unwrap()
}

#[test]
fn daemon_reports_a_full_disk() {
    let disk = Disk::tmpfs();
    let daemon = start(&disk.home());
    let room = |daemon: &Daemon| {
        let report = daemon.stats().collect_report(Duration::from_secs(5));
        report.gauges.unwrap().log_space
    };
    assert_eq!(room(&daemon), LogSpace::Normal);
    daemon.stop().unwrap();
    disk.take_reserve();
    disk.fill();
    let daemon = start(&disk.home());
    assert_eq!(room(&daemon), LogSpace::ReserveOnly);
    disk.empty();
    let started = Instant::now();
    while room(&daemon) != LogSpace::Normal {
        assert!(started.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.stop().unwrap();
    // Without any space it reports how much it needs.
    let empty = disk.path.join("another");
    disk.fill();
    let mut options = daemon::StoreOptions::new(&empty);
    options.segment_size = SEGMENT;
    let error = Daemon::start(options).unwrap_err().to_string();
    assert!(error.contains("needs 4 MiB free") || error.contains("No space left"), "{error}");
}
