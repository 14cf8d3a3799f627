//! Small sequential writes through mounts of other hosts, which delay and join them: few requests are sent, every
//! operation of any mount sees all writes, errors are reported, and what is synced lasts.

#[path = "delayed_writes/faults.rs"]
mod faults;
#[path = "delayed_writes/history.rs"]
mod history;

use crate::support;
use forebay_client::{MountOptions, mount};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::faulty_network::FaultyNetwork;
use support::host_mounts::HostMounts;
use support::network_pool::NetworkPool;
use support::{Temporary, await_count};

const PIECE: usize = 4 << 10;
/// Storage nodes of the instances.
const NODES: [usize; 2] = [1, 3];

/// Two mounts of one instance.
struct Site {
    mounts: HostMounts,
}

impl Site {
    /// Of an instance over so many nodes.
    fn new(nodes: usize) -> Site {
        Site::with(NetworkPool::new(nodes), &FaultyNetwork::default())
    }

    /// The first one over this network.
    fn with(pool: NetworkPool, network: &FaultyNetwork) -> Site {
        Site { mounts: HostMounts::new(pool, &[network.clone(), FaultyNetwork::default()]) }
    }

    /// A file on the first mount, and the same on the second one.
    fn file(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.mounts.file(0, name), self.mounts.file(1, name))
    }

    /// Requests of a kind that the daemons have answered.
    fn count(&self, kind: &str) -> u64 {
        self.mounts.pool.count(kind)
    }

    fn end(self) {
        self.mounts.end();
    }
}

/// The byte at `offset` of what [`write_piece`] writes.
fn expected(offset: u64) -> u8 {
    (offset / 131 % 251) as u8
}

fn content(offset: u64, length: usize) -> Vec<u8> {
    (offset..offset + length as u64).map(expected).collect()
}

/// Writes the content at the end of a file, and returns the new end.
fn write_piece(file: &File, end: u64, length: usize) -> u64 {
    file.write_all_at(&content(end, length), end).unwrap();
    end + length as u64
}

fn check_content(path: &Path, length: u64) {
    let found = fs::read(path).unwrap();
    let wrong = found.iter().zip(0..).position(|(byte, offset)| *byte != expected(offset));
    assert_eq!((found.len() as u64, wrong), (length, None), "{}", path.display());
}

#[test]
fn small_sequential_writes_take_few_requests() {
    for length in [PIECE, 8 << 10, 47_008] {
        // Several writes are made in the time of a request, however the threads are scheduled.
        let site = Site::with(NetworkPool::new(1), &FaultyNetwork::new(600, 0));
        let (here, there) = site.file("file");
        let file = File::create(here).unwrap();
        let pieces = (16 << 20) / length as u64;
        let end = (0..pieces).fold(0, |end, _| write_piece(&file, end, length));
        file.sync_all().unwrap();
        let requests = site.count("write");
        assert!(requests < pieces / 2, "{requests} requests for {pieces} writes of {length} bytes");
        check_content(&there, end);
        drop(file);
        site.end();
    }
}

#[test]
fn direct_writes_are_requests() {
    let site = Site::new(1);
    let mut options = OpenOptions::new();
    options.write(true).create(true).custom_flags(libc::O_DIRECT);
    let file = options.open(site.file("file").0).unwrap();
    (0..50).fold(0, |end, _| write_piece(&file, end, PIECE));
    await_count(|| site.count("write"), 50, "O_DIRECT");
    assert_eq!(site.count("write_lease"), 0);
    drop(file);
    site.end();
}

#[test]
fn mount_that_is_synchronous_delays_nothing() {
    let (pool, temporary) = (NetworkPool::new(1), Temporary::new());
    let path = temporary.dir("mnt");
    let options = MountOptions { synchronous: true, ..MountOptions::default() };
    let mounted = mount(pool.client(), &path, &options).unwrap();
    let file = File::create(path.join("file")).unwrap();
    (0..50).fold(0, |end, _| write_piece(&file, end, PIECE));
    await_count(|| pool.count("write"), 50, "writes");
    assert_eq!(pool.count("write_lease"), 0);
    drop(file);
    support::unmount(mounted);
}

/// An observation of a file: returns the length that it sees.
type Observation = fn(&Path) -> u64;

const OBSERVATIONS: [(&str, Observation); 9] = [
    ("attributes of a path", |path| fs::metadata(path).unwrap().len()),
    ("attributes of an open file", |path| File::open(path).unwrap().metadata().unwrap().len()),
    ("listing", |path| {
        let entries = fs::read_dir(path.parent().unwrap()).unwrap();
        let found = entries.map(Result::unwrap).find(|entry| entry.path() == path).unwrap();
        found.metadata().unwrap().len()
    }),
    ("read", |path| fs::read(path).unwrap().len() as u64),
    ("seek to the end", |path| {
        let mut file = File::open(path).unwrap();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap()
    }),
    ("seek to a hole", |path| {
        let file = File::open(path).unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap()
    }),
    ("open for writing", |path| {
        OpenOptions::new().write(true).open(path).unwrap().metadata().unwrap().len()
    }),
    ("memory map", |path| {
        let file = File::open(path).unwrap();
        let length = file.metadata().unwrap().len();
        check_map(&file, length);
        length
    }),
    ("rename", |path| {
        let renamed = path.with_extension("renamed");
        fs::rename(path, &renamed).unwrap();
        let length = fs::metadata(&renamed).unwrap().len();
        fs::rename(&renamed, path).unwrap();
        length
    }),
];

/// Compares a private map of a file with the content.
fn check_map(file: &File, length: u64) {
    let (length, null) = (length as usize, std::ptr::null_mut());
    // SAFETY: a new map of a file that nobody truncates, which is read and then removed.
    unsafe {
        let map = mmap(null, length, ProtFlags::READ, MapFlags::PRIVATE, file, 0).unwrap();
        let bytes = std::slice::from_raw_parts(map.cast::<u8>(), length);
        assert!(bytes.iter().zip(0..).all(|(byte, offset)| *byte == expected(offset)));
        munmap(map, length).unwrap();
    }
}

#[test]
fn every_observation_shows_all_writes() {
    for nodes in NODES {
        let site = Site::new(nodes);
        let (here, there) = site.file("file");
        let file = File::create(&here).unwrap();
        let (mut end, mut writes) = (0, 0);
        for round in 0..3 {
            for (name, observe) in OBSERVATIONS {
                for path in [&here, &there] {
                    // The last lease was recalled.
                    std::thread::sleep(Duration::from_millis(260));
                    for _ in 0..40 + round {
                        writes += 1;
                        end = write_piece(&file, end, PIECE);
                    }
                    assert_eq!(observe(path), end, "{name} of {}", path.display());
                }
            }
        }
        assert!(site.count("write") < writes, "nothing was delayed");
        check_content(&there, end);
        drop(file);
        site.end();
    }
}

#[test]
fn modification_time_is_not_before_the_write_and_is_kept_when_it_is_set() {
    for nodes in NODES {
        let site = Site::new(nodes);
        let (here, there) = site.file("file");
        let file = File::create(&here).unwrap();
        let mut end = 0;
        let mut last = file.metadata().unwrap().modified().unwrap();
        for round in 0..20 {
            // Longer than a tick of the clock with which the kernel stamps writes.
            std::thread::sleep(Duration::from_millis(12));
            end = (0..40).fold(end, |end, _| write_piece(&file, end, PIECE));
            let path = if round % 2 == 0 { &here } else { &there };
            let modified = fs::metadata(path).unwrap().modified().unwrap();
            assert!(modified > last, "round {round}");
            last = modified;
        }
        let past = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        for _ in 0..5 {
            end = (0..40).fold(end, |end, _| write_piece(&file, end, PIECE));
            file.set_modified(past).unwrap();
            assert_eq!(fs::metadata(&there).unwrap().modified().unwrap(), past);
        }
        drop(file);
        assert_eq!(fs::metadata(&there).unwrap().mtime(), 1000);
        site.end();
    }
}

#[test]
fn concurrent_observations_are_never_older_than_writes() {
    for nodes in NODES {
        for network in
            [FaultyNetwork::default(), FaultyNetwork::new(3000, 0), FaultyNetwork::new(300, 40)]
        {
            let site = Site::with(NetworkPool::new(nodes), &network);
            let (here, there) = site.file("file");
            let file = File::create(&here).unwrap();
            let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            std::thread::scope(|scope| {
                for (index, pause_ms) in [1, 2, 70, 400].into_iter().enumerate() {
                    let (here, there, written, stop) = (&here, &there, &written, &stop);
                    scope.spawn(move || {
                        // One of them through the mount that writes.
                        let path = if index == 0 { here } else { there };
                        while !stop.load(Ordering::Acquire) {
                            std::thread::sleep(Duration::from_millis(pause_ms));
                            let before = written.load(Ordering::Acquire);
                            let (name, observe) = OBSERVATIONS[index];
                            let length = observe(path);
                            assert!(length >= before, "{name}: {length} bytes after {before}");
                        }
                    });
                }
                let (start, mut end) = (Instant::now(), 0);
                while start.elapsed() < Duration::from_secs(3) {
                    end = write_piece(&file, end, 1000);
                    written.store(end, Ordering::Release);
                }
                stop.store(true, Ordering::Release);
            });
            drop(file);
            check_content(&there, written.into_inner());
            site.end();
        }
    }
}

#[test]
fn many_files_are_written_at_the_same_time() {
    for nodes in NODES {
        let site = Site::new(nodes);
        // More than the client delays writes of.
        let files: Vec<File> =
            (0..80).map(|index| File::create(site.file(&format!("f{index}")).0).unwrap()).collect();
        let mut end = 0;
        for _ in 0..50 {
            for file in &files {
                write_piece(file, end, 1000);
            }
            end += 1000;
        }
        drop(files);
        assert!(site.count("write_lease") > 0, "nothing was delayed");
        for index in 0..80 {
            check_content(&site.file(&format!("f{index}")).1, end);
        }
        site.end();
    }
}

#[test]
fn threads_write_and_read_one_file_through_several_descriptors() {
    for nodes in NODES {
        let site = Site::new(nodes);
        let (here, there) = site.file("file");
        const REGION: u64 = 2 << 20;
        File::create(&here).unwrap().set_len(4 * REGION).unwrap();
        std::thread::scope(|scope| {
            for region in 0..4 {
                let here = &here;
                scope.spawn(move || {
                    let file = OpenOptions::new().read(true).write(true).open(here).unwrap();
                    let (start, mut at) = (region * REGION, region * REGION);
                    while at < start + REGION {
                        let length = 4096.min(start + REGION - at) as usize;
                        at = write_piece(&file, at, length);
                        if at % (1 << 16) == 0 {
                            let mut found = vec![0; 8192];
                            file.read_exact_at(&mut found, at - 8192).unwrap();
                            assert_eq!(found, content(at - 8192, 8192));
                        }
                    }
                });
            }
        });
        check_content(&there, 4 * REGION);
        site.end();
    }
}

#[test]
fn programs_append_through_both_mounts_between_delayed_writes() {
    for nodes in NODES {
        let site = Site::new(nodes);
        let (here, there) = site.file("file");
        let file = File::create(&here).unwrap();
        let mut end = 0;
        for round in 0..30 {
            for _ in 0..40 {
                end = write_piece(&file, end, 1000);
            }
            let path = if round % 2 == 0 { &here } else { &there };
            let mut appended = OpenOptions::new().append(true).open(path).unwrap();
            appended.write_all(&content(end, 777)).unwrap();
            end += 777;
        }
        drop(file);
        let mut found = Vec::new();
        File::open(&here).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == content(0, end as usize));
        check_content(&there, end);
        site.end();
    }
}
