//! Files that are reported as created, written and closed before the storage daemon knows their names.

use super::support::faulty_network::FaultyNetwork;
use super::support::{READ, attach, noise};
use super::{AFTER_DENIAL, INSTANCE, Site, names_here, names_in};
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_protocol::{Errno, Ino};
use forebay_random::RandomSequence;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LENGTH: u64 = 3901;
/// Longer than prepared files are kept.
const AFTER_LAST: Duration = Duration::from_millis(1500);

/// Creates files one after the other, so that the mount has others prepared, and removes them. The daemon has made
/// all that.
fn prepare_files(site: &Site) {
    let paths: Vec<_> = (0..12).map(|number| site.path(&format!("prepared{number}"))).collect();
    paths.iter().for_each(|path| fs::write(path, "prepared").unwrap());
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
    rustix::fs::statvfs(&site.dir).unwrap(); // a request, which waits for outstanding changes
    fs::metadata(&site.dir).unwrap();
}

/// Creates a file of these contents while nothing reaches the daemon; then `meanwhile` is called. Whether the
/// program could go on before.
fn create_early(site: &Site, name: &str, contents: &[u8], meanwhile: impl FnOnce(bool)) -> bool {
    prepare_files(site);
    site.network.cut(true);
    std::thread::scope(|scope| {
        let path = site.path(name);
        let create = scope.spawn(move || File::create_new(path)?.write_all(contents));
        let begun = Instant::now();
        while !create.is_finished() && begun.elapsed() < Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_early = create.is_finished();
        meanwhile(is_early);
        site.network.cut(false);
        create.join().unwrap().unwrap();
        is_early
    })
}

/// What another client reads from a file.
pub fn read_elsewhere(fs: &Fs, name: &str) -> Vec<u8> {
    let dir = fs.lookup(Ino::ROOT, b"dir").unwrap();
    let attr = fs.lookup(dir.ino, name.as_bytes()).unwrap();
    let file = fs.open(attr.ino, READ).unwrap().file;
    let mut contents = vec![0; attr.size as usize];
    let count = file.read_at(&mut contents, 0).unwrap();
    assert_eq!(count, contents.len());
    contents
}

/// Inodes, and bytes of space, that the instance has in use.
fn in_use(site: &Site) -> (u64, u64) {
    let admin = Admin::connect(site.daemon.local(), ClientOptions::default()).unwrap();
    let usage = &admin.instances().unwrap()[0];
    (usage.inodes, usage.used)
}

#[test]
fn program_does_not_wait_for_the_daemon_to_create_write_and_close_a_file() {
    let site = Site::new(FaultyNetwork::default());
    let contents = noise(LENGTH, 1);
    // What the mount knows expires after a second, for which a busy machine may not be enough.
    let is_early = |round: &u64| create_early(&site, &format!("file{round}"), &contents, |_| ());
    let early = (0..10).find(is_early);
    let name = format!("file{}", early.expect("each create took a reply of the daemon"));
    let path = site.path(&name);
    let attr = fs::metadata(&path).unwrap();
    assert_eq!((attr.len(), attr.nlink(), attr.uid()), (LENGTH, 1, 0));
    assert_eq!(attr.mode() & 0o7777, 0o644);
    assert_eq!(fs::read(&path).unwrap(), contents);
    File::open(&path).unwrap().sync_all().unwrap();
    site.sync().unwrap();
    assert_eq!(names_here(&site.dir).last(), Some(&name));
    let other = attach(site.daemon.local());
    assert_eq!(read_elsewhere(&other, &name), contents);
    assert_eq!(names_in(&other), names_here(&site.dir));
}

/// The clock with which the kernel stamps writes is behind the exact time: with that as the access time of a new
/// file, reads right after the first write would not be recorded.
#[test]
fn first_read_of_a_new_file_is_recorded() {
    let site = Site::new(FaultyNetwork::default());
    let mut early = 0;
    for round in 0..20 {
        let name = format!("file{round}");
        if !create_early(&site, &name, b"contents", |_| ()) {
            continue; // the machine is too busy
        }
        early += 1;
        let path = site.path(&name);
        std::thread::sleep(Duration::from_millis(10));
        fs::read(&path).unwrap();
        let read = fs::metadata(&path).unwrap();
        assert!(read.accessed().unwrap() > read.modified().unwrap(), "round {round}");
    }
    assert!(early > 0, "each create took a reply of the daemon");
}

#[test]
fn attributes_are_those_that_the_daemon_sets() {
    let site = Site::new(FaultyNetwork::default());
    std::os::unix::fs::chown(&site.dir, None, Some(2000)).unwrap();
    fs::set_permissions(&site.dir, fs::Permissions::from_mode(0o2775)).unwrap();
    for round in 0..10 {
        prepare_files(&site);
        let path = site.path(&format!("file{round}"));
        site.network.cut(true);
        let reported = std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            let path = path.clone();
            scope.spawn(move || {
                File::options().write(true).create_new(true).mode(0o640).open(&path).unwrap();
                let _ = send.send(fs::metadata(path).unwrap());
            });
            let reported = receive.recv_timeout(Duration::from_millis(500)).ok();
            site.network.cut(false);
            reported
        });
        let Some(reported) = reported else {
            continue; // the machine is too busy
        };
        // The kernel asks again.
        std::thread::sleep(AFTER_DENIAL);
        let attributes = |found: &Metadata| {
            let times = [(found.atime(), found.atime_nsec()), (found.mtime(), found.mtime_nsec())];
            let owner = (found.uid(), found.gid(), found.mode(), found.nlink());
            let changed = (found.ctime(), found.ctime_nsec());
            (found.ino(), owner, (found.size(), found.blocks()), times, changed)
        };
        assert_eq!(attributes(&reported), attributes(&fs::metadata(path).unwrap()));
        assert_eq!((reported.gid(), reported.mode() & 0o7777), (2000, 0o640));
        return;
    }
    panic!("each create took a reply of the daemon");
}

#[test]
fn other_client_sees_all_files_that_were_created_before_it_attached() {
    let site = Site::new(FaultyNetwork::new(5000, 0));
    for round in 0..3 {
        prepare_files(&site);
        let names: Vec<String> = (0..8).map(|file| format!("f{round}.{file}")).collect();
        for (seed, name) in names.iter().enumerate() {
            fs::write(site.path(name), noise(LENGTH, seed as u64)).unwrap();
        }
        let other = attach(site.daemon.local());
        assert_eq!(names_in(&other), names);
        for (seed, name) in names.iter().enumerate() {
            assert_eq!(read_elsewhere(&other, name), noise(LENGTH, seed as u64));
        }
        // Also while it stays, and after it has gone.
        fs::write(site.path("later"), "later").unwrap();
        assert_eq!(read_elsewhere(&other, "later"), b"later");
        for name in names.iter().map(String::as_str).chain(["later"]) {
            fs::remove_file(site.path(name)).unwrap();
        }
        assert_eq!(names_in(&other), [] as [&str; 0]);
        drop(other);
        std::thread::sleep(AFTER_DENIAL);
    }
}

#[test]
fn other_operations_are_carried_out_after_creates() {
    let site = Site::new(FaultyNetwork::new(20_000, 0));
    let (path, dir) = (site.path("file"), &site.dir);
    for round in 0..19 {
        prepare_files(&site);
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"first").unwrap();
        // In the last rounds it stays open.
        let mut kept = Some(file).filter(|_| round >= 17);
        let mut expected = ("file", "first".to_owned());
        match round {
            0 => assert_eq!(fs::metadata(&path).unwrap().len(), 5),
            1 => {
                fs::rename(&path, site.path("moved")).unwrap();
                expected.0 = "moved";
            }
            2 => {
                fs::hard_link(&path, site.path("link")).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
                fs::remove_file(&path).unwrap();
                expected.0 = "link";
            }
            3 => {
                fs::remove_file(&path).unwrap();
                fs::write(&path, "second").unwrap();
                expected.1 = "second".to_owned();
            }
            4 => {
                let exists = File::create_new(&path).unwrap_err();
                assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
            }
            5 => assert_eq!(fs::read_to_string(&path).unwrap(), "first"),
            6 => assert_eq!(names_here(dir), ["file"]),
            7 => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
            }
            8 => {
                let exists = fs::create_dir(&path).unwrap_err();
                assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
            }
            9 => {
                fs::write(&path, "other").unwrap();
                expected.1 = "other".to_owned();
            }
            10 => {
                let moved = dir.with_file_name("moved");
                fs::rename(dir, &moved).unwrap();
                assert_eq!(fs::read_to_string(moved.join("file")).unwrap(), "first");
                fs::rename(moved, dir).unwrap();
            }
            11 => File::open(&path).unwrap().sync_all().unwrap(),
            12 => site.sync().unwrap(),
            13 => {
                let mut file = File::options().append(true).open(&path).unwrap();
                file.write_all(b" and more").unwrap();
                expected.1 = "first and more".to_owned();
            }
            14 => {
                let unable = fs::remove_dir(dir).unwrap_err();
                assert_eq!(unable.kind(), ErrorKind::DirectoryNotEmpty);
            }
            15 => {
                std::os::unix::fs::chown(&path, Some(1000), Some(2000)).unwrap();
                let attr = fs::metadata(&path).unwrap();
                assert_eq!((attr.uid(), attr.gid()), (1000, 2000));
            }
            16 => {
                let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
                File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time);
            }
            17 => {
                let file = kept.take().unwrap();
                let access = ProtFlags::READ | ProtFlags::WRITE;
                // SAFETY: a new mapping, which nothing else refers to; it is used within its length, and
                // unmapped once.
                unsafe {
                    let map = mmap(std::ptr::null_mut(), 5, access, MapFlags::SHARED, &file, 0);
                    let map = map.unwrap();
                    assert_eq!(map.cast::<u8>().read_volatile(), b'f');
                    map.cast::<u8>().write_volatile(b'F');
                    munmap(map, 5).unwrap();
                }
                expected.1 = "First".to_owned();
            }
            _ => {
                fs::remove_file(&path).unwrap();
                let mut file = kept.take().unwrap();
                assert_eq!(file.metadata().unwrap().nlink(), 0);
                file.write_all(b" and more").unwrap();
                fs::write(&path, "second").unwrap();
                expected.1 = "second".to_owned();
            }
        }
        assert_eq!(names_here(dir), [expected.0], "round {round}");
        let found = site.path(expected.0);
        assert_eq!(fs::read_to_string(&found).unwrap(), expected.1, "round {round}");
        fs::remove_file(found).unwrap();
    }
}

#[test]
fn creates_survive_kills_of_the_daemon_and_lost_replies() {
    let mut site = Site::new(FaultyNetwork::new(2000, 17));
    let mut random = RandomSequence::new(9);
    let mut expected: Vec<String> = Vec::new();
    let contents = |name: &str| noise(LENGTH, name.bytes().map(u64::from).sum::<u64>());
    for round in 0..6 {
        prepare_files(&site);
        let kill_at = random.below(16);
        for number in 0..16 {
            let name = format!("f{round:02}.{number:02}");
            let (path, contents) = (site.path(&name), contents(&name));
            if number == kill_at {
                site.daemon.pause(true);
                std::thread::scope(|scope| {
                    let create = scope.spawn(|| fs::write(path, &contents));
                    std::thread::sleep(Duration::from_millis(20));
                    site.daemon.kill();
                    site.daemon.restart();
                    create.join().unwrap().unwrap();
                });
            } else {
                fs::write(path, contents).unwrap();
            }
            expected.push(name);
            if random.below(3) == 0 {
                let removed = expected.remove(random.below(expected.len() as u32) as usize);
                fs::remove_file(site.path(&removed)).unwrap();
            }
        }
        if round % 2 == 0 {
            site.sync().unwrap();
            site.daemon.kill();
            site.daemon.restart();
        }
        expected.sort();
        let other = attach(site.daemon.local());
        assert_eq!(names_in(&other), expected, "round {round}");
        for name in &expected {
            assert_eq!(read_elsewhere(&other, name), contents(name), "{name}");
            assert_eq!(fs::read(site.path(name)).unwrap(), contents(name), "{name}");
        }
        drop(other);
        assert_eq!(names_here(&site.dir), expected, "round {round}");
        std::thread::sleep(AFTER_DENIAL);
    }
    // The root, the directory, and the files.
    std::thread::sleep(AFTER_LAST);
    assert_eq!(in_use(&site).0, 2 + expected.len() as u64);
}

#[test]
fn syncs_report_that_a_create_was_refused() {
    let site = Site::new(FaultyNetwork::default());
    for round in 0..5 {
        prepare_files(&site);
        let path = site.path("file");
        site.network.cut(true);
        let create = {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut file = File::create_new(path)?;
                file.write_all(b"contents").map(|()| file)
            })
        };
        std::thread::sleep(Duration::from_millis(300));
        if !create.is_finished() {
            site.network.cut(false); // the machine is too busy
            create.join().unwrap().unwrap();
            fs::remove_file(&path).unwrap();
            assert!(round < 4, "each create took a reply of the daemon");
            continue;
        }
        let file = create.join().unwrap().unwrap();
        // Another client gets access when the mount has not answered in time, and makes such a file.
        let other = attach(site.daemon.local());
        assert_eq!(names_in(&other), [] as [&str; 0]);
        let dir = other.lookup(Ino::ROOT, b"dir").unwrap();
        let open = super::support::READ_WRITE;
        let made = other.create(dir.ino, b"file", 0o644, true, open).unwrap();
        made.file.write_all_at(b"other", 0).unwrap();
        drop(made);
        site.network.cut(false);
        let failed = file.sync_all().unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(Errno::EIO.0));
        let failed = site.sync().unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(Errno::EIO.0));
        site.sync().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "other", "the mount shows what is there");
        drop((file, other));
        std::thread::sleep(AFTER_LAST);
        assert_eq!(in_use(&site).0, 3);
        return;
    }
}

#[test]
fn prepared_files_take_nothing_for_long() {
    let site = Site::new(FaultyNetwork::default());
    for number in 0..100 {
        fs::write(site.path(&format!("file{number:03}")), "contents").unwrap();
    }
    std::thread::sleep(AFTER_LAST);
    let (inodes, used) = in_use(&site);
    assert_eq!(inodes, 102);
    assert!(used < 1 << 20, "{used} bytes are in use");
    // Nor beside another client.
    prepare_files(&site);
    let other = attach(site.daemon.local());
    std::thread::sleep(Duration::from_millis(100));
    let (inodes, used) = in_use(&site);
    assert_eq!(inodes, 102);
    assert!(used < 1 << 20, "{used} bytes are in use");
    drop(other);
}

#[test]
fn files_that_are_not_written_take_the_space_of_a_few() {
    let site = Site::new(FaultyNetwork::default());
    prepare_files(&site);
    let create = |number: usize| File::create_new(site.path(&format!("kept{number:02}"))).unwrap();
    let mut kept: Vec<File> = (0..60).map(create).collect();
    std::thread::sleep(AFTER_LAST);
    let (inodes, used) = in_use(&site);
    assert_eq!(inodes, 62);
    assert!(used <= 17 << 20, "{used} bytes are in use");
    for (number, file) in kept.iter_mut().enumerate() {
        file.write_all(&noise(LENGTH, number as u64)).unwrap();
    }
    drop(kept);
    for number in 0..60 {
        let found = fs::read(site.path(&format!("kept{number:02}"))).unwrap();
        assert_eq!(found, noise(LENGTH, number));
    }
}

#[test]
fn full_instance_refuses_writes_of_files_that_it_has_created() {
    let site = Site::new(FaultyNetwork::default());
    let contents = noise(256 << 10, 1);
    let (mut written, mut refused) = (Vec::new(), None);
    for number in 0..400 {
        let path = site.path(&format!("file{number:03}"));
        match fs::write(&path, &contents) {
            Ok(()) => written.push(path),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::StorageFull));
    // As many as there are blocks for.
    assert!(written.len() > 240, "{} files", written.len());
    site.sync().unwrap();
    let mut found = Vec::new();
    for path in &written {
        found.clear();
        File::open(path).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == contents, "{}", path.display());
    }
    let admin = Admin::connect(site.daemon.local(), ClientOptions::default()).unwrap();
    assert_eq!(admin.instances().unwrap()[0].spec.id, INSTANCE);
}
