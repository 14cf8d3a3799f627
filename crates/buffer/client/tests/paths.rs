//! Operations by path: the number of their requests, and where paths lead.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::Fs;
use forebay_protocol::message::{NewInode, SetAttr};
use forebay_protocol::{Credentials, Errno, Ino};
use forebay_store::daemon::Daemon;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{Pool, READ_WRITE, Temporary, attach};

/// Requests answered so far, without closes and heartbeats.
fn answered(daemons: &[Daemon]) -> u64 {
    let closes = ["close", "close_all", "attach", "statfs", "peer"];
    let mut sum = 0;
    for daemon in daemons {
        let requests = daemon.stats().collect_report(Duration::ZERO).requests;
        let counted = requests.iter().filter(|(kind, _)| !closes.contains(&kind.as_str()));
        sum += counted.map(|(_, stats)| stats.latency.count()).sum::<u64>();
    }
    sum
}

/// The highest number of requests of a call of `act`.
fn most_requests(pool: &Pool, mut act: impl FnMut(u32)) -> u64 {
    act(1000); // opens sessions
    let mut most = 0;
    for round in 0..20 {
        let before = answered(&pool.daemons);
        act(round);
        most = most.max(answered(&pool.daemons) - before);
    }
    most
}

#[test]
fn library_operations_on_deep_paths_take_one_request() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let fs = attach(pool.nodes());
    let dir = Path::new("a/b/c/d");
    fs.mkdir_all(dir, 0o755).unwrap();
    let name = |round: u32| dir.join(format!("f{round}"));
    let create = most_requests(&pool, |round| {
        drop(fs.create_path(&name(round), 0o644, READ_WRITE).unwrap());
    });
    let stat = most_requests(&pool, |round| assert!(fs.resolve(&name(round), true).is_ok()));
    let open = most_requests(&pool, |round| {
        drop(fs.open_path(&name(round), READ_WRITE).unwrap());
    });
    let absent = most_requests(&pool, |round| {
        let absent = dir.join(format!("absent{round}"));
        assert_eq!(fs.resolve(&absent, true).unwrap_err(), Errno::ENOENT);
    });
    let unlink = most_requests(&pool, |round| fs.unlink_path(&name(round)).unwrap());
    assert_eq!((create, stat, open, absent, unlink), (1, 1, 1, 1, 1));
}

#[test]
fn library_operations_below_one_directory_take_two_requests_across_nodes() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 64 << 20);
    let fs = attach(pool.nodes());
    for dir in ["a", "b", "c", "d"] {
        fs.mkdir_all(Path::new(dir), 0o755).unwrap();
        let name = |round: u32| PathBuf::from(format!("{dir}/f{round}"));
        let create = most_requests(&pool, |round| {
            let created = fs.create_path(&name(round), 0o644, READ_WRITE).unwrap();
            drop(created);
        });
        let unlink = most_requests(&pool, |round| fs.unlink_path(&name(round)).unwrap());
        assert!(create <= 2 && unlink <= 2, "{dir}: {create} and {unlink} requests");
    }
}

/// The same entries below a local directory and in an instance, with the inodes of each.
struct Twins {
    local: PathBuf,
    fs: Fs,
    /// The inode in the instance for that of the local file system.
    inodes: HashMap<u64, Ino>,
}

impl Twins {
    fn dir(&mut self, path: &str) {
        std::fs::create_dir(self.local.join(path)).unwrap();
        let made = self.fs.mkdir_all(Path::new(path), 0o755).unwrap();
        self.note(path, made.ino);
    }

    fn link(&mut self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.local.join(path)).unwrap();
        let (parent, name) = self.fs.resolve_parent(Path::new(path)).unwrap();
        let new = NewInode::Symlink(target.as_bytes().to_vec());
        let made = self.fs.make_inode(parent, name, new, 0o777).unwrap();
        self.note(path, made.ino);
    }

    fn note(&mut self, path: &str, ino: Ino) {
        use std::os::unix::fs::MetadataExt;
        let local = std::fs::symlink_metadata(self.local.join(path)).unwrap().ino();
        self.inodes.insert(local, ino);
    }

    /// The target of a path in the kernel's resolution, with the local directory as the root.
    fn expected(&self, path: &Path, follow: bool) -> Result<Ino, Errno> {
        let root = rustix::fs::openat(CWD, &self.local, OFlags::PATH, Mode::empty()).unwrap();
        let mut flags = OFlags::PATH;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let open = || rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let mut opened = open();
        // Something on this host was renamed or mounted meanwhile.
        while opened.as_ref().is_err_and(|errno| *errno == rustix::io::Errno::AGAIN) {
            opened = open();
        }
        let found = opened.map_err(|errno| Errno(errno.raw_os_error()))?;
        Ok(self.inodes[&rustix::fs::fstat(&found).unwrap().st_ino])
    }
}

/// Directories, files and links, some of which lead to each other, upwards, nowhere or in a circle.
fn twins(local: PathBuf, fs: Fs) -> Twins {
    let mut twins = Twins { local, fs, inodes: HashMap::new() };
    twins.note("", Ino::ROOT);
    for dir in ["a", "b", "a/b", "a/a", "a/b/c", "b/a", "b/a/b"] {
        twins.dir(dir);
    }
    for file in ["f", "a/f", "a/b/f", "b/a/b/f"] {
        std::fs::write(twins.local.join(file), "").unwrap();
        let made = twins.fs.create_path(Path::new(file), 0o644, READ_WRITE).unwrap();
        twins.note(file, made.attr.ino);
    }
    let links = [
        ("l", "a/b"),
        ("a/l", "../b/a"),
        ("a/b/l", "/b"),
        ("b/l", "l2/../f"),
        ("b/l2", "/a/b/c"),
        ("a/a/l", "../../.."),
        ("b/a/l", "l"),
        ("b/a/b/l", "../../l/nothing"),
        ("m", "/"),
        ("o", "a/o"),
        ("a/o", "../b/../o"),
        ("a/m", "./b//c/../l/a"),
    ];
    for (path, target) in links {
        twins.link(path, target);
    }
    // A link whose inode stays where it was created.
    std::fs::rename(twins.local.join("a/m"), twins.local.join("b/a/m")).unwrap();
    twins.fs.rename_path(Path::new("a/m"), Path::new("b/a/m")).unwrap();
    twins
}

#[test]
fn random_paths_lead_where_the_kernel_says() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 << 20);
        let twins = twins(temporary.dir("local"), attach(pool.nodes()));
        let names = ["a", "b", "c", "l", "l2", "m", "o", "f", "..", ".", "", "none"];
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let (mut found, mut refused) = (0, HashMap::new());
        for _ in 0..3_000 {
            let length = random(7);
            let path: Vec<&str> = (0..length).map(|_| names[random(names.len())]).collect();
            let path = path.join("/");
            let path = Path::new(path.trim_end_matches('/'));
            let follow = random(2) == 0;
            let expected = twins.expected(path, follow);
            let resolved = twins.fs.resolve(path, follow).map(|attr| attr.ino);
            assert_eq!(resolved, expected, "{} on {nodes} nodes", path.display());
            match expected {
                Ok(_) => found += 1,
                Err(errno) => *refused.entry(errno.0).or_insert(0) += 1,
            }
        }
        let refused = |errno: Errno| refused.get(&errno.0).copied().unwrap_or(0);
        assert!(found > 300, "{found} paths lead to an inode");
        assert!(refused(Errno::ENOENT) > 100 && refused(Errno::ENOTDIR) > 20);
        assert!(refused(Errno::ELOOP) > 5, "some links lead in a circle");
    }
}

#[test]
fn every_directory_of_a_path_must_be_searchable_by_the_caller() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 << 20);
        let root = attach(pool.nodes());
        let path = Path::new("a/b/c/f");
        root.mkdir_all(Path::new("a/b/c"), 0o755).unwrap();
        drop(root.create_path(path, 0o666, READ_WRITE).unwrap());
        let groups = Some(vec![3000]);
        let user = Credentials { uid: 1000, gid: 1000, groups, checked: false };
        let fs = root.on_behalf_of(user);
        for dir in ["a", "a/b", "a/b/c"] {
            let ino = root.resolve(Path::new(dir), true).unwrap().ino;
            let set = |mode, gid| {
                let set = SetAttr { mode: Some(mode), gid: Some(gid), ..SetAttr::default() };
                root.set_attr(ino, None, set).unwrap();
            };
            set(0o700, 3000);
            assert_eq!(fs.resolve(path, true).unwrap_err(), Errno::EACCES, "{dir}");
            assert_eq!(fs.open_path(path, READ_WRITE).unwrap_err(), Errno::EACCES);
            assert_eq!(fs.unlink_path(path).unwrap_err(), Errno::EACCES);
            let other = Path::new("a/b/c/g");
            assert_eq!(fs.create_path(other, 0o644, READ_WRITE).unwrap_err(), Errno::EACCES);
            set(0o710, 3000);
            fs.resolve(path, true).unwrap();
            set(0o755, 0);
            drop(fs.open_path(path, READ_WRITE).unwrap());
        }
        assert_eq!(fs.unlink_path(path).unwrap_err(), Errno::EACCES, "not writable");
        assert_eq!(root.resolve(path, true).unwrap().kind, forebay_protocol::FileKind::File);
    }
}

#[test]
fn paths_beyond_the_limit_are_refused() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let fs = attach(pool.nodes());
    let long = vec![b'/'; forebay_protocol::message::MAX_PATH_BYTES + 1];
    let long = Path::new(std::ffi::OsStr::from_bytes(&long));
    assert_eq!(fs.resolve(long, true).unwrap_err(), Errno::ENAMETOOLONG);
    let name = "n".repeat(256);
    assert_eq!(fs.resolve(Path::new(&name), true).unwrap_err(), Errno::ENAMETOOLONG);
}
