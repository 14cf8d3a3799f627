//! Random operations, compared with a local directory, while storage daemons are killed and
//! restarted: by descriptor on the same host, and over TCP as from another host, on one storage node
//! and on three.

use crate::support;
use forebay_client::{ClientOptions, File, Fs};
use forebay_protocol::message::{OnExisting, OpenMode, SetAttr};
use forebay_protocol::{Errno, FileKind, Ino};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::process::{Process, key};
use support::striped_admin::StripedAdmin;
use support::{INSTANCE, STRIPE, Temporary, make_instance, spec};

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

/// An instance and a local directory with the same operations.
struct Twins {
    fs: Fs,
    local: PathBuf,
    descriptor: bool,
    /// Directories by path, the root first.
    dirs: Vec<(String, Ino)>,
    open: BTreeMap<String, Pair>,
    random: Random,
}

const MOST: u64 = 300_000;

impl Twins {
    fn act(&mut self) {
        let (dir, name) = self.name("f", 4);
        let path = self.local.join(&name);
        let offset = self.random.below(MOST);
        let length = self.random.below(40_000) as usize;
        let value = self.random.below(255) as u8 + 1;
        let Some(pair) = self.open.get(&name) else {
            return self.open_file(dir, &name);
        };
        match self.random.below(16) {
            0..5 => {
                let data = vec![value; length];
                pair.file.write_all_at(&data, offset).unwrap();
                pair.twin.write_all_at(&data, offset).unwrap();
            }
            5..8 => {
                let (mut actual, mut expected) = (vec![0; length], vec![0; length]);
                let count = pair.file.read_at(&mut actual, offset).unwrap();
                assert_eq!(count, pair.twin.read_at(&mut expected, offset).unwrap(), "{name}");
                assert!(actual == expected, "{name}: {length} bytes at {offset} differ");
            }
            8 => {
                let set = SetAttr { size: Some(offset), ..SetAttr::default() };
                self.fs.set_attr(pair.file.ino(), Some(&pair.file), set).unwrap();
                pair.twin.set_len(offset).unwrap();
            }
            9 => {
                // After a kill during an append over TCP its outcome is unknown, so appends have
                // their own test.
                let end = self.fs.get_attr(pair.file.ino()).unwrap().size;
                assert_eq!(end, pair.twin.metadata().unwrap().len(), "{name}");
                pair.file.write_all_at(&[value; 100], end).unwrap();
                pair.twin.write_all_at(&[value; 100], end).unwrap();
            }
            10 => pair.file.fsync(self.random.below(2) == 0).unwrap(),
            11 => {
                // Open files stay usable after a rename and a removal.
                let (to_dir, to) = self.name("f", 4);
                let actual =
                    self.fs.rename((dir, last(&name)), (to_dir, last(&to)), OnExisting::Replace);
                compare(actual, std::fs::rename(&path, self.local.join(&to)));
            }
            12 => {
                let actual = self.fs.unlink(dir, last(&name));
                compare(actual, std::fs::remove_file(&path));
            }
            13..15 => self.act_on_directories(),
            _ => {
                self.open.remove(&name);
            }
        }
    }

    /// A directory and the path of an entry in it.
    fn name(&mut self, kind: &str, count: u64) -> (Ino, String) {
        let (path, ino) = &self.dirs[self.random.below(self.dirs.len() as u64) as usize];
        (*ino, format!("{path}{kind}{}", self.random.below(count)))
    }

    /// Creates, removes and renames empty directories.
    fn act_on_directories(&mut self) {
        let (dir, name) = self.name("e", 2);
        let path = self.local.join(&name);
        match self.random.below(3) {
            0 => {
                let actual = self.fs.mkdir(dir, last(&name), 0o755).map(|_| ());
                compare(actual, std::fs::create_dir(&path));
            }
            1 => compare(self.fs.rmdir(dir, last(&name)), std::fs::remove_dir(&path)),
            _ => {
                let (to_dir, to) = self.name("e", 2);
                let actual =
                    self.fs.rename((dir, last(&name)), (to_dir, last(&to)), OnExisting::Replace);
                compare(actual, std::fs::rename(&path, self.local.join(&to)));
            }
        }
    }

    fn open_file(&mut self, dir: Ino, name: &str) {
        let mode = OpenMode {
            read: true,
            write: true,
            truncate: false,
            descriptor: self.descriptor,
            ..OpenMode::NONE
        };
        let opened = self.fs.create(dir, last(name), 0o644, false, mode).unwrap();
        let existed = self.local.join(name).exists();
        assert_eq!(opened.created, !existed, "{name}");
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let twin = options.open(self.local.join(name)).unwrap();
        self.open.insert(name.to_owned(), Pair { file: opened.file, twin });
    }

    fn compare_all(&mut self) {
        for (path, ino) in self.dirs.clone() {
            self.compare(&path, ino);
        }
    }

    fn compare(&self, path: &str, dir: Ino) {
        let page = self.fs.read_dir(dir, 0, 100_000, true).unwrap();
        let mut actual: Vec<_> = page
            .entries
            .iter()
            .map(|e| {
                let attr = e.attr.unwrap();
                let file = attr.kind == FileKind::File;
                let name = String::from_utf8(e.name.clone()).unwrap();
                (name, attr.nlink, if file { attr.size } else { 0 })
            })
            .collect();
        actual.sort();
        let mut expected: Vec<_> = std::fs::read_dir(self.local.join(path))
            .unwrap()
            .map(|e| e.unwrap())
            .map(|e| {
                let meta = e.metadata().unwrap();
                let size = if meta.is_file() { meta.len() } else { 0 };
                let name = e.file_name().into_string().unwrap();
                (name, meta.nlink() as u32, size)
            })
            .collect();
        expected.sort();
        assert_eq!(actual, expected);
        let mode = OpenMode {
            read: true,
            write: false,
            truncate: false,
            descriptor: self.descriptor,
            ..OpenMode::NONE
        };
        for entry in page.entries.iter().filter(|e| e.kind == FileKind::File) {
            let name = format!("{path}{}", String::from_utf8_lossy(&entry.name));
            let file = self.fs.open(entry.ino, mode).unwrap().file;
            let mut bytes = vec![0; MOST as usize * 2];
            let count = file.read_at(&mut bytes, 0).unwrap();
            assert!(bytes[..count] == std::fs::read(self.local.join(&name)).unwrap(), "{name}");
        }
    }
}

/// The last component of a path.
fn last(path: &str) -> &[u8] {
    path.rsplit('/').next().unwrap_or(path).as_bytes()
}

#[track_caller]
fn compare(actual: Result<(), Errno>, expected: std::io::Result<()>) {
    let expected = expected.map_err(|error| error.raw_os_error().unwrap());
    assert_eq!(actual.map_err(|errno| errno.0), expected);
}

fn operations(nodes: usize, remote: bool, seed: u64) {
    let temporary = Temporary::new();
    let start = |node| Process::start(&temporary.dir(&format!("flash{node}")));
    let mut processes: Vec<Process> = (0..nodes).map(start).collect();
    let address = if remote { Process::remote } else { Process::local };
    let addresses: Vec<_> = processes.iter().map(address).collect();
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    let admin = StripedAdmin::connect(addresses.clone(), &options).unwrap();
    admin.create_instance(&spec(1 << 30), STRIPE).unwrap();
    let fs = Fs::attach(addresses, INSTANCE, options).unwrap();
    let local = temporary.dir("twin");
    let random = Random(seed);
    let mut dirs = vec![(String::new(), Ino::ROOT)];
    for number in 0..3 {
        let name = format!("d{number}");
        let created = fs.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
        std::fs::create_dir(local.join(&name)).unwrap();
        dirs.push((format!("{name}/"), created.ino));
    }
    let mut twins = Twins { fs, local, descriptor: !remote, dirs, open: BTreeMap::new(), random };
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let kills = &AtomicU32::new(0);
    std::thread::scope(|scope| {
        // The end of the operations, also by a panic, ends the kills.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let processes = &mut processes;
        scope.spawn(move || {
            let mut pauses = Random(seed + 1);
            while !stop.load(Ordering::Acquire) {
                // A change on several nodes waits on each that has started until leases from before are over.
                let pause =
                    if nodes > 1 { 800 + pauses.below(1200) } else { 50 + pauses.below(250) };
                std::thread::sleep(Duration::from_millis(pause));
                let victim = pauses.below(processes.len() as u64) as usize;
                let process = &mut processes[victim];
                process.kill();
                std::thread::sleep(Duration::from_millis(pauses.below(50)));
                process.restart();
                kills.fetch_add(1, Ordering::AcqRel);
            }
        });
        let ends = Ends(stop);
        let mut done = 0;
        // On a busy machine daemons are down most of the time.
        while start.elapsed() < Duration::from_secs(5)
            || done < 100
            || kills.load(Ordering::Acquire) < 4
        {
            assert!(start.elapsed() < Duration::from_secs(100), "{done} operations");
            twins.act();
            done += 1;
        }
        drop(ends);
    });
    twins.compare_all();
    drop(twins);
}

#[test]
fn random_operations_by_descriptor_survive_kills() {
    operations(1, false, 11);
}

#[test]
fn random_operations_over_tcp_survive_kills() {
    operations(1, true, 22);
}

#[test]
fn random_operations_on_three_nodes_by_descriptor_survive_kills() {
    operations(3, false, 33);
}

#[test]
fn random_operations_on_three_nodes_over_tcp_survive_kills() {
    operations(3, true, 44);
}

#[test]
fn client_with_wrong_key_is_refused() {
    let temporary = Temporary::new();
    let process = Process::start(&temporary.dir("flash"));
    make_instance(process.local(), 1 << 20);
    let other = forebay_net::auth::PoolKey::new(b"a key of another pool").unwrap();
    for key in [None, Some(other)] {
        let options = ClientOptions { key, timeout: Duration::ZERO, ..ClientOptions::default() };
        let refused = Fs::attach(process.remote(), INSTANCE, options).map(|_| ());
        assert_eq!(refused, Err(Errno::EKEYREJECTED));
    }
}

#[test]
fn idle_daemon_uses_no_cpu_time() {
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
fn appends_over_tcp_do_not_interleave() {
    let temporary = Temporary::new();
    let process = Process::start(&temporary.dir("flash"));
    make_instance(process.local(), 1 << 30);
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    let fs = Fs::attach(process.remote(), INSTANCE, options).unwrap();
    let mode = OpenMode { read: true, write: true, ..OpenMode::default() };
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let fs = &fs;
            scope.spawn(move || {
                let file = fs.create(Ino::ROOT, b"log", 0o644, false, mode).unwrap().file;
                for _ in 0..200 {
                    assert_eq!(file.append(&[writer; 53]).unwrap(), 53);
                }
            });
        }
    });
    let file = fs.create(Ino::ROOT, b"log", 0o644, false, mode).unwrap().file;
    let mut bytes = vec![0; 100_000];
    let count = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(count, 4 * 200 * 53);
    assert!(bytes[..count].chunks(53).all(|line| line.iter().all(|b| *b == line[0])));
}
