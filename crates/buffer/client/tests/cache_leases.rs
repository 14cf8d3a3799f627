//! Two mounts and a library client of one instance, whose kernels cache names and attributes under leases:
//! each change is visible to the others at once, and costs nobody who is idle a request.

use crate::support;
use forebay_client::Mount;
use forebay_store::daemon::Daemon;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use support::process::{be_the_mount, start_mount};
use support::{Pool, READ_WRITE, Temporary, attach, mount_at};

/// Longer than a session gets no lease after its lease was recalled.
const AFTER_DENIAL: Duration = Duration::from_millis(1100);

/// One instance with two mounts.
struct Site {
    mounts: Vec<Mount>,
    paths: Vec<PathBuf>,
    pool: Pool,
    temporary: Temporary,
}

impl Site {
    fn new(nodes: usize) -> Site {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 << 20);
        let paths: Vec<PathBuf> = ["one", "other"].map(|name| temporary.dir(name)).into();
        let mounts = paths.iter().map(|path| mount_at(attach(pool.nodes()), path)).collect();
        fs::set_permissions(&paths[0], Permissions::from_mode(0o755)).unwrap();
        Site { mounts, paths, pool, temporary }
    }

    /// Lookups and requests for attributes so far.
    fn reads(&self) -> u64 {
        let of_node = |daemon: &Daemon| {
            let requests = daemon.stats().collect_report(Duration::ZERO).requests;
            let count = |kind| requests.get(kind).map_or(0, |of_kind| of_kind.latency.count());
            count("lookup") + count("getattr")
        };
        self.pool.daemons.iter().map(of_node).sum()
    }

    fn end(self) {
        for mount in self.mounts {
            support::unmount(mount);
        }
    }
}

/// The view of a program on a directory: of each name in it type and mode, length, links, owner, times in
/// nanoseconds and contents.
fn seen(dir: &Path, names: &[&str]) -> Vec<String> {
    let describe = |name: &&str| match fs::symlink_metadata(dir.join(name)) {
        Err(error) => format!("{name}: {:?}", error.raw_os_error()),
        Ok(meta) => {
            let (mode, size, links, owner) = (meta.mode(), meta.len(), meta.nlink(), meta.uid());
            let modified = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
            let size = if meta.is_dir() { 0 } else { size };
            format!("{name}: {mode:o} {size} {links} {owner} {modified}")
        }
    };
    names.iter().map(describe).collect()
}

const NAMES: [&str; 9] =
    ["file", "linked", "gone", "dir", "dir/inner", "new", "moved", "symbolic", "dir/moved"];

fn prepare(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for name in ["file", "linked", "gone"] {
        fs::write(dir.join(name), name).unwrap();
    }
    fs::create_dir(dir.join("dir")).unwrap();
    fs::write(dir.join("dir/inner"), "inner").unwrap();
}

type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 16] = [
    ("create", |dir| drop(File::create_new(dir.join("new")).unwrap())),
    ("mkdir", |dir| fs::create_dir(dir.join("new")).unwrap()),
    ("symlink", |dir| symlink("file", dir.join("symbolic")).unwrap()),
    ("unlink", |dir| fs::remove_file(dir.join("gone")).unwrap()),
    ("rename", |dir| fs::rename(dir.join("file"), dir.join("moved")).unwrap()),
    ("replace", |dir| fs::rename(dir.join("gone"), dir.join("file")).unwrap()),
    ("rename elsewhere", |dir| fs::rename(dir.join("file"), dir.join("dir/moved")).unwrap()),
    ("rename a directory", |dir| fs::rename(dir.join("dir"), dir.join("moved")).unwrap()),
    ("link", |dir| fs::hard_link(dir.join("linked"), dir.join("new")).unwrap()),
    ("chmod", |dir| fs::set_permissions(dir.join("file"), Permissions::from_mode(0o751)).unwrap()),
    ("chown", |dir| std::os::unix::fs::chown(dir.join("file"), Some(1234), None).unwrap()),
    ("times", |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("file")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(77)).unwrap();
    }),
    ("truncate", |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("file")).unwrap();
        file.set_len(2).unwrap();
    }),
    ("truncate by open", |dir| drop(File::create(dir.join("file")).unwrap())),
    ("write", |dir| fs::write(dir.join("file"), "longer than before").unwrap()),
    ("append", |dir| {
        let mut file = OpenOptions::new().append(true).open(dir.join("file")).unwrap();
        file.write_all(b" and more").unwrap();
    }),
];

/// Each change on one mount, while the other mount's kernel caches everything about the directory.
fn alternate(nodes: usize, which: impl Iterator<Item = (usize, Change)>) {
    let site = Site::new(nodes);
    for (round, (actor, (name, change))) in which.enumerate() {
        let dir = format!("{round}");
        let (here, there) = (&site.paths[actor].join(&dir), &site.paths[1 - actor].join(&dir));
        prepare(here);
        std::thread::sleep(AFTER_DENIAL);
        let open = File::open(there.join("file")).unwrap();
        let length = || (open.metadata().unwrap().len(), open.metadata().unwrap().mode());
        // The kernel caches names, their absence, and attributes.
        let before = seen(there, &NAMES);
        assert_eq!(before, seen(here, &NAMES));
        length();
        // Something may expire meanwhile.
        let is_cached = |_| {
            let reads = site.reads();
            assert_eq!(seen(there, &NAMES), before);
            length();
            site.reads() == reads
        };
        assert!((0..5).any(is_cached), "{name}: names and attributes are not cached");
        change(here);
        assert_eq!(seen(there, &NAMES), seen(here, &NAMES), "{name}");
        assert_ne!(seen(there, &NAMES), before, "{name}");
        let of_name = fs::metadata(here.join("file")).ok();
        if let Some(meta) = of_name.filter(|meta| meta.ino() == open.metadata().unwrap().ino()) {
            assert_eq!(length(), (meta.len(), meta.mode()), "{name} through an open file");
        }
        // The other answers.
        fs::write(there.join("answer"), name).unwrap();
        assert_eq!(fs::read(here.join("answer")).unwrap(), name.as_bytes());
    }
    site.end();
}

fn change_everything(nodes: usize) {
    let cases: Vec<(usize, Change)> =
        CHANGES.into_iter().enumerate().map(|(index, change)| (index % 2, change)).collect();
    std::thread::scope(|scope| {
        for part in cases.chunks(4) {
            scope.spawn(move || alternate(nodes, part.iter().copied()));
        }
    });
}

#[test]
fn each_change_is_visible_at_once_on_a_mount_that_caches() {
    change_everything(1);
}

#[test]
fn each_change_is_visible_at_once_on_a_mount_that_caches_what_three_nodes_have() {
    change_everything(3);
}

#[test]
fn writes_through_open_files_are_visible_at_once_on_a_mount_that_caches() {
    [1, 3].into_iter().for_each(write_through_open_file);
}

fn write_through_open_file(nodes: usize) {
    let site = Site::new(nodes);
    let (here, there) = (site.paths[0].join("file"), site.paths[1].join("file"));
    fs::write(&here, "").unwrap();
    let file = OpenOptions::new().write(true).open(&here).unwrap();
    let read = File::open(&there).unwrap();
    std::thread::sleep(AFTER_DENIAL);
    for length in 1..200u64 {
        file.write_at(b"x", length - 1).unwrap();
        assert_eq!(fs::metadata(&there).unwrap().len(), length);
        assert_eq!(read.metadata().unwrap().len(), length);
    }
    drop((file, read));
    site.end();
}

#[test]
fn changes_of_a_library_client_are_visible_at_once() {
    [1, 3].into_iter().for_each(change_by_library);
}

fn change_by_library(nodes: usize) {
    let site = Site::new(nodes);
    let path = &site.paths[0];
    for round in 0..5 {
        let name = format!("file{round}");
        let absent = || !path.join(&name).exists() && !site.paths[1].join(&name).exists();
        std::thread::sleep(AFTER_DENIAL);
        let is_cached = |_| {
            let reads = site.reads();
            assert!(absent());
            site.reads() == reads
        };
        assert!((0..5).any(is_cached), "the absence of a name is not cached");
        let other = attach(site.pool.nodes());
        drop(other.create_path(Path::new(&name), 0o644, READ_WRITE).unwrap());
        assert!(path.join(&name).exists() && site.paths[1].join(&name).exists());
    }
    site.end();
}

/// Many readers and writers at a time: a name never leads to an older number than one that was
/// acknowledged.
#[test]
fn concurrent_lookups_are_never_older_than_acknowledged_renames() {
    look_up_while_names_are_replaced(1, "");
}

/// The names are in a directory of each of three nodes, and files move to it from the root.
#[test]
fn concurrent_lookups_on_three_nodes_are_never_older_than_acknowledged_renames() {
    for directory in ["a", "b", "c", "d"] {
        look_up_while_names_are_replaced(3, directory);
    }
}

fn look_up_while_names_are_replaced(nodes: usize, directory: &str) {
    let site = Site::new(nodes);
    fs::create_dir_all(site.paths[0].join(directory)).unwrap();
    let (name, next) = (Path::new(directory).join("n"), "next");
    let (one, other) = (&site.paths[0], &site.paths[1]);
    fs::write(one.join(&name), "").unwrap();
    let acknowledged = std::sync::atomic::AtomicU64::new(0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    let mut counted = 0;
    std::thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            scope.spawn(|| {
                let mut count = 0u64;
                while !stop.load(order) {
                    let before = acknowledged.load(order);
                    let length = fs::metadata(other.join(&name)).unwrap().len();
                    assert!(length >= before, "{length} was read after {before}");
                    count += 1;
                }
                count
            })
        });
        for round in 1..=30u64 {
            fs::write(one.join(next), vec![0; round as usize]).unwrap();
            fs::rename(one.join(next), one.join(&name)).unwrap();
            acknowledged.store(round, order);
            // Some changes come when the readers have a lease, others when they have none.
            std::thread::sleep(Duration::from_millis(if round % 3 == 0 {
                1150
            } else {
                7 * round
            }));
        }
        stop.store(true, order);
        counted = readers.map(|reader| reader.join().unwrap()).iter().sum();
    });
    assert!(counted > 100, "{counted} lookups");
    site.end();
}

/// A client that attaches while another one caches changes names without a wait for their expiry.
#[test]
fn newcomer_does_not_wait_until_what_a_mount_caches_has_expired() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let path = temporary.dir("mnt");
    let mounted = mount_at(attach(pool.nodes()), &path);
    let mut shortest = Duration::MAX;
    for round in 0..8 {
        fs::create_dir(path.join(format!("dir{round}"))).unwrap();
        assert!(!path.join(format!("new{round}")).exists());
        // The processes on the mount have had the time to process the replies to them.
        std::thread::sleep(Duration::from_millis(100));
        let started = Instant::now();
        let other = attach(pool.nodes());
        let name = format!("new{round}");
        drop(other.create_path(Path::new(&name), 0o644, READ_WRITE).unwrap());
        shortest = shortest.min(started.elapsed());
        assert!(path.join(name).exists());
    }
    support::unmount(mounted);
    assert!(shortest < Duration::from_millis(500), "{shortest:?} for an attachment and a create");
}

#[test]
#[ignore = "not a test: a mount that another test stops"]
fn mount_process() {
    be_the_mount(|address, path| mount_at(attach(address), path));
}

#[test]
fn stopped_mount_does_not_delay_changes_for_ever_and_shows_nothing_old() {
    let site = Site::new(1);
    let path = site.temporary.dir("stopped");
    let address = site.pool.daemons[0].address();
    let mut stopped = start_mount("cache_leases::mount_process", &address, &path);
    fs::write(site.paths[0].join("file"), "").unwrap();
    std::thread::sleep(AFTER_DENIAL);
    assert_eq!(fs::metadata(path.join("file")).unwrap().len(), 0);
    let pid = rustix::process::Pid::from_child(&stopped);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let start = Instant::now();
    fs::write(site.paths[0].join("file"), "text").unwrap();
    let delay = start.elapsed();
    // The kernel has nothing cached: it asks the mount, which answers when it continues.
    let length = std::thread::scope(|scope| {
        let read = scope.spawn(|| fs::metadata(path.join("file")).unwrap().len());
        std::thread::sleep(Duration::from_millis(50));
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        read.join().unwrap()
    });
    stopped.kill().unwrap();
    stopped.wait().unwrap();
    let unmounted = Command::new("umount").args(["-l".as_ref(), path.as_os_str()]).status();
    assert!(unmounted.unwrap().success());
    assert_eq!(length, 4);
    // Much longer than a lease lasts, for a machine with other work, and shorter than a session.
    assert!(delay < Duration::from_secs(20), "{delay:?}");
    site.end();
}

/// The number of the entry `..` in a listing.
fn listed_parent(dir: &Path) -> u64 {
    let file = File::open(dir).unwrap();
    let mut entries = rustix::fs::Dir::read_from(&file).unwrap();
    let parent = entries.find_map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name() == c"..").then(|| entry.ino())
    });
    parent.unwrap()
}

#[test]
fn listings_have_the_present_parent() {
    [1, 3].into_iter().for_each(list_moved_directories);
}

fn list_moved_directories(nodes: usize) {
    let site = Site::new(nodes);
    let (here, there) = (&site.paths[0], &site.paths[1]);
    for name in ["one", "other", "one/dir"] {
        fs::create_dir(here.join(name)).unwrap();
    }
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    for round in 0..6 {
        let (from, to) = if round % 2 == 0 { ("one", "other") } else { ("other", "one") };
        if round < 4 {
            std::thread::sleep(AFTER_DENIAL);
        }
        for path in [here, there, here, there] {
            assert_eq!(listed_parent(&path.join(from).join("dir")), number(&path.join(from)));
        }
        // Each mount moves it by turns.
        let actor = if round / 2 % 2 == 0 { here } else { there };
        fs::rename(actor.join(from).join("dir"), actor.join(to).join("dir")).unwrap();
        for path in [there, here] {
            assert_eq!(listed_parent(&path.join(to).join("dir")), number(&path.join(to)));
        }
    }
    site.end();
}
