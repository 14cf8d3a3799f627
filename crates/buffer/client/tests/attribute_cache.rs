//! Attributes of directories and listings that a mount caches: they take no requests, and are those of a
//! local directory after every operation, also while two mounts change the directories by turns.
//!
//! Needs root, because the kernel checks permissions for all users.

use crate::support;
use forebay_client::{Mount, MountOptions, mount};
use forebay_random::RandomSequence;
use rustix::fs::{FallocateFlags, Mode, RenameFlags, XattrFlags};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use support::{Mounted, Pool, Temporary, attach};

/// Longer than a session gets no lease after its lease was recalled.
const AFTER_DENIAL: Duration = Duration::from_millis(1100);
const DIRECTORIES: [&str; 4] = [".", "a", "b", "a/c"];
const NAMES: [&str; 7] = ["a", "b", "c", "f", "g", "h", "i"];

fn options() -> MountOptions {
    MountOptions { kernel_permissions: true, ..MountOptions::default() }
}

/// A program that has files open in a directory tree.
struct Program {
    root: PathBuf,
    files: Vec<File>,
}

/// A random operation. Programs with the same numbers carry out the same operations.
#[derive(Clone, Copy, Debug)]
struct Operation([u32; 5]);

impl Operation {
    fn random(random: &mut RandomSequence) -> Operation {
        Operation([26, 28, 28, 4096, 2].map(|bound| random.below(bound)))
    }
}

fn path_of(root: &Path, number: u32) -> PathBuf {
    let (dir, name) = (number as usize / NAMES.len(), number as usize % NAMES.len());
    root.join(DIRECTORIES[dir]).join(NAMES[name])
}

impl Program {
    fn new(root: &Path) -> Program {
        Program { root: root.to_owned(), files: Vec::new() }
    }

    fn keep(&mut self, file: File) {
        if self.files.len() == 2 {
            self.files.remove(0);
        }
        self.files.push(file);
    }

    /// Carries out an operation. Returns the error number.
    fn act(&mut self, Operation([kind, one, other, amount, which]): Operation) -> Option<i32> {
        let (path, second) = (path_of(&self.root, one), path_of(&self.root, other));
        let open = self.files.len().checked_sub(1).map(|last| last.min(which as usize));
        let amount = u64::from(amount);
        let result = match kind {
            0 | 1 | 22 => File::create_new(&path).map(drop),
            2 | 3 => fs::create_dir(&path),
            4 => fs::remove_file(&path),
            5 => fs::remove_dir(&path),
            6 => fs::rename(&path, &second),
            7 | 20 | 21 => fs::hard_link(&path, &second),
            8 => fs::set_permissions(&path, Permissions::from_mode(0o600 | amount as u32 & 0o177)),
            9 => std::os::unix::fs::chown(&path, Some(amount as u32), None),
            10 => {
                let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path);
                file.map(|file| self.keep(file))
            }
            11 => File::open(&path).map(|file| self.keep(file)),
            12 => OpenOptions::new().append(true).open(&path).map(|file| self.keep(file)),
            13 => OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(amount)),
            14 => File::open(&path).and_then(|file| {
                file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(amount))
            }),
            15 => rustix::fs::setxattr(&path, "user.x", b"y", XattrFlags::empty())
                .map_err(io::Error::from),
            16 => {
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &path, rustix::fs::CWD, &second, flags)
                    .map_err(io::Error::from)
            }
            17 | 18 if open.is_some() => {
                let file = &self.files[open.unwrap()];
                match kind {
                    17 => file.write_at(b"text", amount).map(drop),
                    _ => rustix::fs::fallocate(file, FallocateFlags::empty(), 0, amount + 1)
                        .map_err(io::Error::from),
                }
            }
            _ => {
                open.map(|open| self.files.remove(open));
                Ok(())
            }
        };
        result.err().and_then(|error| error.raw_os_error())
    }

    /// The attributes of the open files and of all names in the directories, as a program finds them that
    /// opens and lists each directory. `describe` makes the text of attributes.
    fn view(&self, describe: fn(&fs::Metadata) -> String) -> Vec<String> {
        let mut seen = Vec::new();
        for name in DIRECTORIES {
            let path = self.root.join(name);
            let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
            let Ok(open) = rustix::fs::open(&path, flags, Mode::empty()) else {
                seen.push(format!("{name}: none"));
                continue;
            };
            let dir = File::from(open);
            for _ in 0..2 {
                let entries = rustix::fs::Dir::read_from(&dir).unwrap();
                let names = entries.map(|entry| entry.unwrap().file_name().to_owned());
                let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
                names.sort();
                for entry in &names {
                    if entry != ".." || name != "." {
                        let meta = fs::symlink_metadata(path.join(entry)).unwrap();
                        seen.push(format!("{name}/{entry}: {}", describe(&meta)));
                    }
                }
                seen.push(format!("{name}: {}", describe(&dir.metadata().unwrap())));
            }
        }
        seen
    }

    /// The attributes of each name in the directories, as a program finds them that lists none.
    fn view_of_names(&self, describe: fn(&fs::Metadata) -> String) -> Vec<String> {
        let paths = (0..(DIRECTORIES.len() * NAMES.len()) as u32).map(|i| path_of(&self.root, i));
        paths
            .map(|path| fs::symlink_metadata(path).map_or(String::new(), |m| describe(&m)))
            .collect()
    }

    fn view_of_open(&self, describe: fn(&fs::Metadata) -> String) -> Vec<String> {
        self.files.iter().map(|file| describe(&file.metadata().unwrap())).collect()
    }
}

/// The attributes that are the same on every file system.
fn portable(meta: &fs::Metadata) -> String {
    let size = if meta.is_dir() { 0 } else { meta.len() };
    format!("{:o} {} {} {}", meta.mode(), meta.nlink(), meta.uid(), size)
}

/// All attributes but the access time, and the blocks of a file: the storage node's file system changes
/// their number when it writes the data back.
fn exact(meta: &fs::Metadata) -> String {
    let blocks = if meta.is_dir() { meta.blocks() } else { 0 };
    let (ino, size) = (meta.ino(), meta.len());
    let modified = (meta.mtime(), meta.mtime_nsec());
    let changed = (meta.ctime(), meta.ctime_nsec());
    format!("{ino} {blocks} {size} {modified:?} {changed:?} {}", portable(meta))
}

fn requests(pool: &Pool, kinds: &[&str]) -> u64 {
    let count = |daemon: &forebay_store::daemon::Daemon| -> u64 {
        let requests = daemon.stats().collect_report(Duration::ZERO).requests;
        let of_kind = |kind: &&str| requests.get(*kind).map_or(0, |kind| kind.latency.count());
        kinds.iter().map(of_kind).sum()
    };
    pool.daemons.iter().map(count).sum()
}

#[test]
fn repeated_listings_and_their_attributes_take_no_requests() {
    const TIMES: u64 = 200;
    for nodes in [1, 3] {
        let mounted = Mounted::with_options(nodes, 1 << 26, &options());
        let dir = mounted.path.join("dir");
        fs::create_dir(&dir).unwrap();
        (0..20).for_each(|i| drop(File::create_new(dir.join(format!("file{i}"))).unwrap()));
        // The mount is the only client after the one that mounted it has ended.
        std::thread::sleep(Duration::from_secs(2));
        let before = requests(&mounted.pool, &["readdir", "getattr", "getattrs"]);
        let started = Instant::now();
        for _ in 0..TIMES {
            let open = File::open(&dir).unwrap();
            assert!(open.metadata().unwrap().is_dir());
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 20);
            assert!(open.metadata().unwrap().is_dir());
        }
        let sent = requests(&mounted.pool, &["readdir", "getattr", "getattrs"]) - before;
        // At most some requests in each second, when what is cached expires.
        let seconds = started.elapsed().as_secs() + 1;
        eprintln!("{nodes} nodes: {sent} requests in {seconds} s");
        assert!(sent <= 10 * seconds && sent < TIMES, "{sent} requests in {seconds} s");
    }
}

/// A kernel asks for each name, and after a write again for the attributes of the file.
#[test]
fn many_files_of_a_directory_take_few_requests() {
    const FILES: u64 = 1200;
    for (nodes, is_written) in [(1, false), (1, true), (3, false)] {
        let mounted = Mounted::with_options(nodes, 1 << 28, &options());
        let dir = mounted.path.join("dir");
        fs::create_dir(&dir).unwrap();
        let path = |number: u64| dir.join(format!("file{number}"));
        std::thread::sleep(AFTER_DENIAL);
        (0..FILES).for_each(|number| fs::write(path(number), "text").unwrap());
        std::thread::sleep(AFTER_DENIAL);
        if is_written {
            (0..FILES).for_each(|number| fs::write(path(number), "more text").unwrap());
        }
        let kinds = ["lookup", "getattr", "getattrs", "readdir"];
        let before = requests(&mounted.pool, &kinds);
        let started = Instant::now();
        for number in 0..FILES {
            let length = fs::symlink_metadata(path(number)).unwrap().len();
            assert_eq!(length, if is_written { 9 } else { 4 });
            assert!(fs::symlink_metadata(dir.join(format!("none{number}"))).is_err());
        }
        let sent = requests(&mounted.pool, &kinds) - before;
        let seconds = started.elapsed().as_secs() + 1;
        eprintln!("{nodes} nodes: {sent} requests in {seconds} s");
        // After some of the entries the directory is read, in parts.
        assert!(sent < FILES / 4 * seconds && sent < FILES, "{sent} requests in {seconds} s");
    }
}

/// A kernel that checks permissions asks for the attributes of a directory after each change of an entry.
#[test]
fn attributes_of_a_changed_directory_take_no_request() {
    const FILES: u64 = 200;
    for nodes in [1, 3] {
        let mounted = Mounted::with_options(nodes, 1 << 26, &options());
        let dir = mounted.path.join("dir");
        fs::create_dir(&dir).unwrap();
        std::thread::sleep(AFTER_DENIAL);
        let before = requests(&mounted.pool, &["getattr", "getattrs"]);
        let started = Instant::now();
        let mut last = None;
        for number in 0..FILES {
            let path = dir.join(format!("file{number}"));
            drop(File::create_new(&path).unwrap());
            let seen = exact(&fs::metadata(&dir).unwrap());
            assert_ne!(last.replace(seen.clone()), Some(seen), "a change shows");
            if number % 2 == 0 {
                fs::remove_file(&path).unwrap();
            }
        }
        let sent = requests(&mounted.pool, &["getattr", "getattrs"]) - before;
        let seconds = started.elapsed().as_secs() + 1;
        eprintln!("{nodes} nodes: {sent} requests in {seconds} s");
        assert!(sent <= 10 * seconds && sent < FILES / 2, "{sent} requests in {seconds} s");
        let cached = exact(&fs::metadata(&dir).unwrap());
        std::thread::sleep(AFTER_DENIAL);
        assert_eq!(exact(&fs::metadata(&dir).unwrap()), cached, "as the storage node has them");
    }
}

/// `count` operations on a local directory and on the only mount of an instance.
fn compare_with_local(nodes: usize, seed: u64, count: u32) {
    let local = Temporary::new();
    let mounted = Mounted::with_options(nodes, 1 << 28, &options());
    std::thread::sleep(AFTER_DENIAL);
    let roots = [local.0.join("root"), mounted.path.join("root")];
    let [mut expected, mut actual] = roots.map(|root| {
        fs::create_dir(&root).unwrap();
        Program::new(&root)
    });
    let mut random = RandomSequence::new(seed);
    let mut changes = 0;
    for round in 0..count {
        let operation = Operation::random(&mut random);
        let errors = [expected.act(operation), actual.act(operation)];
        let place = format!("seed {seed} round {round} {operation:?}");
        assert_eq!(errors[0], errors[1], "{place}");
        changes += u32::from(errors[0].is_none());
        assert_eq!(actual.view_of_names(portable), expected.view_of_names(portable), "{place}");
        if round % 2 == 0 {
            assert_eq!(actual.view(portable), expected.view(portable), "{place}");
        }
        assert_eq!(actual.view_of_open(portable), expected.view_of_open(portable), "{place}");
    }
    assert!(changes > count / 8, "{changes} successful operations");
    drop(actual);
}

#[test]
fn only_mount_shows_what_a_local_directory_shows_after_each_operation() {
    std::thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || compare_with_local(1, seed, 400));
        }
    });
}

#[test]
fn only_mount_of_three_nodes_shows_what_a_local_directory_shows_after_each_operation() {
    compare_with_local(3, 7, 400);
}

/// Two mounts that change the same directories by turns. The one that changes nothing for a while has no
/// lease, because it was recalled by the other's first change: it shows what storage nodes have.
fn alternate(nodes: usize, seed: u64, turns: u32) {
    const TURN: u32 = 30;
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, nodes, 1 << 28);
    let paths = ["one", "other"].map(|name| temporary.dir(name));
    let mounts: Vec<Mount> =
        paths.iter().map(|path| mount(attach(pool.nodes()), path, &options()).unwrap()).collect();
    fs::create_dir(paths[0].join("root")).unwrap();
    let mut programs = paths.each_ref().map(|path| Program::new(&path.join("root")));
    let mut random = RandomSequence::new(seed);
    for round in 0..turns * TURN {
        let actor = (round / TURN % 2) as usize;
        if round % TURN == 0 {
            programs.iter_mut().for_each(|program| program.files.clear());
            std::thread::sleep(AFTER_DENIAL);
            // Both have a lease, and fill their caches.
            programs.iter().for_each(|program| drop(program.view_of_names(exact)));
            programs.iter().for_each(|program| drop(program.view(exact)));
        }
        let operation = Operation::random(&mut random);
        programs[actor].act(operation);
        let views = programs.each_ref().map(|program| program.view_of_names(exact));
        assert_eq!(views[actor], views[1 - actor], "seed {seed} round {round} {operation:?}");
        let views = programs.each_ref().map(|program| program.view(exact));
        assert_eq!(views[actor], views[1 - actor], "seed {seed} round {round} {operation:?}");
    }
    drop(programs);
    for mount in mounts {
        support::unmount(mount);
    }
}

#[test]
fn two_mounts_that_change_directories_by_turns_show_the_same() {
    std::thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || alternate(1, seed, 6));
        }
        scope.spawn(|| alternate(3, 3, 2));
    });
}
