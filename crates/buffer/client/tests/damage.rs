//! Data corruption on the flash is detected.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_net::auth::PoolKey;
use forebay_protocol::message::{ScrubReport, SetAttr, SetTime};
use forebay_protocol::{Errno, Ino, Timestamp};
use forebay_store::daemon::{self, Daemon, DamagedObject, ScrubOptions, StoreReport};
use forebay_store::objects::block_checksums::MIN_BLOCK_BYTES;
use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{INSTANCE, READ, READ_WRITE, Temporary, make_instance};

const FILE: &str = "checkpoint";
const SIZE: usize = 5 * MIN_BLOCK_BYTES as usize + 1000;

/// A daemon with one file, and the file's object.
struct Flash {
    daemon: Daemon,
    key: PoolKey,
    ino: Ino,
    object: PathBuf,
    _temporary: Temporary,
}

fn contents() -> Vec<u8> {
    (0..SIZE).map(|i| (i * 7 % 251) as u8).collect()
}

impl Flash {
    fn new() -> Flash {
        Flash::with_scrub(ScrubOptions { interval: None, ..ScrubOptions::default() })
    }

    fn with_scrub(scrub: ScrubOptions) -> Flash {
        let temporary = Temporary::new();
        let flash = temporary.dir("flash");
        let key = PoolKey::new(b"a key of some length").unwrap();
        let daemon = Daemon::start(daemon::StoreOptions {
            tcp: Some("127.0.0.1:0".parse().unwrap()),
            key: Some(key.clone()),
            scrub,
            ..daemon::StoreOptions::new(flash.clone())
        })
        .unwrap();
        make_instance(daemon.address(), 1 << 30);
        let fs = Fs::attach(daemon.address(), INSTANCE, ClientOptions::default()).unwrap();
        let opened = fs.create_path(Path::new(FILE), 0o644, READ_WRITE).unwrap();
        opened.file.write_all_at(&contents(), 0).unwrap();
        let ino = opened.attr.ino;
        let directory = flash.join(format!("objects/{:016x}", INSTANCE.0));
        let object = directory.join(format!("{:02x}/{:016x}", ino.0 % 64, ino.0));
        Flash { daemon, key, ino, object, _temporary: temporary }
    }

    fn fs(&self) -> Fs {
        Fs::attach(self.daemon.address(), INSTANCE, ClientOptions::default()).unwrap()
    }

    /// A client on another host, which reads over the network.
    fn remote(&self) -> Fs {
        let options = ClientOptions { key: Some(self.key.clone()), ..ClientOptions::default() };
        Fs::attach(self.daemon.tcp_address().unwrap(), INSTANCE, options).unwrap()
    }

    fn scrub(&self) -> ScrubReport {
        let admin = Admin::connect(self.daemon.address(), ClientOptions::default()).unwrap();
        admin.scrub(INSTANCE).unwrap()
    }

    /// Waits until the file has its checksums.
    fn wait_for_checksums(&self) -> ScrubReport {
        let start = Instant::now();
        loop {
            let found = self.scrub();
            if found.intact == 1 {
                return found;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{found:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Flips a bit in the data object, as worn-out flash does.
    fn rot(&self, at: u64) {
        let object = File::options().read(true).write(true).open(&self.object).unwrap();
        let before = object.metadata().unwrap().modified().unwrap();
        let mut byte = [0];
        object.read_exact_at(&mut byte, at).unwrap();
        object.write_all_at(&[byte[0] ^ 4], at).unwrap();
        object.set_times(FileTimes::new().set_modified(before)).unwrap();
    }
}

/// A scrub of all objects again and again.
fn incessant() -> ScrubOptions {
    ScrubOptions { interval: Some(Duration::from_millis(20)), bytes_per_second: 1 << 30 }
}

fn report(daemon: &Daemon) -> StoreReport {
    daemon.stats().collect_report(Duration::from_secs(10))
}

fn wait_for(daemon: &Daemon, is_expected: impl Fn(&StoreReport) -> bool) -> StoreReport {
    let start = Instant::now();
    loop {
        let report = report(daemon);
        if is_expected(&report) {
            return report;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{report:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn regular_scrub_reports_damage_that_nobody_reads_until_the_file_is_replaced_or_removed() {
    let flash = Flash::with_scrub(incessant());
    let intact = wait_for(&flash.daemon, |report| report.scrub.intact > 0);
    assert!(intact.scrub.bytes >= SIZE as u64);
    assert_eq!(intact.damaged_objects, 0);

    flash.rot(2 * MIN_BLOCK_BYTES + 5);
    let found = wait_for(&flash.daemon, |report| report.damaged_objects > 0);
    let ino = flash.ino.0;
    let damaged = DamagedObject { instance: INSTANCE.0, ino, offset: 2 * MIN_BLOCK_BYTES };
    assert_eq!((found.damaged_objects, found.damaged), (1, vec![damaged]));

    // Written again, it has other checksums.
    let fs = flash.fs();
    let file = fs.open_path(Path::new(FILE), READ_WRITE).unwrap().file;
    file.write_all_at(&contents(), 0).unwrap();
    drop(file);
    wait_for(&flash.daemon, |report| report.damaged_objects == 0);
    let before = report(&flash.daemon).scrub.intact;
    wait_for(&flash.daemon, |report| report.scrub.intact > before);

    flash.rot(7);
    wait_for(&flash.daemon, |report| report.damaged_objects == 1);
    fs.unlink_path(Path::new(FILE)).unwrap();
    wait_for(&flash.daemon, |report| report.damaged_objects == 0);
}

#[test]
fn damage_that_a_read_finds_is_reported() {
    let flash = Flash::new();
    flash.wait_for_checksums();
    flash.rot(3);
    assert_eq!(report(&flash.daemon).damaged_objects, 0);
    assert_eq!(read(&flash.remote(), 0, 100), Err(Errno::EIO));
    let damaged = DamagedObject { instance: INSTANCE.0, ino: flash.ino.0, offset: 0 };
    assert_eq!(report(&flash.daemon).damaged, [damaged]);
}

#[test]
fn regular_scrub_is_due_by_its_last_end_also_after_a_restart() {
    let temporary = Temporary::new();
    let scrub = ScrubOptions { interval: Some(Duration::from_secs(3600)), ..incessant() };
    let start = || {
        let directory = temporary.dir("flash");
        let scrub = scrub.clone();
        Daemon::start(daemon::StoreOptions { scrub, ..daemon::StoreOptions::new(directory) })
    };
    let daemon = start().unwrap();
    make_instance(daemon.address(), 1 << 30);
    let last = temporary.0.join("flash/last_scrub");
    let noted = || std::fs::read_to_string(&last).unwrap_or_default();
    let begun = Instant::now();
    while noted().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "a new directory notes its time");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon.stop().unwrap();
    let before = noted();
    start().unwrap().stop().unwrap();
    assert_eq!(noted(), before, "not due");
    std::fs::write(&last, "1000\n").unwrap();
    let daemon = start().unwrap();
    wait_for(&daemon, |report| report.scrub.completed == 1);
    daemon.stop().unwrap();
    assert_ne!(noted(), "1000\n");
}

fn read(fs: &Fs, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let file = fs.open_path(Path::new(FILE), READ)?.file;
    let mut data = vec![0; length];
    let count = file.read_at(&mut data, offset)?;
    data.truncate(count);
    Ok(data)
}

#[test]
fn flipped_bit_is_detected_and_not_returned() {
    let flash = Flash::new();
    let whole = flash.wait_for_checksums();
    assert_eq!((whole.intact, whole.bytes), (1, SIZE as u64));
    assert_eq!(read(&flash.remote(), 0, SIZE).unwrap(), contents());

    flash.rot(2 * MIN_BLOCK_BYTES + 5);
    assert_eq!(flash.scrub().damaged, [(flash.ino, 2 * MIN_BLOCK_BYTES)]);
    let remote = flash.remote();
    assert_eq!(read(&remote, 0, SIZE), Err(Errno::EIO));
    // Also if only a few bytes of the damaged block are read.
    assert_eq!(read(&remote, 2 * MIN_BLOCK_BYTES + 5000, 10), Err(Errno::EIO));
    assert_eq!(read(&remote, MIN_BLOCK_BYTES + 9, 65536), Err(Errno::EIO));
    let chunk = MIN_BLOCK_BYTES as usize;
    assert_eq!(
        read(&remote, 3 * MIN_BLOCK_BYTES, chunk).unwrap(),
        contents()[3 * chunk..4 * chunk]
    );

    // Rewriting the data repairs the file.
    let file = flash.fs().open_path(Path::new(FILE), READ_WRITE).unwrap().file;
    file.write_all_at(&contents(), 0).unwrap();
    drop(file);
    assert_eq!(read(&remote, 0, SIZE).unwrap(), contents());
    assert_eq!(flash.wait_for_checksums(), whole);
}

#[test]
fn tail_of_a_file_is_checksummed() {
    let flash = Flash::new();
    flash.wait_for_checksums();
    flash.rot(SIZE as u64 - 1);
    assert_eq!(flash.scrub().damaged, [(flash.ino, 5 * MIN_BLOCK_BYTES)]);
    assert_eq!(read(&flash.remote(), 5 * MIN_BLOCK_BYTES, 5000), Err(Errno::EIO));
}

#[test]
fn setting_times_keeps_checksums_and_truncation_invalidates_them() {
    let flash = Flash::new();
    let whole = flash.wait_for_checksums();
    let fs = flash.fs();
    let set =
        SetAttr { mtime: Some(SetTime::At(Timestamp { secs: 7, nanos: 9 })), ..SetAttr::default() };
    fs.set_attr(flash.ino, None, set).unwrap();
    assert_eq!(flash.scrub(), whole);
    flash.rot(0);
    assert_eq!(flash.scrub().damaged, [(flash.ino, 0)]);

    let set = SetAttr { size: Some(100), ..SetAttr::default() };
    fs.set_attr(flash.ino, None, set).unwrap();
    let truncated = flash.wait_for_checksums();
    assert_eq!((truncated.intact, truncated.bytes), (1, 100));
}

#[test]
fn reader_opened_before_a_change_sees_the_change() {
    let flash = Flash::new();
    flash.wait_for_checksums();
    let remote = flash.remote();
    let before = remote.open_path(Path::new(FILE), READ).unwrap().file;
    let mut data = vec![0; SIZE];
    assert_eq!(before.read_at(&mut data, 0).unwrap(), SIZE);
    let writer = flash.fs().open_path(Path::new(FILE), READ_WRITE).unwrap().file;
    writer.write_all_at(b"changed", 10).unwrap();
    assert_eq!(before.read_at(&mut data, 0).unwrap(), SIZE);
    assert_eq!(data[10..17], *b"changed");
}

#[test]
fn old_mtime_does_not_revalidate_checksums() {
    let flash = Flash::new();
    let whole = flash.wait_for_checksums();
    let fs = flash.fs();
    let before = fs.get_attr(flash.ino).unwrap().mtime;
    let writer = fs.open_path(Path::new(FILE), READ_WRITE).unwrap().file;
    // Another program opens and closes the file meanwhile. The file still has no checksums while it is
    // open for writing.
    drop(flash.fs().open_path(Path::new(FILE), READ_WRITE).unwrap().file);
    std::thread::sleep(Duration::from_millis(1500));
    let open = flash.scrub();
    assert_eq!((open.intact, open.checksummed, open.not_checksummed), (0, 0, 1));
    writer.write_all_at(b"changed", 10).unwrap();
    let set = SetAttr { mtime: Some(SetTime::At(before)), ..SetAttr::default() };
    fs.set_attr(flash.ino, None, set).unwrap();
    drop(writer);
    assert_eq!(read(&flash.remote(), 10, 7).unwrap(), b"changed");
    assert_eq!(flash.wait_for_checksums(), whole);
    assert_eq!(flash.scrub().damaged, []);
}

#[test]
fn small_files_get_checksums_in_the_background() {
    const FILES: usize = 100;
    let flash = Flash::new();
    let fs = flash.fs();
    let inos: Vec<Ino> = (0..FILES)
        .map(|number| {
            let name = format!("small{number}");
            let opened = fs.create_path(Path::new(&name), 0o644, READ_WRITE).unwrap();
            opened.file.write_all_at(name.as_bytes(), 0).unwrap();
            opened.attr.ino
        })
        .collect();
    let objects = flash.object.parent().unwrap().parent().unwrap();
    let is_sealed = |ino: &Ino| {
        let object = objects.join(format!("{:02x}/{:016x}", ino.0 % 64, ino.0));
        rustix::fs::getxattr(
            object,
            forebay_store::objects::block_checksums::CHECKSUMS_XATTR,
            &mut [0u8; 4096],
        )
        .is_ok()
    };
    let start = Instant::now();
    while !inos.iter().all(is_sealed) {
        assert!(start.elapsed() < Duration::from_secs(60), "no checksums");
        std::thread::sleep(Duration::from_millis(100));
    }
    let found = flash.scrub();
    assert!(found.intact >= FILES as u64, "{found:?}");
    assert!(found.damaged.is_empty(), "{found:?}");
}
