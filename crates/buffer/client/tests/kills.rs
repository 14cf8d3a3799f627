//! Random operations against a local directory as the oracle, while the storage daemon is killed
//! and started again: by descriptor on the same host, and over TCP as from another one.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use forebay_client::{File, Fs, Options};
use forebay_wire::message::{OnExisting, OpenMode, SetAttr};
use forebay_wire::{Errno, Ino};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::process::{Process, be_the_daemon, key};
use support::{INSTANCE, Temporary, make_instance};

#[test]
#[ignore = "not a test: the daemon of the other tests"]
fn daemon_process() {
    be_the_daemon();
}

/// xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }
}

struct Pair {
    file: Arc<File>,
    twin: std::fs::File,
}

/// An instance and a local directory to which the same is done.
struct Twins {
    fs: Fs,
    local: PathBuf,
    descriptor: bool,
    open: BTreeMap<String, Pair>,
    random: Random,
}

const MOST: u64 = 300_000;

impl Twins {
    fn act(&mut self) {
        let name = format!("f{}", self.random.below(6));
        let path = self.local.join(&name);
        let offset = self.random.below(MOST);
        let length = self.random.below(40_000) as usize;
        let value = self.random.below(255) as u8 + 1;
        let Some(pair) = self.open.get(&name) else {
            return self.open_file(&name);
        };
        match self.random.below(14) {
            0..5 => {
                let data = vec![value; length];
                pair.file.write_all_at(&data, offset).unwrap();
                pair.twin.write_all_at(&data, offset).unwrap();
            }
            5..8 => {
                let (mut ours, mut theirs) = (vec![0; length], vec![0; length]);
                let count = pair.file.read_at(&mut ours, offset).unwrap();
                assert_eq!(
                    count,
                    pair.twin.read_at(&mut theirs, offset).unwrap(),
                    "{name}"
                );
                assert!(ours == theirs, "{name}: {length} bytes at {offset} differ");
            }
            8 => {
                let set = SetAttr {
                    size: Some(offset),
                    ..SetAttr::default()
                };
                self.fs
                    .set_attr(pair.file.ino(), Some(&pair.file), set)
                    .unwrap();
                pair.twin.set_len(offset).unwrap();
            }
            9 => {
                // A kill during an append over TCP leaves it open whether it was carried out, so
                // appends have a test of their own.
                let end = self.fs.get_attr(pair.file.ino()).unwrap().size;
                assert_eq!(end, pair.twin.metadata().unwrap().len(), "{name}");
                pair.file.write_all_at(&[value; 100], end).unwrap();
                pair.twin.write_all_at(&[value; 100], end).unwrap();
            }
            10 => pair.file.sync(self.random.below(2) == 0).unwrap(),
            11 => {
                // Open files stay usable under their new name and when they have none.
                let to = format!("f{}", self.random.below(6));
                let places = ((Ino::ROOT, name.as_bytes()), (Ino::ROOT, to.as_bytes()));
                if self.fs.lookup(Ino::ROOT, name.as_bytes()).is_ok() {
                    self.fs
                        .rename(places.0, places.1, OnExisting::Replace)
                        .unwrap();
                    std::fs::rename(&path, self.local.join(&to)).unwrap();
                }
            }
            12 => {
                let ours = self.fs.unlink(Ino::ROOT, name.as_bytes());
                let theirs = std::fs::remove_file(&path);
                assert_eq!(
                    ours.map_err(|e| e.0),
                    theirs.map_err(|e| e.raw_os_error().unwrap())
                );
            }
            _ => {
                self.open.remove(&name);
            }
        }
    }

    fn open_file(&mut self, name: &str) {
        let mode = OpenMode {
            read: true,
            write: true,
            truncate: false,
            descriptor: self.descriptor,
        };
        let opened = self
            .fs
            .create(Ino::ROOT, name.as_bytes(), 0o644, false, mode)
            .unwrap();
        let existed = self.local.join(name).exists();
        assert_eq!(opened.created, !existed, "{name}");
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let twin = options.open(self.local.join(name)).unwrap();
        self.open.insert(
            name.to_owned(),
            Pair {
                file: opened.file,
                twin,
            },
        );
    }

    fn compare_all(&mut self) {
        let page = self.fs.read_dir(Ino::ROOT, 0, 100_000, true).unwrap();
        let mut ours: Vec<_> = page
            .entries
            .iter()
            .map(|e| {
                (
                    String::from_utf8(e.name.clone()).unwrap(),
                    e.attr.unwrap().size,
                )
            })
            .collect();
        ours.sort();
        let mut theirs: Vec<_> = std::fs::read_dir(&self.local)
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| {
                (
                    e.file_name().into_string().unwrap(),
                    e.metadata().unwrap().len(),
                )
            })
            .collect();
        theirs.sort();
        assert_eq!(ours, theirs);
        let mode = OpenMode {
            read: true,
            write: false,
            truncate: false,
            descriptor: self.descriptor,
        };
        for entry in page.entries {
            let name = String::from_utf8(entry.name).unwrap();
            let file = self.fs.open(entry.ino, mode).unwrap().file;
            let mut bytes = vec![0; MOST as usize * 2];
            let count = file.read_at(&mut bytes, 0).unwrap();
            assert!(
                bytes[..count] == std::fs::read(self.local.join(&name)).unwrap(),
                "{name}"
            );
        }
    }
}

fn operations(remote: bool, seed: u64) {
    let temporary = Temporary::new();
    let mut process = Process::start(&temporary.dir("flash"));
    make_instance(process.local(), 1 << 30);
    let address = if remote {
        process.remote()
    } else {
        process.local()
    };
    let options = Options {
        key: Some(key()),
        ..Options::default()
    };
    let fs = Fs::attach(address, INSTANCE, options).unwrap();
    let local = temporary.dir("twin");
    let random = Random(seed);
    let mut twins = Twins {
        fs,
        local,
        descriptor: !remote,
        open: BTreeMap::new(),
        random,
    };
    let start = Instant::now();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stop = &stop;
    std::thread::scope(|scope| {
        // The end of the operations, also by a panic, ends the killing.
        struct Ends<'a>(&'a std::sync::atomic::AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, std::sync::atomic::Ordering::Release);
            }
        }
        let process = &mut process;
        let killer = scope.spawn(move || {
            let mut kills = 0;
            let mut pauses = Random(seed + 1);
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(50 + pauses.below(250)));
                process.kill();
                std::thread::sleep(Duration::from_millis(pauses.below(50)));
                process.restart();
                kills += 1;
            }
            kills
        });
        let ends = Ends(stop);
        let mut done = 0;
        while start.elapsed() < Duration::from_secs(5) {
            twins.act();
            done += 1;
        }
        drop(ends);
        let kills: u32 = killer.join().unwrap();
        eprintln!("{done} operations, {kills} kills");
        assert!(kills > 3 && done > 100);
    });
    twins.compare_all();
    drop(twins);
}

#[test]
fn random_operations_by_descriptor_survive_kills() {
    operations(false, 11);
}

#[test]
fn random_operations_over_tcp_survive_kills() {
    operations(true, 22);
}

#[test]
fn who_does_not_know_the_key_is_refused() {
    let temporary = Temporary::new();
    let process = Process::start(&temporary.dir("flash"));
    make_instance(process.local(), 1 << 20);
    let other = forebay_wire::auth::PoolKey::new(b"another key, not ours").unwrap();
    for key in [None, Some(other)] {
        let options = Options {
            key,
            patience: Duration::ZERO,
            ..Options::default()
        };
        let refused = Fs::attach(process.remote(), INSTANCE, options).map(|_| ());
        assert_eq!(refused, Err(Errno::EKEYREJECTED));
    }
}

#[test]
fn an_idle_daemon_uses_no_processor_time() {
    let temporary = Temporary::new();
    let process = Process::start(&temporary.dir("flash"));
    make_instance(process.local(), 1 << 20);
    let fs = support::attach(process.local());
    std::thread::sleep(Duration::from_millis(1500));
    let before = process.cpu();
    std::thread::sleep(Duration::from_secs(3));
    assert!(process.cpu() - before <= Duration::from_millis(10));
    drop(fs);
}

#[test]
fn appends_over_tcp_keep_together() {
    let temporary = Temporary::new();
    let process = Process::start(&temporary.dir("flash"));
    make_instance(process.local(), 1 << 30);
    let options = Options {
        key: Some(key()),
        ..Options::default()
    };
    let fs = Fs::attach(process.remote(), INSTANCE, options).unwrap();
    let mode = OpenMode {
        read: true,
        write: true,
        ..OpenMode::default()
    };
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let fs = &fs;
            scope.spawn(move || {
                let file = fs
                    .create(Ino::ROOT, b"log", 0o644, false, mode)
                    .unwrap()
                    .file;
                for _ in 0..200 {
                    assert_eq!(file.append(&[writer; 53]).unwrap(), 53);
                }
            });
        }
    });
    let file = fs
        .create(Ino::ROOT, b"log", 0o644, false, mode)
        .unwrap()
        .file;
    let mut bytes = vec![0; 100_000];
    let count = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(count, 4 * 200 * 53);
    assert!(
        bytes[..count]
            .chunks(53)
            .all(|line| line.iter().all(|b| *b == line[0]))
    );
}
