//! Replies to the kernel of a mount that a recall of its cache overtakes: no program sees an attribute that
//! is older than an acknowledged change, and changes wait only where the kernel needs the time.

use crate::support;
use forebay_client::Fs;
use forebay_protocol::message::SetAttr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Pool, READ, READ_WRITE, Temporary, attach, mount_at};

/// Longer than a session gets no lease after its lease was recalled.
const AFTER_DENIAL: Duration = Duration::from_millis(1100);
/// Time that a mount gives the processes that have received a reply which the kernel does not compare.
const SETTLE_TIME: Duration = Duration::from_millis(50);
const FILES: usize = 300;
const READERS: usize = 6;
/// Threads that keep processors busy, so that readers are not always running when a reply comes.
const BUSY: usize = 4;
const OLD: u32 = 0o600;
const NEW: u32 = 0o644;

fn name(round: u64, number: usize) -> String {
    format!("{round}-{number}")
}

fn keep_busy(is_over: &AtomicBool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_over.load(Ordering::Relaxed) && Instant::now() < end {}
}

fn change_mode(library: &Fs, name: &str, mode: u32) {
    let file = library.open_path(Path::new(name), READ).unwrap();
    let set = SetAttr { mode: Some(mode as u16), ..SetAttr::default() };
    library.set_attr(file.attr.ino, None, set).unwrap();
}

/// Programs open files that the kernel does not have yet, while a client changes the modes of all of them.
#[test]
fn new_inodes_of_the_kernel_have_no_attributes_from_before_a_change() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let path = temporary.dir("mnt");
    let mounted = mount_at(attach(pool.nodes()), &path);
    let library = attach(pool.nodes());
    for round in 0..6 {
        let names: Vec<String> = (0..FILES).map(|number| name(round, number)).collect();
        for name in &names {
            drop(library.create_path(Path::new(name), OLD as u16, READ_WRITE).unwrap());
        }
        std::thread::sleep(AFTER_DENIAL);
        let (start, is_over) = (Barrier::new(READERS + 1), AtomicBool::new(false));
        let opened: Vec<Vec<(&String, File)>> = std::thread::scope(|scope| {
            let open = |reader: usize| {
                let (start, names, path) = (&start, &names, &path);
                move || {
                    start.wait();
                    let own = names.iter().skip(reader).step_by(READERS);
                    own.map(|name| (name, File::open(path.join(name)).unwrap())).collect()
                }
            };
            let readers: Vec<_> = (0..READERS).map(|reader| scope.spawn(open(reader))).collect();
            for _ in 0..BUSY {
                scope.spawn(|| keep_busy(&is_over));
            }
            start.wait();
            std::thread::sleep(Duration::from_micros(500 * (round + 1)));
            for name in names.iter().rev() {
                change_mode(&library, name, NEW);
            }
            let opened = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
            is_over.store(true, Ordering::Relaxed);
            opened
        });
        for (name, file) in opened.iter().flatten() {
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, NEW, "mode of {name} in round {round}");
        }
    }
    support::unmount(mounted);
}

/// The kernel has the inodes, and compares the versions of the replies.
#[test]
fn change_after_lookups_of_known_inodes_does_not_wait_for_programs() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let path = temporary.dir("mnt");
    let mounted = mount_at(attach(pool.nodes()), &path);
    let library = attach(pool.nodes());
    drop(library.create_path(Path::new("file"), OLD as u16, READ_WRITE).unwrap());
    let mut shortest = Duration::MAX;
    for mode in 0o600..0o607 {
        let open = File::open(path.join("file")).unwrap();
        std::thread::sleep(AFTER_DENIAL);
        assert!(!path.join("absent").exists());
        fs::metadata(path.join("file")).unwrap();
        let started = Instant::now();
        change_mode(&library, "file", mode);
        shortest = shortest.min(started.elapsed());
        assert_eq!(open.metadata().unwrap().permissions().mode() & 0o777, mode);
        assert_eq!(fs::metadata(path.join("file")).unwrap().permissions().mode() & 0o777, mode);
    }
    support::unmount(mounted);
    assert!(shortest < SETTLE_TIME / 2, "a change took {shortest:?}");
}
