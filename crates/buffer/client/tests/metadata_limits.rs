//! Names, extended attributes and links are charged to their instance and to the memory of the daemon.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_protocol::message::{InstanceSpec, NewInode, OnExisting, SetAttr, StatFs, XattrMode};
use forebay_protocol::{Errno, Ino};
use forebay_store::daemon::{self, Daemon};
use std::path::Path;
use std::time::{Duration, Instant};
use support::process::Process;
use support::{INSTANCE, READ_WRITE, Temporary, attach, spec};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 80 * MIB;

/// An instance as the controller makes it: an inode for every 4 KiB.
fn instance(capacity: u64) -> InstanceSpec {
    InstanceSpec { inodes: capacity / 4096, ..spec(capacity) }
}

fn log_bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir.join("log")).unwrap();
    files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(90), "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn touch(fs: &Fs, name: &str) -> Result<Ino, Errno> {
    Ok(fs.put_file((Ino::ROOT, name.as_bytes()), SetAttr::default(), Vec::new())?.ino)
}

#[test]
fn attributes_are_limited_by_the_capacity_and_memory_returns_after_removal() {
    let temporary = Temporary::new();
    let dir = temporary.dir("flash");
    let mut process = Process::start(&dir);
    let admin = Admin::connect(process.local(), ClientOptions::default()).unwrap();
    admin.create_instance(instance(CAPACITY)).unwrap();
    let fs = attach(process.local());
    let idle = process.memory();
    let value = vec![b'x'; 65_000];
    let mut refused = None;
    let mut count = 0;
    for number in 0..4_000 {
        let ino = match touch(&fs, &format!("f{number}")) {
            Ok(ino) => ino,
            Err(errno) => {
                refused = Some(errno);
                break;
            }
        };
        count += 1;
        let set = |name: &[u8]| fs.set_xattr(ino, name, &value, XattrMode::Any);
        if let Err(errno) = set(b"user.a").and_then(|()| set(b"user.b")) {
            refused = Some(errno);
            break;
        }
    }
    assert_eq!(refused, Some(Errno::ENOSPC), "{count} files");
    let full = fs.statfs().unwrap();
    assert!(full.used > CAPACITY - MIB && full.used <= CAPACITY, "{full:?}");
    // The attributes, twice while a checkpoint is written, and buffers of segments.
    let limit = idle + 2 * CAPACITY + 192 * MIB;
    assert!(process.memory() < limit, "{} of {limit} bytes", process.memory());
    // Nothing fits, in data or names; what frees space works.
    let file = fs.open(fs.lookup(Ino::ROOT, b"f0").unwrap().ino, READ_WRITE).unwrap().file;
    assert_eq!(file.write_all_at(&vec![0; 1 << 20], 0), Err(Errno::ENOSPC));
    drop(file);
    let full = fs.statfs().unwrap();
    process.kill();
    process.restart();
    let after = fs.statfs().unwrap();
    assert_eq!(after.used, full.used, "after a restart");
    let first = fs.lookup(Ino::ROOT, b"f0").unwrap().ino;
    fs.remove_xattr(first, b"user.a").unwrap();
    assert!(fs.statfs().unwrap().used < full.used - 60_000);
    for number in 0..count {
        fs.unlink(Ino::ROOT, format!("f{number}").as_bytes()).unwrap();
    }
    assert_eq!(fs.statfs().unwrap().used, 0);
    wait_until("memory returns", || process.memory() < idle + 48 * MIB);
    // One segment, and the reserves for its successor and the next checkpoint.
    touch(&fs, "later").unwrap();
    wait_until("the log shrinks", || {
        touch(&fs, "again").unwrap();
        log_bytes(&dir) < 260 * MIB
    });
}

fn start(dir: &Path, metadata_bytes: u64) -> Daemon {
    let mut options = daemon::StoreOptions::new(dir);
    options.limits.metadata_bytes = metadata_bytes;
    Daemon::start(options).unwrap()
}

/// Fill an instance with names until none fits.
fn fill(fs: &Fs) -> u64 {
    let mut count = 0;
    while touch(fs, &format!("f{count}")).is_ok() {
        count += 1;
        assert!(count < 100_000, "names are not limited");
    }
    count
}

#[test]
fn names_are_limited_by_the_memory_of_the_daemon() {
    let temporary = Temporary::new();
    let dir = temporary.dir("flash");
    let daemon = start(&dir, MIB);
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.create_instance(instance(1 << 40)).unwrap();
    let fs = attach(daemon.address());
    let empty = fs.statfs().unwrap();
    let count = fill(&fs);
    assert!((1_000..5_000).contains(&count), "{count} files");
    let full = fs.statfs().unwrap();
    assert!(full.inodes - full.inodes_used < 2, "{full:?}");
    assert!(empty.inodes > count / 2 && empty.inodes < 2 * count, "{empty:?}");
    // All kinds of growth are refused.
    let first = fs.lookup(Ino::ROOT, b"f0").unwrap().ino;
    let long = [b'l'; 250];
    let links = (0..10_000).take_while(|number| {
        let name = format!("l{number}");
        fs.link(first, Ino::ROOT, name.as_bytes()).is_ok()
    });
    assert!(links.count() < 10, "links are not limited");
    let target = NewInode::Symlink(vec![b't'; 4000]);
    assert_eq!(fs.make_inode(Ino::ROOT, b"s", target, 0o777).err(), Some(Errno::ENOSPC));
    assert_eq!(fs.mkdir(Ino::ROOT, b"d", 0o700).err(), Some(Errno::ENOSPC));
    assert_eq!(fs.link(first, Ino::ROOT, &long).err(), Some(Errno::ENOSPC));
    let longer = fs.rename((Ino::ROOT, b"f0"), (Ino::ROOT, &long), OnExisting::Fail);
    assert_eq!(longer, Err(Errno::ENOSPC));
    let set = fs.set_xattr(first, b"user.a", &[0; 9000], XattrMode::Any);
    assert_eq!(set, Err(Errno::ENOSPC));
    // Another instance still has a share.
    let other = InstanceSpec { id: forebay_protocol::InstanceId(2), ..instance(1 << 40) };
    admin.create_instance(other.clone()).unwrap();
    let second = Fs::attach(daemon.address(), other.id, ClientOptions::default()).unwrap();
    assert!(fill(&second) > count / 8);
    drop((fs, second, admin));
    daemon.stop().unwrap();

    // A smaller budget loads the state, and accepts what does not add to it.
    let daemon = start(&dir, MIB / 4);
    let fs = attach(daemon.address());
    let full: StatFs = fs.statfs().unwrap();
    assert_eq!(full.inodes_used, count + 1);
    assert_eq!(touch(&fs, "more").err(), Some(Errno::ENOSPC));
    fs.rename((Ino::ROOT, b"f0"), (Ino::ROOT, b"f1"), OnExisting::Replace).unwrap();
    for number in 1..count {
        fs.unlink(Ino::ROOT, format!("f{number}").as_bytes()).unwrap();
    }
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.remove_instance(other.id, true).unwrap();
    assert!(touch(&fs, "more").is_ok());
    assert_eq!(admin.instances().unwrap()[0].spec.id, INSTANCE);
}
