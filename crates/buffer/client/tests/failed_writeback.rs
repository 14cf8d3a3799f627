//! Data that the kernel cannot write to the device of a storage node: every client that wrote some of
//! them learns it from `fsync`. Needs root and loop devices.

use crate::support;
use forebay_client::{ClientOptions, File, Fs};
use forebay_protocol::message::OpenMode;
use forebay_protocol::{Errno, Ino};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use support::process::{Process, key};
use support::{INSTANCE, READ_WRITE, Temporary, make_instance};

const MIB: u64 = 1 << 20;
/// Data over sockets, as from another host.
const REMOTE: OpenMode = OpenMode { descriptor: false, ..READ_WRITE };

fn run(program: &str, args: &[&str], path: &Path) -> bool {
    Command::new(program).args(args).arg(path).status().unwrap().success()
}

/// A device for data objects whose storage is allocated when it is written, as that of a thinly
/// provisioned volume: a file in a small tmpfs.
struct ThinDevice {
    storage: PathBuf,
    objects: PathBuf,
}

impl ThinDevice {
    /// `None` where there are no loop devices, and need not be.
    fn new(temporary: &Temporary, flash: &Path) -> Option<ThinDevice> {
        assert!(rustix::process::geteuid().is_root(), "this test mounts file systems: run as root");
        let (storage, objects) = (temporary.dir("storage"), flash.join("objects"));
        std::fs::create_dir_all(&objects).unwrap();
        assert!(run("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs"], &storage));
        let device = ThinDevice { storage, objects };
        let image = device.storage.join("image");
        std::fs::File::create(&image).unwrap().set_len(256 * MIB).unwrap();
        assert!(run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal"], &image));
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&image).arg(&device.objects);
        if !mount.status().unwrap().success() {
            support::expect_no_loop_devices("a failed write-back");
            return None;
        }
        Some(device)
    }

    /// No further block of the device can be allocated.
    fn exhaust(&self) {
        assert!(run("sync", &["-f"], &self.objects));
        let ballast = std::fs::File::create(self.storage.join("ballast")).unwrap();
        for length in [MIB, 4096] {
            let block = vec![1; length as usize];
            while std::io::Write::write_all(&mut &ballast, &block).is_ok() {}
        }
    }

    fn extend(&self) {
        std::fs::remove_file(self.storage.join("ballast")).unwrap();
    }
}

impl Drop for ThinDevice {
    fn drop(&mut self) {
        run("umount", &["-q"], &self.objects);
        run("umount", &["-q"], &self.storage);
    }
}

fn attach(process: &Process, remote: bool) -> Fs {
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    let address = if remote { process.remote() } else { process.local() };
    Fs::attach(address, INSTANCE, options).unwrap()
}

/// A file that is durable.
fn create(fs: &Fs) -> Arc<File> {
    let created = fs.create(Ino::ROOT, b"shared", 0o644, true, REMOTE).unwrap().file;
    created.write_all_at(b"x", 0).unwrap();
    created.fsync(false).unwrap();
    created
}

#[test]
fn every_client_that_wrote_lost_data_gets_an_error_from_fsync() {
    let temporary = Temporary::new();
    let flash = temporary.dir("flash");
    let Some(device) = ThinDevice::new(&temporary, &flash) else { return };
    let process = Process::start(&flash);
    make_instance(process.local(), 128 * MIB);
    let attach = |remote| attach(&process, remote);
    let first = attach(true);
    let created = create(&first);
    let others = [(attach(true), REMOTE), (attach(true), REMOTE), (attach(false), READ_WRITE)];
    let opened = others.iter().map(|(fs, mode)| fs.open(created.ino(), *mode).unwrap().file);
    let files: Vec<_> = std::iter::once(created.clone()).chain(opened).collect();
    device.exhaust();
    let data = vec![7; MIB as usize];
    for (file, number) in files.iter().zip(1..) {
        file.write_all_at(&data, number * 4 * MIB).unwrap();
    }
    for (number, file) in files.iter().enumerate() {
        let synced = file.fsync(false);
        assert!(matches!(synced, Err(Errno::EIO | Errno::ENOSPC)), "client {number}: {synced:?}");
    }
    device.extend();
    for (file, number) in files.iter().zip(1..) {
        file.write_all_at(&data, number * 4 * MIB).unwrap();
        file.fsync(false).unwrap();
    }
    drop((files, created, others, first));
    drop(process);
}

/// The kernel tells a daemon that starts again nothing of an error that it has told the one before.
#[test]
fn writer_learns_of_lost_data_after_a_restart_although_another_one_was_told_before() {
    let temporary = Temporary::new();
    let flash = temporary.dir("flash");
    let Some(device) = ThinDevice::new(&temporary, &flash) else { return };
    let mut process = Process::start(&flash);
    make_instance(process.local(), 128 * MIB);
    let (first, second) = (attach(&process, true), attach(&process, true));
    let told = create(&first);
    let other = second.open(told.ino(), REMOTE).unwrap().file;
    device.exhaust();
    let data = vec![7; MIB as usize];
    told.write_all_at(&data, 4 * MIB).unwrap();
    other.write_all_at(&data, 8 * MIB).unwrap();
    assert!(told.fsync(false).is_err());
    process.kill();
    device.extend();
    process.restart();
    assert_eq!(other.fsync(false), Err(Errno::EIO));
    other.write_all_at(&data, 8 * MIB).unwrap();
    other.fsync(false).unwrap();
    drop((told, other, first, second));
    drop(process);
}
