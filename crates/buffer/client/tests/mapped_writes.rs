//! One thread writes to pages that another one changes through a memory map: no change is lost, as on a
//! local file system. With FUSE passthrough, without it, and on three storage nodes.
//!
//! Needs root, for mounts.

use crate::support;
use forebay_client::MountOptions;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use support::{Mounted, Temporary};

/// The directory of the program.
const DIRECTORY: &str = "FOREBAY_TEST_MAPPED_WRITES_DIRECTORY";
const PAGE: usize = 4096;
const PAGES: usize = 500;
/// Numbers that are written to each page, and stored in it.
const WRITTEN: u64 = 0x1111_1111_1111_1111;
const WORDS: usize = PAGE / 8;
const WRITTEN_AT: usize = 100;
const STORED_AT: usize = 300;

/// A map of a whole file as atomic numbers.
struct Map {
    start: *mut std::ffi::c_void,
}

// SAFETY: it is used as atomic numbers only, and unmapped when it is dropped.
unsafe impl Sync for Map {}

impl Map {
    fn new(file: &File) -> Map {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which nothing else refers to.
        let start = unsafe {
            mmap(std::ptr::null_mut(), PAGES * PAGE, access, MapFlags::SHARED, file, 0).unwrap()
        };
        Map { start }
    }

    fn word(&self, page: usize, word: usize) -> &AtomicU64 {
        assert!(page < PAGES && word < WORDS);
        // SAFETY: within the mapping, which lives as long as `self`, and aligned.
        unsafe { &*self.start.cast::<AtomicU64>().add(page * WORDS + word) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; references to it have ended.
        unsafe { munmap(self.start, PAGES * PAGE).unwrap() }
    }
}

fn check(directory: &Path) {
    let path = directory.join("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&vec![0; PAGES * PAGE], 0).unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    let map = Map::new(&file);
    let page = AtomicUsize::new(0);
    let mut stored = vec![0; PAGES];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..PAGES {
                let at = number * PAGE + WRITTEN_AT * 8;
                writer.write_all_at(&WRITTEN.to_ne_bytes(), at as u64).unwrap();
                page.store(number + 1, Ordering::Release);
            }
        });
        // As long as a page is being written to, it is changed.
        loop {
            let number = page.load(Ordering::Acquire);
            let Some(last) = stored.get_mut(number) else {
                break;
            };
            *last += 1;
            map.word(number, STORED_AT).store(*last, Ordering::Relaxed);
        }
    });
    let lost = |word: usize, expected: &dyn Fn(usize) -> u64| {
        let wrong = |page: &usize| map.word(*page, word).load(Ordering::Relaxed) != expected(*page);
        (0..PAGES).filter(wrong).count()
    };
    assert_eq!(lost(WRITTEN_AT, &|_| WRITTEN), 0, "writes are lost in the map");
    assert_eq!(lost(STORED_AT, &|page| stored[page]), 0, "stores are lost in the map");
    drop((map, file, writer));
    let data = std::fs::read(&path).unwrap();
    for (number, page) in data.chunks(PAGE).enumerate() {
        let word = |at: usize| u64::from_ne_bytes(page[at * 8..at * 8 + 8].try_into().unwrap());
        let expected = (WRITTEN, stored[number]);
        assert_eq!((word(WRITTEN_AT), word(STORED_AT)), expected, "page {number}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "not a test: the program of the other test"]
fn program() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        check(Path::new(&directory));
    }
}

/// Runs the program in a process without a mount. A thread that stores in a page waits for the page's
/// writeback with the memory map of its process locked, and the threads of a mount in the same process may
/// need that lock to carry out the writeback.
fn run_program(directory: &Path) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "mapped_writes::program"])
        .env(DIRECTORY, directory)
        .status();
    assert!(status.unwrap().success(), "{}", directory.display());
}

#[test]
fn writes_beside_stores_through_a_map_are_not_lost() {
    run_program(&Temporary::new().0);
    for (nodes, passthrough) in [(1, true), (1, false), (3, true)] {
        eprintln!("{nodes} nodes, passthrough: {passthrough}");
        let options = MountOptions { passthrough, ..MountOptions::default() };
        let mounted = Mounted::with_options(nodes, 1 << 28, &options);
        for _ in 0..3 {
            run_program(&mounted.path);
        }
    }
}
