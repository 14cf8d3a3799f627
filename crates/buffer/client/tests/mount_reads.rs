//! Reads through mounts of other hosts, which read ahead: sequential small reads take few requests, and each read
//! sees every change that was acknowledged before, by whatever client.

use crate::support;
use forebay_client::Fs;
use forebay_protocol::message::SetAttr;
use forebay_random::RandomSequence;
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::faulty_network::FaultyNetwork;
use support::host_mounts::{self, HostMounts};
use support::network_pool::NetworkPool;
use support::{await_count, noise};

const NAME: &str = "file";
const SMALL: usize = 4 << 10;
const LENGTH: usize = 1 << 20;
/// Storage nodes of the instances.
const NODES: [usize; 2] = [1, 3];
/// Longer than a client requests no lease after a refusal.
const AFTER_REFUSAL: Duration = Duration::from_millis(150);

/// Mounts of one instance over so many nodes.
fn mounted(nodes: usize, mounts: usize) -> HostMounts {
    HostMounts::new(NetworkPool::new(nodes), &vec![FaultyNetwork::default(); mounts])
}

fn read_whole(file: &File, piece: usize) -> Vec<u8> {
    host_mounts::read_whole(piece, |into, offset| file.read_at(into, offset).unwrap())
}

#[test]
fn sequential_small_reads_take_one_request_for_each_window() {
    for (nodes, piece) in [(1, SMALL), (1, 47_008), (3, SMALL)] {
        let site = mounted(nodes, 2);
        let data = noise(16 << 20, 1);
        fs::write(site.file(0, NAME), &data).unwrap();
        // The first open file may still be about to be closed.
        std::thread::sleep(AFTER_REFUSAL);
        let file = File::open(site.file(1, NAME)).unwrap();
        let before = (site.pool.count("read"), site.pool.count("lease"));
        assert!(read_whole(&file, piece) == data, "{nodes} nodes, reads of {piece}");
        let reads = site.pool.count("read") - before.0;
        let leases = site.pool.count("lease") - before.1;
        // On several nodes each window has many stripes.
        let most = if nodes == 1 { 60 } else { 1200 };
        assert!(reads < most, "{reads} reads of {piece} bytes, {nodes} nodes");
        assert!((1..60).contains(&leases), "{leases} requests for leases");
        drop(file);
        site.end();
    }
}

#[test]
fn several_programs_read_one_file_and_several() {
    for nodes in NODES {
        let site = mounted(nodes, 1);
        let names = [NAME, NAME, "other", "third"];
        for (seed, name) in names.iter().enumerate().skip(1) {
            fs::write(site.paths[0].join(name), noise(3 << 20, seed as u64)).unwrap();
        }
        std::thread::scope(|scope| {
            for (seed, name) in names.iter().enumerate() {
                let path = site.paths[0].join(name);
                scope.spawn(move || {
                    let expected = noise(3 << 20, seed.max(1) as u64);
                    let shared = File::open(path).unwrap();
                    // Two threads of a program with one descriptor.
                    std::thread::scope(|scope| {
                        for piece in [1000, 9000] {
                            let (shared, expected) = (&shared, &expected);
                            scope.spawn(move || assert!(read_whole(shared, piece) == *expected));
                        }
                    });
                });
            }
        });
        site.end();
    }
}

#[test]
fn programs_that_read_one_file_share_the_data() {
    const PROGRAMS: usize = 8;
    for nodes in NODES {
        let site = mounted(nodes, 2);
        let data = noise(8 << 20, 5);
        fs::write(site.file(0, NAME), &data).unwrap();
        std::thread::sleep(AFTER_REFUSAL);
        let open = |_| File::open(site.file(1, NAME)).unwrap();
        let files: Vec<File> = (0..PROGRAMS).map(open).collect();
        let before = site.pool.count("read");
        let mut buffer = vec![0; SMALL];
        for (index, expected) in data.chunks(SMALL).enumerate() {
            for file in &files {
                file.read_exact_at(&mut buffer, (index * SMALL) as u64).unwrap();
                assert!(buffer == expected, "block {index}, {nodes} nodes");
            }
        }
        let reads = site.pool.count("read") - before;
        // Three reads of each program come before it reads ahead. On several nodes each window has many stripes.
        let most = if nodes == 1 { 3 * PROGRAMS + 20 } else { 3 * PROGRAMS + 600 };
        assert!(reads < most as u64, "{reads} reads, {nodes} nodes");
        drop(files);
        site.end();
    }
}

#[test]
fn shared_data_are_not_older_than_changes() {
    for nodes in NODES {
        let site = mounted(nodes, 2);
        fs::write(site.file(0, NAME), vec![0; LENGTH]).unwrap();
        let [first, second] = [(); 2].map(|()| File::open(site.file(1, NAME)).unwrap());
        let mut buffer = vec![0; SMALL];
        for value in 1..10 {
            std::thread::sleep(AFTER_REFUSAL);
            assert!(read_whole(&first, SMALL).iter().all(|byte| *byte == value - 1));
            writable(&site.file(0, NAME)).write_all_at(&vec![value; LENGTH], 0).unwrap();
            // In the middle, alone; and sequentially when the lease is granted again.
            second.read_exact_at(&mut buffer, LENGTH as u64 / 2).unwrap();
            assert!(buffer.iter().all(|byte| *byte == value), "{nodes} nodes, value {value}");
            if value % 2 == 0 {
                std::thread::sleep(AFTER_REFUSAL);
            }
            assert!(read_whole(&second, SMALL).iter().all(|byte| *byte == value));
        }
        drop((first, second));
        site.end();
    }
}

#[test]
fn data_that_were_read_with_o_noatime_are_not_shared() {
    let site = mounted(1, 2);
    File::create(site.file(0, NAME)).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    fs::write(site.file(0, NAME), noise(LENGTH as u64, 1)).unwrap();
    std::thread::sleep(AFTER_REFUSAL);
    let mut options = OpenOptions::new();
    let silent = options.read(true).custom_flags(libc::O_NOATIME).open(site.file(1, NAME)).unwrap();
    let accessed = || fs::metadata(site.file(1, NAME)).unwrap().accessed().unwrap();
    let before = accessed();
    assert_eq!(read_whole(&silent, SMALL).len(), LENGTH);
    assert_eq!(accessed(), before);
    let other = File::open(site.file(1, NAME)).unwrap();
    assert_eq!(read_whole(&other, SMALL).len(), LENGTH);
    assert!(accessed() > before);
    drop((silent, other));
    site.end();
}

#[test]
fn direct_reads_are_requests() {
    let site = mounted(1, 2);
    fs::write(site.file(0, NAME), noise(LENGTH as u64, 1)).unwrap();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_DIRECT).open(site.file(1, NAME)).unwrap();
    let before = site.pool.count("read");
    let mut buffer = vec![0; SMALL];
    (0..50).for_each(|block| file.read_exact_at(&mut buffer, block * SMALL as u64).unwrap());
    await_count(|| site.pool.count("read") - before, 50, "O_DIRECT");
    assert_eq!(site.pool.count("lease"), 0);
    drop(file);
    site.end();
}

#[test]
fn file_is_mapped_and_read_sequentially() {
    for nodes in NODES {
        let site = mounted(nodes, 2);
        let data = noise(4 << 20, 3);
        fs::write(site.file(0, NAME), &data).unwrap();
        std::thread::sleep(AFTER_REFUSAL);
        let file = File::open(site.file(1, NAME)).unwrap();
        let (length, null) = (data.len(), std::ptr::null_mut());
        // SAFETY: a new map of a file that nobody truncates, which is read and then removed.
        unsafe {
            let map = mmap(null, length, ProtFlags::READ, MapFlags::SHARED, &file, 0).unwrap();
            let bytes = std::slice::from_raw_parts(map.cast::<u8>(), length);
            for (mapped, expected) in bytes.chunks(SMALL).zip(data.chunks(SMALL)) {
                assert!(mapped == expected);
            }
            munmap(map, length).unwrap();
        }
        assert!(read_whole(&file, SMALL) == data);
        drop(file);
        site.end();
    }
}

/// A change of the file through a mount, or by the library.
type Change = fn(&mut Model, &Path, &Fs);

/// The contents of the file, and the changes to come.
struct Model {
    data: Vec<u8>,
    random: RandomSequence,
}

impl Model {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u32) as usize
    }

    /// Bytes that differ from those before.
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let seed = self.below(1 << 30) as u64;
        noise(length as u64, seed)
    }

    /// A place in the file, or at its end, and new bytes for it.
    fn change(&mut self, longest: usize) -> (u64, Vec<u8>) {
        let offset = self.below(self.data.len() + 1);
        let length = self.below(longest) + 1;
        let bytes = self.bytes(length);
        self.data.resize(self.data.len().max(offset + length), 0);
        self.data[offset..offset + length].copy_from_slice(&bytes);
        (offset as u64, bytes)
    }

    /// Reads some of the file sequentially, and compares it.
    fn check(&mut self, file: &File, what: &str) {
        let start = self.below(self.data.len().min(LENGTH / 2) + 1);
        let mut buffer = vec![0; SMALL];
        for offset in (start..).step_by(SMALL).take(20) {
            let count = file.read_at(&mut buffer, offset as u64).unwrap();
            let end = self.data.len().min(offset + SMALL).max(offset);
            let expected = self.data.get(offset..end).unwrap_or_default();
            assert!(buffer[..count] == *expected, "after {what}: at {offset}, {count} bytes");
        }
    }
}

fn writable(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

const CHANGES: [(&str, Change); 8] = [
    ("write", |model, path, _| {
        let (offset, bytes) = model.change(50_000);
        writable(path).write_all_at(&bytes, offset).unwrap();
    }),
    ("small sequential writes", |model, path, _| {
        let file = writable(path);
        let (mut offset, _) = model.change(1);
        file.write_all_at(&model.data[offset as usize..=offset as usize], offset).unwrap();
        for _ in 0..40 {
            offset += 1000;
            let bytes = model.bytes(1000);
            let range = offset as usize - 999..offset as usize + 1;
            model.data.resize(model.data.len().max(range.end), 0);
            model.data[range.clone()].copy_from_slice(&bytes);
            file.write_all_at(&bytes, range.start as u64).unwrap();
        }
    }),
    ("truncation by open", |model, path, _| {
        let length = LENGTH / 2 + model.below(LENGTH);
        model.data = model.bytes(length);
        fs::write(path, &model.data).unwrap();
    }),
    ("truncation of an open file", |model, path, _| {
        let length = model.below(2 * model.data.len() + 1).min(2 * LENGTH);
        model.data.resize(length, 0);
        writable(path).set_len(length as u64).unwrap();
    }),
    ("truncation by path", |model, _, library| {
        let length = model.below(model.data.len() + 1);
        model.data.resize(length, 0);
        let ino = library.resolve(Path::new(NAME), true).unwrap().ino;
        let set = SetAttr { size: Some(length as u64), ..SetAttr::default() };
        library.set_attr(ino, None, set).unwrap();
    }),
    ("append", |model, path, _| {
        let bytes = model.bytes(5000);
        model.data.extend_from_slice(&bytes);
        OpenOptions::new().append(true).open(path).unwrap().write_all(&bytes).unwrap();
    }),
    ("hole", |model, path, _| {
        let (offset, bytes) = model.change(20_000);
        model.data[offset as usize..][..bytes.len()].fill(0);
        let file = writable(path);
        file.write_all_at(&bytes, offset).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, punch, offset, bytes.len() as u64).unwrap();
    }),
    ("copy", |model, path, _| {
        let (offset, bytes) = model.change(100_000);
        let other = path.with_extension("other");
        fs::write(&other, &bytes).unwrap();
        let (from, to) = (File::open(&other).unwrap(), writable(path));
        let (mut source, mut target) = (0, offset);
        while source < bytes.len() as u64 {
            let left = bytes.len() - source as usize;
            let (from_at, to_at) = (Some(&mut source), Some(&mut target));
            assert!(rustix::fs::copy_file_range(&from, from_at, &to, to_at, left).unwrap() > 0);
        }
    }),
];

/// Two mounts, the first one over this network, read a file that these of them change by turns; each has it open
/// for reading all the time.
fn check_reads_between_changes(
    nodes: usize,
    network: &FaultyNetwork,
    writers: &[usize],
    seed: u64,
) {
    let site =
        HostMounts::new(NetworkPool::new(nodes), &[network.clone(), FaultyNetwork::default()]);
    let library = site.pool.client();
    let mut model = Model { data: noise(LENGTH as u64, seed), random: RandomSequence::new(seed) };
    fs::write(site.file(0, NAME), &model.data).unwrap();
    let readers: Vec<File> =
        (0..2).map(|mount| File::open(site.file(mount, NAME)).unwrap()).collect();
    for round in 0..40 {
        // After some of them no lease is requested yet.
        let pause = [0, 10, 150, 300][model.below(4)];
        std::thread::sleep(Duration::from_millis(pause));
        let before = format!("{pause} ms before round {round} of seed {seed}, {nodes} nodes");
        readers.iter().for_each(|reader| model.check(reader, &before));
        let who = writers[model.below(writers.len())];
        let (name, change) = CHANGES[model.below(CHANGES.len())];
        change(&mut model, &site.file(who, NAME), &library);
        let what = format!("{name} by mount {who} in round {round} of seed {seed}, {nodes} nodes");
        readers.iter().for_each(|reader| model.check(reader, &what));
    }
    assert!(site.pool.count("lease") > 10);
    drop((readers, library));
    site.end();
}

#[test]
fn reads_between_changes_see_each_of_them() {
    for nodes in NODES {
        for seed in 1..3 {
            check_reads_between_changes(nodes, &FaultyNetwork::default(), &[0, 1], seed);
        }
    }
}

#[test]
fn reads_between_changes_see_each_of_them_over_a_bad_network() {
    for nodes in NODES {
        check_reads_between_changes(nodes, &FaultyNetwork::new(1500, 0), &[0, 1], 10);
        // An append whose reply is lost fails.
        check_reads_between_changes(nodes, &FaultyNetwork::new(300, 40), &[1], 11);
    }
}

#[test]
fn concurrent_reads_are_never_older_than_acknowledged_writes() {
    for nodes in NODES {
        for network in [FaultyNetwork::default(), FaultyNetwork::new(300, 60)] {
            let networks = [network.clone(), network, FaultyNetwork::default()];
            let site = HostMounts::new(NetworkPool::new(nodes), &networks);
            fs::write(site.file(2, NAME), vec![0; LENGTH]).unwrap();
            let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            std::thread::scope(|scope| {
                for mount in [0, 0, 1] {
                    let (site, acknowledged, stop) = (&site, &acknowledged, &stop);
                    scope.spawn(move || {
                        let file = File::open(site.file(mount, NAME)).unwrap();
                        let mut buffer = vec![0; SMALL];
                        for block in (0..(LENGTH / SMALL) as u64).cycle() {
                            if stop.load(Ordering::Acquire) {
                                break;
                            }
                            let before = acknowledged.load(Ordering::Acquire);
                            file.read_exact_at(&mut buffer, block * SMALL as u64).unwrap();
                            let value = u64::from(buffer.iter().copied().min().unwrap());
                            assert!(value >= before, "{value} was read after {before}");
                        }
                    });
                }
                let (start, mut value) = (Instant::now(), 0);
                for round in 0..120 {
                    let file = writable(&site.file(2, NAME));
                    // Some writers write again before they close the file.
                    for _ in 0..1 + round % 3 {
                        value += 1;
                        file.write_all_at(&vec![value; LENGTH], 0).unwrap();
                        acknowledged.store(u64::from(value), Ordering::Release);
                    }
                    drop(file);
                    if start.elapsed() > Duration::from_secs(5) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis([0, 5, 150, 400][round % 4]));
                }
                stop.store(true, Ordering::Release);
            });
            assert!(site.pool.count("lease") > 0);
            site.end();
        }
    }
}
