//! Reading ahead under read leases: what a client reads is never older than what another client was
//! acknowledged before, leases of dead clients expire, and sequential reads take few requests.

use crate::support;
use forebay_client::{ClientOptions, File, Fs};
use forebay_protocol::address::Address;
use forebay_protocol::message::{OpenMode, SetAttr};
use forebay_protocol::{Errno, Ino};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::INSTANCE;
use support::faulty_network::FaultyNetwork;
use support::host_mounts;
use support::network_pool::NetworkPool;
use support::process::key;

const READ: OpenMode =
    OpenMode { read: true, write: false, truncate: false, descriptor: false, ..OpenMode::NONE };
const WRITE: OpenMode = OpenMode { read: false, write: true, ..READ };
const FILE: &str = "file";
const SMALL: usize = 4 << 10;
const LENGTH: usize = 1 << 20;

fn open(fs: &Fs, mode: OpenMode) -> Arc<File> {
    fs.open_path(Path::new(FILE), mode).unwrap().file
}

fn write_whole(fs: &Fs, value: u8, length: usize) {
    let file = fs.create_path(Path::new(FILE), 0o644, WRITE).unwrap().file;
    file.write_all_at(&vec![value; length], 0).unwrap();
}

fn set_length(fs: &Fs, ino: Ino, length: u64) {
    let set = SetAttr { size: Some(length), ..SetAttr::default() };
    fs.set_attr(ino, None, set).unwrap();
}

fn read_whole(file: &File, piece: usize) -> Vec<u8> {
    host_mounts::read_whole(piece, |into, offset| file.read_at(into, offset).unwrap())
}

#[test]
fn sequential_small_reads_take_one_request_for_each_window() {
    for (nodes, piece) in [(1, SMALL), (1, 47_008), (2, SMALL)] {
        let pool = NetworkPool::new(nodes);
        let writer = pool.client();
        let data: Vec<u8> = (0..16 << 20).map(|index: u32| (index / 977) as u8).collect();
        let file = writer.create_path(Path::new(FILE), 0o644, WRITE).unwrap().file;
        file.write_all_at(&data, 0).unwrap();
        drop((file, writer));
        let reader = pool.client();
        let file = open(&reader, READ);
        let before = (pool.count("read"), pool.count("lease"));
        assert!(read_whole(&file, piece) == data, "{nodes} nodes, reads of {piece}");
        let (reads, leases) = (pool.count("read") - before.0, pool.count("lease") - before.1);
        // On several nodes each window has many stripes.
        let most = if nodes == 1 { 60 } else { 1200 };
        assert!(reads < most, "{reads} reads");
        assert!((1..60).contains(&leases), "{leases} requests for leases");
    }
}

/// Content of a file of its own: no two blocks are equal.
fn content(file: usize, blocks: u32) -> Vec<u8> {
    (0..blocks)
        .flat_map(|block| [(file as u32) << 24 | block; SMALL / 4])
        .flat_map(u32::to_le_bytes)
        .collect()
}

#[test]
fn more_files_are_read_in_turns_than_windows_may_be_pending() {
    const FILES: usize = 20;
    const BLOCKS: u32 = 300;
    for nodes in [1, 2] {
        let pool = NetworkPool::new(nodes);
        let (writer, reader) = (pool.client(), pool.client());
        let name = |file: usize| format!("file{file}");
        for file in 0..FILES {
            let created = writer.create_path(Path::new(&name(file)), 0o644, WRITE).unwrap().file;
            created.write_all_at(&content(file, BLOCKS), 0).unwrap();
        }
        let open = |file| reader.open_path(Path::new(&name(file)), READ).unwrap().file;
        let files: Vec<_> = (0..FILES).map(open).collect();
        let expected: Vec<_> = (0..FILES).map(|file| content(file, BLOCKS)).collect();
        let mut buffer = vec![0; SMALL];
        for block in 0..BLOCKS as usize {
            let range = block * SMALL..(block + 1) * SMALL;
            for (file, expected) in files.iter().zip(&expected) {
                assert_eq!(file.read_at(&mut buffer, range.start as u64), Ok(SMALL));
                assert!(buffer == expected[range.clone()], "{nodes} nodes, block {block}");
            }
        }
    }
}

#[test]
fn files_that_are_not_read_any_more_make_room_for_others() {
    const BLOCKS: u32 = 1024;
    let pool = NetworkPool::new(1);
    let writer = pool.client();
    let reader =
        pool.attach(ClientOptions { read_ahead_bytes: 2 << 20, ..ClientOptions::default() });
    let name = |file: usize| format!("file{file}");
    for file in 0..6 {
        let created = writer.create_path(Path::new(&name(file)), 0o644, WRITE).unwrap().file;
        created.write_all_at(&content(file, BLOCKS), 0).unwrap();
    }
    let open = |file| reader.open_path(Path::new(&name(file)), READ).unwrap().file;
    let mut kept = Vec::new();
    for round in 0..3 {
        let before = pool.count("read");
        for file in [2 * round, 2 * round + 1] {
            let opened = open(file);
            // Not to the end: the next window is on its way.
            let mut buffer = vec![0; SMALL];
            for block in 0..BLOCKS as usize * 3 / 4 {
                assert_eq!(opened.read_at(&mut buffer, (block * SMALL) as u64), Ok(SMALL));
            }
            kept.push(opened);
        }
        let reads = pool.count("read") - before;
        assert!(reads < 40, "{reads} reads in round {round}");
        // Longer than a file that is not read keeps its memory.
        std::thread::sleep(Duration::from_millis(1500));
    }
    // The first files are read on.
    for (file, opened) in kept.iter().enumerate() {
        assert!(read_whole(opened, SMALL) == content(file, BLOCKS));
    }
}

#[test]
fn repeated_reads_take_no_requests() {
    for nodes in [1, 3] {
        let pool = NetworkPool::new(nodes);
        let (blocks, fs) = (1500, pool.client());
        let data = content(0, blocks);
        let created = fs.create_path(Path::new(FILE), 0o644, WRITE).unwrap().file;
        created.write_all_at(&data, 0).unwrap();
        drop(created);
        std::thread::sleep(Duration::from_millis(150));
        let reader = pool.client();
        let file = open(&reader, READ);
        for piece in [SMALL, 5000] {
            assert!(read_whole(&file, piece) == data);
        }
        let before = pool.count("read");
        for piece in [SMALL, 47_008, 3000] {
            assert!(read_whole(&file, piece) == data);
        }
        let mut buffer = vec![0; SMALL];
        for block in (0..blocks as usize).rev() {
            assert_eq!(file.read_at(&mut buffer, (block * SMALL) as u64), Ok(SMALL));
            assert!(buffer == data[block * SMALL..][..SMALL]);
        }
        let reads = pool.count("read") - before;
        assert!(reads < 20, "{reads} reads, {nodes} nodes");
        // Beyond the end.
        for block in 0..10 {
            assert_eq!(file.read_at(&mut buffer, (data.len() + block * SMALL) as u64), Ok(0));
        }
        write_whole(&fs, 9, LENGTH);
        let after = read_whole(&file, SMALL);
        assert!(after[..LENGTH].iter().all(|byte| *byte == 9) && after[LENGTH..] == data[LENGTH..]);
    }
}

#[test]
fn reads_of_a_node_that_does_not_reply_fail_in_time() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let (pool, network) = (NetworkPool::new(1), FaultyNetwork::default());
    write_whole(&pool.client(), 1, 8 << 20);
    let system = Arc::new(network.clone());
    let reader =
        pool.attach(ClientOptions { system, timeout: TIMEOUT, ..ClientOptions::default() });
    let file = open(&reader, READ);
    let mut buffer = vec![0; SMALL];
    let mut blocks = (0..).map(|block| block * SMALL as u64);
    for offset in blocks.by_ref().take(100) {
        assert_eq!(file.read_at(&mut buffer, offset), Ok(SMALL));
    }
    network.cut(true);
    let failed = blocks.find_map(|offset| {
        let began = Instant::now();
        file.read_at(&mut buffer, offset).err().map(|errno| (errno, began.elapsed()))
    });
    let (errno, took) = failed.unwrap();
    assert_eq!(errno, Errno::EIO);
    assert!(took < TIMEOUT * 3 / 2, "{took:?}");
    network.cut(false);
    assert!(read_whole(&file, SMALL).iter().all(|byte| *byte == 1));
}

#[test]
fn reads_that_end_within_a_pending_window_disturb_no_others() {
    let pool = NetworkPool::new(1);
    let (blocks, fs) = (4096, pool.client());
    let data = content(0, blocks);
    let created = fs.create_path(Path::new(FILE), 0o644, WRITE).unwrap().file;
    created.write_all_at(&data, 0).unwrap();
    drop(created);
    for end in (1..12).map(|step| step * 61 * SMALL) {
        let file = open(&fs, READ);
        let mut buffer = vec![0; SMALL];
        let mut read = |at: usize| {
            assert_eq!(file.read_at(&mut buffer, at as u64), Ok(SMALL));
            assert!(buffer == data[at..at + SMALL], "at {at}, end {end}");
        };
        (0..end).step_by(SMALL).for_each(&mut read);
        // Elsewhere, then sequentially from there, and then the file is closed.
        (end + (5 << 20)..end + (6 << 20)).step_by(SMALL).for_each(&mut read);
    }
    write_whole(&fs, 7, LENGTH);
    let after = read_whole(&open(&fs, READ), SMALL);
    assert!(after[..LENGTH].iter().all(|byte| *byte == 7) && after[LENGTH..] == data[LENGTH..]);
}

#[test]
fn random_reads_take_one_request_each_and_no_lease() {
    let pool = NetworkPool::new(1);
    write_whole(&pool.client(), 1, LENGTH);
    let reader = pool.client();
    let file = open(&reader, READ);
    let before = pool.count("read");
    let mut buffer = vec![0; SMALL];
    for index in 0..100_u64 {
        let block = (index * 97 + 13) % (LENGTH / SMALL) as u64;
        assert_eq!(file.read_at(&mut buffer, block * SMALL as u64), Ok(SMALL));
    }
    // A request is counted just after its reply.
    while pool.count("read") - before < 100 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((pool.count("read") - before, pool.count("lease")), (100, 0));
}

#[test]
fn file_that_is_open_for_writing_is_not_leased() {
    let pool = NetworkPool::new(1);
    let (writer, reader) = (pool.client(), pool.client());
    write_whole(&writer, 1, LENGTH);
    let writes = open(&writer, WRITE);
    let reads = open(&reader, READ);
    for value in 2..20 {
        assert!(read_whole(&reads, SMALL).iter().all(|byte| *byte == value - 1));
        writes.write_all_at(&vec![value; LENGTH], 0).unwrap();
    }
}

/// A change of the file, to bytes of this value. Returns the new length.
type Change = fn(&Fs, u8) -> usize;

/// Actions of a client between two reads of another one.
fn changes() -> Vec<(&'static str, Change)> {
    vec![
        ("open, write and close", |fs, value| {
            open(fs, WRITE).write_all_at(&vec![value; LENGTH], 0).unwrap();
            LENGTH
        }),
        ("create and truncate", |fs, value| {
            let mode = OpenMode { truncate: true, ..WRITE };
            let file = fs.create_path(Path::new(FILE), 0o644, mode).unwrap().file;
            file.write_all_at(&vec![value; LENGTH / 2], 0).unwrap();
            LENGTH / 2
        }),
        ("extend", |fs, value| {
            let file = open(fs, WRITE);
            file.write_all_at(&vec![value; LENGTH / 2], 0).unwrap();
            file.append(&vec![value; LENGTH / 2]).unwrap();
            LENGTH
        }),
        ("truncate without an open file", |fs, value| {
            write_whole(fs, value, LENGTH);
            set_length(fs, fs.resolve(Path::new(FILE), true).unwrap().ino, 100_000);
            100_000
        }),
        ("restore the length", |fs, value| {
            let mode = OpenMode { truncate: true, ..WRITE };
            let file = open(fs, mode);
            file.write_all_at(&vec![value; LENGTH], 0).unwrap();
            LENGTH
        }),
    ]
}

#[test]
fn reads_follow_acknowledged_changes_of_another_client() {
    for nodes in [1, 3] {
        let pool = NetworkPool::new(nodes);
        let (writer, reader) = (pool.client(), pool.client());
        write_whole(&writer, 0, LENGTH);
        let file = open(&reader, READ);
        let mut buffer = vec![0; SMALL];
        // The reader changes the file, too: its own lease is recalled.
        for (round, fs) in [&writer, &writer, &reader].into_iter().enumerate() {
            for (index, (name, change)) in changes().into_iter().enumerate() {
                let value = (round * 10 + index + 1) as u8;
                // The last lease was refused while the file was open for writing.
                std::thread::sleep(Duration::from_millis(150));
                read_whole(&file, SMALL);
                let length = change(fs, value);
                // In the middle of what was read ahead.
                file.read_at(&mut buffer, 40_000).unwrap();
                assert!(buffer.iter().all(|byte| *byte == value), "{name}: old data");
                let all = read_whole(&file, SMALL);
                assert_eq!(all.len(), length, "{name}, {nodes} nodes");
                assert!(all.iter().all(|byte| *byte == value), "{name}, {nodes} nodes");
            }
        }
        assert!(pool.count("lease") > 10);
    }
}

#[test]
fn concurrent_reads_are_never_older_than_acknowledged_writes() {
    let pool = NetworkPool::new(1);
    let writer = pool.client();
    write_whole(&writer, 0, LENGTH);
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = pool.client();
                let mut buffer = vec![0; SMALL];
                while !stop.load(Ordering::Acquire) {
                    let file = open(&reader, READ);
                    for block in 0..(LENGTH / SMALL) as u64 {
                        let before = acknowledged.load(Ordering::Acquire);
                        file.read_at(&mut buffer, block * SMALL as u64).unwrap();
                        let value = u64::from(buffer.iter().copied().min().unwrap());
                        assert!(value >= before, "{value} was read after {before}");
                    }
                }
            });
        }
        for value in 1..60 {
            open(&writer, WRITE).write_all_at(&vec![value; LENGTH], 0).unwrap();
            acknowledged.store(u64::from(value), Ordering::Release);
            std::thread::sleep(Duration::from_millis(u64::from(value) % 5 * 10));
        }
        stop.store(true, Ordering::Release);
    });
    assert!(pool.count("lease") > 0);
}

/// The address of the daemon for the test `reader_process`.
const DAEMON: &str = "FOREBAY_TEST_READ_LEASES_DAEMON";

#[test]
#[ignore = "not a test: a client that another test stops"]
fn reader_process() {
    let Ok(address) = std::env::var(DAEMON) else {
        return;
    };
    let address: Address = address.parse().unwrap();
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    let reader = Fs::attach(address, INSTANCE, options).unwrap();
    let file = open(&reader, READ);
    let mut buffer = vec![0; SMALL];
    for block in (0..(LENGTH / SMALL) as u64).cycle() {
        file.read_at(&mut buffer, block * SMALL as u64).unwrap();
    }
}

#[test]
fn stopped_client_does_not_delay_a_writer_for_ever() {
    let pool = NetworkPool::new(1);
    let writer = pool.client();
    write_whole(&writer, 1, LENGTH);
    let address = pool.address().to_string();
    let mut reader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "read_leases::reader_process"])
        .env(DAEMON, address)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while pool.count("lease") < 2 {
        assert!(start.elapsed() < Duration::from_secs(30), "the client gets no lease");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&reader);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let start = Instant::now();
    open(&writer, WRITE).write_all_at(&[2; SMALL], 0).unwrap();
    let delay = start.elapsed();
    reader.kill().unwrap();
    reader.wait().unwrap();
    // Much longer than a lease lasts, for a machine with other work, and shorter than a session.
    assert!(delay < Duration::from_secs(20), "{delay:?}");
}
