//! The capacity of an instance over storage nodes that do not know of each other's use: each has a share of
//! it, and nodes lend each other parts of their shares through clients.

use crate::support;
use forebay_client::{ClientOptions, File, Fs};
use forebay_policy::layout::Layout;
use forebay_protocol::Errno;
use forebay_protocol::message::OpenMode;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::network_pool::NetworkPool;
use support::{READ_WRITE, STRIPE};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const NODES: u16 = 3;
/// Capacity of the instance.
const CAPACITY: u64 = NODES as u64 * 8 * MIB;
/// The parts of the nodes' capacities beyond their shares: two stripes of each.
const SPARE: u64 = NODES as u64 * 2 * STRIPE;
const REMOTE: OpenMode = OpenMode { descriptor: false, ..READ_WRITE };

/// Creates a file whose first stripe is on `node`.
fn create_on(fs: &Fs, name: &str, node: u16) -> (PathBuf, Arc<File>) {
    let layout = Layout::new(NODES, STRIPE).unwrap();
    let mut names = (0..100).map(|attempt| PathBuf::from(format!("{name}.{attempt}")));
    let found = names.find_map(|path| {
        let file = fs.create_path(&path, 0o644, REMOTE).unwrap().file;
        (layout.node_of_offset(file.ino(), 0).0 == node).then_some((path, file))
    });
    found.unwrap()
}

/// Writes to the end of a file, in calls of `bytes`, until there is no space.
fn fill(file: &File, bytes: usize) {
    let (data, mut at) = (vec![1; bytes], 0);
    loop {
        match file.write_at(&data, at) {
            Ok(count) => at += count as u64,
            Err(errno) => {
                assert_eq!(errno, Errno::ENOSPC);
                return;
            }
        }
        assert!(at <= CAPACITY, "the instance is never full");
    }
}

/// Writes a stripe; the storage node's file system may need some blocks for its maps.
fn write_most(file: &File, case: &str) {
    let written = file.write_at(&[1; STRIPE as usize], 0);
    assert!(written.is_ok_and(|count| count as u64 >= STRIPE / 2), "{case}: {written:?}");
}

fn used(fs: &Fs) -> u64 {
    let statfs = fs.statfs().unwrap();
    assert!(statfs.used <= statfs.capacity, "{} of {} bytes", statfs.used, statfs.capacity);
    statfs.used
}

/// As generic/275 of xfstests.
#[test]
fn space_that_is_freed_on_one_node_can_be_used_on_every_other() {
    for delays_writes in [false, true] {
        let pool = NetworkPool::with_capacity(NODES.into(), CAPACITY);
        let fs = pool.attach(ClientOptions { delays_writes, ..ClientOptions::default() });
        let stripe = [1; STRIPE as usize];
        let mut cases = Vec::new();
        for (freed, used) in (0..NODES).flat_map(|freed| (0..NODES).map(move |used| (freed, used)))
        {
            let create_on =
                |name: &str, node| create_on(&fs, &format!("{name}{freed}{used}"), node);
            let (small, file) = create_on("small", freed);
            file.write_all_at(&stripe, 0).unwrap();
            // They have no space yet.
            let (later, last) = (create_on("later", used), create_on("last", freed).1);
            cases.push((format!("{delays_writes} {freed} {used}"), small, later, last));
        }
        fill(&create_on(&fs, "large", 0).1, 100 * KIB as usize);
        for node in 0..NODES {
            fill(&create_on(&fs, "filler", node).1, BLOCK as usize);
        }
        let full = used(&fs);
        assert!(full + SPARE + 64 * KIB > CAPACITY, "{full} bytes are all");
        for (case, small, (path, later), last) in cases {
            assert_eq!(later.write_at(&stripe[..100], 0), Err(Errno::ENOSPC), "{case}");
            fs.unlink_path(&small).unwrap();
            write_most(&later, &case);
            fs.unlink_path(&path).unwrap();
            drop(later);
            write_most(&last, &case);
        }
        assert!(used(&fs) <= full + 64 * KIB, "no more is used than was freed");
    }
}

/// A node never has more than its capacity, and one that is full does not ask others all the time.
#[test]
fn file_that_is_on_one_node_only_gets_the_capacity_of_that_node() {
    let pool = NetworkPool::with_capacity(NODES.into(), CAPACITY);
    let fs = pool.client();
    let (_, file) = create_on(&fs, "file", 1);
    let share = CAPACITY / u64::from(NODES);
    let rounds = share / STRIPE;
    for round in 0..rounds {
        let at = round * u64::from(NODES) * STRIPE;
        let written = file.write_all_at(&[1; STRIPE as usize], at);
        assert!(written.is_ok() || round + 1 == rounds, "{written:?} in round {round}");
    }
    let asked = || pool.count("lend_space") + pool.count("statfs");
    let before = asked();
    let started = std::time::Instant::now();
    for _ in 0..1000 {
        let written = file.write_at(&[1; BLOCK as usize], rounds * u64::from(NODES) * STRIPE);
        assert_eq!(written, Err(Errno::ENOSPC));
    }
    let times = started.elapsed().as_millis() as u64 / 100 + 1;
    assert!(asked() - before <= times * 2 * u64::from(NODES), "{} requests", asked() - before);
    assert!(used(&fs) + 64 * KIB > share, "the node is full");
    assert!(fs.create_path(Path::new("another"), 0o644, REMOTE).is_ok());
}
