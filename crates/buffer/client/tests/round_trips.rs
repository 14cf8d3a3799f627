//! Number of requests that a mount sends to the daemon for each operation, and permissions of entries
//! that the kernel caches.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::MountOptions;
use forebay_protocol::Ino;
use forebay_protocol::message::SetAttr;
use forebay_store::daemon::{self, Daemon, StatsHandle};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Mounted, Temporary, as_user, as_user_in, attach, make_instance, mount_at};

const TIMES: u64 = 50;

/// Requests per call of `act`, with one decimal: a client also sends heartbeats.
fn requests(stats: &StatsHandle, act: impl Fn(u64)) -> f64 {
    let answered = || {
        // Closes are sent in the background.
        let count = || stats.collect_report(Duration::ZERO).total_latency().count();
        let mut last = count();
        loop {
            std::thread::sleep(Duration::from_millis(50));
            match count() {
                same if same == last => return same,
                more => last = more,
            }
        }
    };
    // Connections are opened when first needed.
    (TIMES..TIMES + 20).for_each(&act);
    let before = answered();
    (0..TIMES).for_each(act);
    let each = (answered() - before) as f64 / TIMES as f64;
    (each * 10.0).round() / 10.0
}

fn denied<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
}

#[test]
fn stat_takes_three_and_create_four_requests_with_another_client() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    make_instance(daemon.address(), 64 << 20);
    let other = attach(daemon.address());
    let path = temporary.dir("mnt");
    let mounted = mount_at(other.clone(), &path);
    other.mkdir_all(Path::new("dir"), 0o777).unwrap();
    let stats = daemon.stats();
    for user in [0, 1000] {
        let name = |i| path.join(format!("dir/{user}-{i}"));
        let create = || {
            requests(&stats, |i| {
                drop(fs::File::create_new(name(i)).unwrap());
            })
        };
        let created = as_user(user, user, create);
        let stat = as_user(user, user, || {
            requests(&stats, |i| {
                fs::metadata(name(i)).unwrap();
            })
        });
        let read = as_user(user, user, || {
            requests(&stats, |i| {
                fs::File::open(name(i)).unwrap();
            })
        });
        eprintln!("as {user}: create {created}, stat {stat}, open and close {read}");
        assert!(created <= 4.0, "{created} requests for a create");
        assert!(stat <= 3.0, "{stat} requests for a stat");
        assert!(read <= 4.0, "{read} requests for an open and a close");
    }
    support::unmount(mounted);
}

/// While the kernel may cache attributes, it need not ask for those of the directories of a path.
#[test]
fn permission_checks_of_the_kernel_take_no_requests_without_other_clients() {
    let counts = [false, true].map(|kernel_permissions| {
        let options = MountOptions { kernel_permissions, ..MountOptions::default() };
        let mounted = Mounted::with_options(1, 64 << 20, &options);
        let name = |i| mounted.path.join(format!("a/b/c/{i}"));
        fs::create_dir_all(mounted.path.join("a/b/c")).unwrap();
        // The mount is the only client after the one that mounted it has ended.
        std::thread::sleep(Duration::from_secs(2));
        let stats = mounted.pool.daemons[0].stats();
        let created = requests(&stats, |i| drop(fs::File::create_new(name(i)).unwrap()));
        let opened = requests(&stats, |i| drop(fs::File::open(name(i)).unwrap()));
        let listed = requests(&stats, |_| drop(fs::read_dir(mounted.path.join("a/b")).unwrap()));
        (created, opened, listed)
    });
    let [without, with] = counts;
    eprintln!("create, open, list: {without:?} without, {with:?} with checks of the kernel");
    // Once a second the kernel asks again; otherwise it would ask for all four directories.
    assert!(with.0 < without.0 + 2.0 && with.1 < without.1 + 2.0 && with.2 < without.2 + 2.0);
}

#[test]
fn create_in_own_directory_takes_no_lookup() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    make_instance(daemon.address(), 64 << 20);
    let path = temporary.dir("mnt");
    let mounted = mount_at(attach(daemon.address()), &path);
    let dir = path.join("dir");
    // The mount is the only client after the one that mounted it has ended.
    std::thread::sleep(Duration::from_secs(2));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&dir).unwrap();
    let stats = daemon.stats();
    let kinds = || stats.collect_report(Duration::ZERO).requests;
    let count = |kind: &str| kinds().get(kind).map_or(0, |of_kind| of_kind.latency.count());
    let (lookups, creates) = (count("lookup"), count("create"));
    for i in 0..TIMES {
        let name = dir.join(format!("f{i}"));
        assert!(!name.exists());
        drop(fs::File::create_new(&name).unwrap());
        assert!(name.exists());
    }
    assert_eq!(count("create") - creates, TIMES);
    let lookups = count("lookup") - lookups;
    assert!(lookups < TIMES / 2, "{lookups} questions for names");
    let repeated = (0..TIMES).map(|i| fs::File::create_new(dir.join(format!("f{i}"))));
    assert!(repeated.into_iter().all(|creates| creates.is_err()), "they exist");
    // Entries of other clients are visible at once, also after these clients have ended.
    for round in 0..2 {
        assert!(!dir.join("theirs").exists());
        let other = attach(daemon.address());
        let theirs = Path::new("dir/theirs");
        let creates = other.create_path(theirs, 0o644, support::READ_WRITE);
        drop(creates.unwrap());
        assert!(dir.join("theirs").exists(), "round {round}");
        drop(other);
        assert!(fs::File::create_new(dir.join("theirs")).is_err());
        fs::remove_file(dir.join("theirs")).unwrap();
        fs::rename(dir.join("f1"), dir.join("theirs")).unwrap();
        assert!(dir.join("theirs").exists() && !dir.join("f1").exists());
        fs::rename(dir.join("theirs"), dir.join("f1")).unwrap();
    }
    support::unmount(mounted);
}

#[test]
fn listing_takes_one_lookup_and_few_reads_of_the_directory() {
    const FILES: u64 = 1000;
    for with_other_client in [false, true] {
        let mounted = Mounted::new(1, 1 << 26);
        let other = with_other_client.then(|| attach(mounted.pool.nodes()));
        let dir = mounted.path.join("dir");
        fs::create_dir(&dir).unwrap();
        for i in 0..FILES {
            drop(fs::File::create_new(dir.join(format!("file-{i}"))).unwrap());
        }
        let stats = mounted.pool.daemons[0].stats();
        let count = |kind: &str| {
            let requests = stats.collect_report(Duration::ZERO).requests;
            requests.get(kind).map_or(0, |of_kind| of_kind.latency.count())
        };
        let before = (count("lookup"), count("readdir"));
        let names = fs::read_dir(&dir).unwrap().count() as u64;
        let (lookups, reads) = (count("lookup") - before.0, count("readdir") - before.1);
        eprintln!("other client {with_other_client}: {lookups} lookups, {reads} reads");
        assert_eq!(names, FILES);
        assert!(lookups <= 2, "{lookups} lookups: of the directory and of its parent");
        assert!(reads <= 60, "{reads} reads of the directory");
        // The kernel asks for more than the last entry, which takes no request.
        let few = mounted.path.join("few");
        fs::create_dir(&few).unwrap();
        drop(fs::File::create_new(few.join("file")).unwrap());
        let before = count("readdir");
        assert_eq!(fs::read_dir(&few).unwrap().count(), 1);
        assert_eq!(count("readdir") - before, 1);
        let before = count("lookup");
        assert_eq!(fs::read_dir(&few).unwrap().count(), 1);
        assert_eq!(count("lookup") - before, 0, "the parent is known");
        drop(other);
    }
}

/// Several users of a mount that is the only client, so that the kernel caches names.
#[test]
fn cached_names_respect_search_permission() {
    for kernel_permissions in [false, true] {
        let options = MountOptions { kernel_permissions, ..MountOptions::default() };
        check_search_permission(&Mounted::with_options(1, 1 << 26, &options));
    }
}

fn check_search_permission(mounted: &Mounted) {
    let dir = mounted.path.join("dir");
    fs::set_permissions(&mounted.path, fs::Permissions::from_mode(0o777)).unwrap();
    as_user(1000, 1000, || {
        fs::DirBuilder::new().mode(0o755).create(&dir).unwrap();
        fs::write(dir.join("f"), "text").unwrap();
        fs::DirBuilder::new().mode(0o700).create(dir.join("own")).unwrap();
        fs::write(dir.join("own/f"), "text").unwrap();
    });
    let stat = || fs::metadata(dir.join("own/f")).map(|_| ());
    for _ in 0..10 {
        as_user(1000, 1000, stat).unwrap();
        assert!(denied(as_user(1001, 1001, stat)));
        assert!(denied(as_user(1001, 1001, || fs::read(dir.join("own/f")))));
        assert!(denied(as_user(1001, 1001, || fs::read(dir.join("own/none")))));
    }
    // A change of permissions takes effect at once, although the kernel may cache names.
    let stat = || fs::metadata(dir.join("f")).map(|_| ());
    for _ in 0..2 {
        as_user(1001, 1001, stat).unwrap();
        as_user(1000, 1000, || {
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        });
        assert!(denied(as_user(1001, 1001, stat)));
        as_user(1000, 1000, || {
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        });
        as_user(1001, 1001, stat).unwrap();
    } // Also if another client changes them.
    let other = attach(mounted.pool.nodes());
    let ino = other.lookup(Ino::ROOT, b"dir").unwrap().ino;
    for _ in 0..2 {
        as_user(1001, 1001, stat).unwrap();
        let set_mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        other.set_attr(ino, None, set_mode(0o700)).unwrap();
        assert!(denied(as_user(1001, 1001, stat)));
        other.set_attr(ino, None, set_mode(0o755)).unwrap();
        as_user(1001, 1001, stat).unwrap();
    }
}

/// A kernel that does not check permissions would show the names of a private directory to everybody.
#[test]
fn names_in_private_directories_are_cached_if_the_kernel_checks_permissions() {
    let options = MountOptions { kernel_permissions: true, ..MountOptions::default() };
    let mounted = Mounted::with_options(1, 1 << 26, &options);
    let dir = mounted.path.join("private");
    fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    fs::write(dir.join("file"), "text").unwrap();
    let stats = mounted.pool.daemons[0].stats();
    let each = requests(&stats, |_| {
        assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 4);
        assert!(!dir.join("none").exists());
    });
    assert!(each < 0.5, "{each} requests for cached names");
}

/// Linux 6.16 and later invalidate cached names on request.
#[test]
fn search_permission_is_taken_away_without_a_wait_for_cached_names() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release.split('.').map_while(|part| part.parse().ok()).collect();
    if version < vec![6, 16] {
        return eprintln!("Linux {release} cannot invalidate names");
    }
    let mounted = Mounted::new(1, 1 << 26);
    fs::set_permissions(&mounted.path, fs::Permissions::from_mode(0o777)).unwrap();
    let dir = mounted.path.join("dir");
    as_user(1000, 1000, || {
        fs::DirBuilder::new().mode(0o755).create(&dir).unwrap();
        fs::write(dir.join("f"), "text").unwrap();
    });
    let set_mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
    let stat = || fs::metadata(dir.join("f")).map(|_| ());
    let mut shortest = Duration::MAX;
    for _ in 0..20 {
        as_user(1001, 1001, stat).unwrap();
        let started = Instant::now();
        as_user(1000, 1000, || set_mode(0o700));
        shortest = shortest.min(started.elapsed());
        assert!(denied(as_user(1001, 1001, stat)));
        as_user(1000, 1000, || set_mode(0o755));
    }
    assert!(shortest < Duration::from_millis(300), "{shortest:?} for a chmod");
}

/// The groups of a process are read when a decision depends on them.
#[test]
fn supplementary_groups_grant_access() {
    for nodes in [1, 3] {
        let mounted = Mounted::new(nodes, 1 << 26);
        let path = |name: &str| mounted.path.join(name);
        fs::set_permissions(&mounted.path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(path("shared"), "text").unwrap();
        chown(path("shared"), Some(1000), Some(3000)).unwrap();
        fs::set_permissions(path("shared"), fs::Permissions::from_mode(0o640)).unwrap();
        let read = || fs::read(path("shared"));
        as_user_in(1001, 1001, &[2000, 3000], read).unwrap();
        assert!(denied(as_user_in(1001, 1001, &[2000], read)));
        as_user_in(1001, 1001, &[3000], read).unwrap();
        assert!(denied(as_user(1001, 1001, read)), "groups are not cached");
        // The mode may deny access to members of the group.
        fs::set_permissions(path("shared"), fs::Permissions::from_mode(0o604)).unwrap();
        assert!(denied(as_user_in(1001, 1001, &[3000], read)));
        as_user(1001, 1001, read).unwrap();
        // Directories, also on other nodes.
        for number in 0..6 {
            let dir = path(&format!("dir{number}"));
            fs::create_dir(&dir).unwrap();
            chown(&dir, None, Some(3000)).unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o2770)).unwrap();
            assert!(denied(as_user(1001, 1001, || fs::create_dir(dir.join("sub")))));
            as_user_in(1001, 1001, &[3000], || {
                fs::create_dir(dir.join("sub")).unwrap();
                let mut options = fs::OpenOptions::new();
                options.write(true).create_new(true).mode(0o2750);
                options.open(dir.join("file")).unwrap();
                fs::rename(dir.join("file"), dir.join("sub/file")).unwrap();
            });
            let file = fs::metadata(dir.join("sub/file")).unwrap();
            assert_eq!(file.permissions().mode() & 0o7777, 0o2750);
        }
        // A file may be given only to a group of its owner.
        as_user_in(1000, 1000, &[4000], || {
            chown(path("shared"), None, Some(4000)).unwrap();
            assert!(chown(path("shared"), None, Some(3000)).is_err());
        });
    }
}
