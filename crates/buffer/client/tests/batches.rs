//! Operations on many paths in batches: their results, messages, permissions, and what daemons do that are
//! killed, or of an earlier release.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::{Channel, ClientOptions, Connection, Fs, NewFile, Os, Results, System};
use forebay_net::auth::Authenticator;
use forebay_net::connection::Response;
use forebay_protocol::address::Address;
use forebay_protocol::message::{
    InstanceSpec, MAX_BATCH_REQUESTS, MAX_INLINE_FILE_BYTES, NewInode, Reply, Request, SetAttr,
    TrailingField,
};
use forebay_protocol::{Attr, Call, Credentials, Errno, FileKind, Ino};
use forebay_random::RandomSequence;
use forebay_store::daemon::{Daemon, StoreOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::faulty_network::FaultyNetwork;
use support::process::Process;
use support::striped_admin::StripedAdmin;
use support::{INSTANCE, Pool, STRIPE, Temporary, as_user, attach, make_instance, spec};

fn one_of<'a>(random: &mut RandomSequence, choices: &[&'a str]) -> &'a str {
    choices[random.below(choices.len() as u32) as usize]
}

/// Requests of this kind answered so far.
fn answered(daemons: &[Daemon], kind: &str) -> u64 {
    let of = |daemon: &Daemon| {
        let requests = daemon.stats().collect_report(Duration::ZERO).requests;
        requests.get(kind).map_or(0, |stats| stats.latency.count())
    };
    daemons.iter().map(of).sum()
}

fn set_mode(fs: &Fs, path: &str, mode: u16) {
    let ino = fs.resolve(Path::new(path), false).unwrap().ino;
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    fs.set_attr(ino, None, set).unwrap();
}

/// The attributes that are equal in two instances: not inode numbers and times.
fn shown(attr: Result<Attr, Errno>) -> Result<(FileKind, u16, u32, u32, u64), Errno> {
    attr.map(|attr| (attr.kind, attr.mode, attr.uid, attr.nlink, attr.size))
}

fn symlink(fs: &Fs, path: &str, target: &str) {
    let (parent, name) = fs.resolve_parent(Path::new(path)).unwrap();
    let new = NewInode::Symlink(target.as_bytes().to_vec());
    fs.make_inode(parent, name, new, 0o777).unwrap();
}

/// Directories of user 1000, one that only root may search, and links.
fn make_tree(fs: &Fs) {
    for dir in ["a/b/c", "d/e", "f", "private/g"] {
        fs.mkdir_all(Path::new(dir), 0o777).unwrap();
        for path in Path::new(dir).ancestors().filter(|path| !path.as_os_str().is_empty()) {
            set_mode(fs, path.to_str().unwrap(), 0o777);
        }
    }
    set_mode(fs, "private", 0o700);
    symlink(fs, "to-c", "a/b/c");
    symlink(fs, "a/to-e", "/d/e");
    symlink(fs, "f/loop", "../f/loop");
    symlink(fs, "d/dangling", "nowhere");
}

/// A path that may exist.
fn random_path(random: &mut RandomSequence) -> PathBuf {
    let dirs = [
        "",
        "a",
        "a/b",
        "a/b/c",
        "d",
        "d/e",
        "f",
        "private",
        "private/g",
        "to-c",
        "a/to-e",
        "f/loop",
        "d/dangling",
        "absent",
        "a/../d/./e",
        "to-c/../..",
    ];
    let name = format!("n{}", random.below(12));
    let long = "x".repeat(300);
    let names = [&*name, &name, &name, &name, &name, "..", "loop", "b", "dangling", &long];
    let dir = one_of(random, &dirs);
    Path::new(dir).join(one_of(random, &names))
}

/// An operation on one path.
fn act(fs: &Fs, kind: usize, path: &Path) -> Result<Attr, Errno> {
    match kind {
        0 => fs.resolve(path, true),
        1 => fs.resolve(path, false),
        2 => {
            let (parent, name) = fs.resolve_parent(path)?;
            fs.make_inode(parent, name, NewInode::Node(FileKind::File, 0), 0o640)
        }
        _ => fs.unlink_path(path).map(|()| Attr::default()),
    }
}

/// The same on many.
fn act_on_all(fs: &Fs, kind: usize, paths: &[PathBuf]) -> Results<Attr> {
    match kind {
        0 | 1 => fs.stat_many(Ino::ROOT, paths, kind == 0),
        2 => fs.create_many(Ino::ROOT, paths, 0o640),
        _ => {
            let removed = fs.unlink_many(Ino::ROOT, paths).into_iter();
            removed.map(|result| result.map(|()| Attr::default())).collect()
        }
    }
}

/// Random operations have the same results in batches in one instance as one by one in another.
fn compare_with_single_requests(nodes: usize, seed: u64) {
    let pools = [(); 2].map(|()| {
        let directory = Temporary::new();
        let pool = Pool::new(&directory, nodes, 64 << 20);
        (pool, directory)
    });
    let [batched, single] = [&pools[0].0, &pools[1].0].map(|pool| attach(pool.nodes()));
    make_tree(&batched);
    make_tree(&single);
    let mut random = RandomSequence::new(seed);
    let (mut failed, mut made) = (BTreeSet::new(), 0);
    for round in 0..60 {
        let uid = if random.below(2) == 0 { 0 } else { 1000 };
        let user = Credentials { uid, gid: uid, groups: Some(Vec::new()), checked: false };
        let [batched, single] = [&batched, &single].map(|fs| fs.on_behalf_of(user.clone()));
        let kind = random.below(4) as usize;
        // Each path leads elsewhere, so that the order does not matter.
        let mut targets = BTreeMap::new();
        for _ in 0..random.below(80) {
            let path = random_path(&mut random);
            // Other paths lead through these links.
            if kind >= 2 && ["f/loop", "d/dangling"].map(Path::new).contains(&&*path) {
                continue;
            }
            let resolved = batched.resolve(path.parent().unwrap_or(Path::new("")), true);
            let parent = resolved.map_or_else(|_| Err(path.clone()), |attr| Ok(attr.ino));
            targets.entry((parent, path.file_name().map(ToOwned::to_owned))).or_insert(path);
        }
        let paths: Vec<PathBuf> = targets.into_values().collect();
        let actual = act_on_all(&batched, kind, &paths);
        assert_eq!(actual.len(), paths.len());
        for (path, actual) in paths.iter().zip(actual) {
            let expected = act(&single, kind, path);
            failed.extend(expected.err().map(|errno| errno.0));
            made += u32::from(kind == 2 && expected.is_ok());
            let context = format!("seed {seed}, round {round}, kind {kind}, user {uid}, {path:?}");
            assert_eq!(shown(actual), shown(expected), "{context}");
        }
    }
    let errors = [
        Errno::ENOENT,
        Errno::EEXIST,
        Errno::EACCES,
        Errno::ELOOP,
        Errno::EISDIR,
        Errno::ENAMETOOLONG,
    ];
    assert!(
        made > 50 && errors.iter().all(|errno| failed.contains(&errno.0)),
        "{made}, {failed:?}"
    );
    let batches = answered(&pools[0].0.daemons, "batch");
    assert!(batches > 30 && answered(&pools[1].0.daemons, "batch") == 0, "{batches} batches");
}

#[test]
fn results_on_one_node_are_those_of_single_requests() {
    (1..4).for_each(|seed| compare_with_single_requests(1, seed));
}

#[test]
fn results_on_three_nodes_are_those_of_single_requests() {
    (4..7).for_each(|seed| compare_with_single_requests(3, seed));
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

fn all_ok<T>(results: Results<T>) -> Vec<T> {
    results.into_iter().collect::<Result<Vec<T>, Errno>>().unwrap()
}

#[test]
fn many_operations_take_one_message_for_each_32() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let fs = attach(pool.nodes());
    let dir = fs.mkdir_all(Path::new("deep/below"), 0o755).unwrap().ino;
    let count = 10 * MAX_BATCH_REQUESTS + 5;
    let names = names("f", count);
    let before = answered(&pool.daemons, "batch");
    let made = all_ok(fs.create_many(dir, &names, 0o644));
    assert_eq!(made.iter().map(|attr| attr.ino).collect::<BTreeSet<_>>().len(), count);
    let looked_up = all_ok(fs.lookup_many(dir, &names));
    assert_eq!(looked_up, made);
    let paths: Vec<PathBuf> = names.iter().map(|name| Path::new("deep/below").join(name)).collect();
    assert_eq!(all_ok(fs.stat_many(Ino::ROOT, &paths, true)), made);
    all_ok(fs.unlink_many(Ino::ROOT, &paths));
    let batches = answered(&pool.daemons, "batch") - before;
    assert_eq!(batches, 4 * 11, "messages for four times {count} operations");
    let counts = ["mknod", "lookup", "unlink"].map(|kind| answered(&pool.daemons, kind));
    let directories = 2;
    assert_eq!(counts, [count as u64 + directories, count as u64, 0], "requests are counted, too");
    assert!(answered(&pool.daemons, "path") >= 2 * count as u64);
    let page = fs.read_dir(dir, 0, 1 << 16, false).unwrap();
    assert!(page.entries.iter().all(|entry| entry.name.starts_with(b".")), "{:?}", page.entries);
}

#[test]
fn requests_are_divided_by_node() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 64 << 20);
    let fs = attach(pool.nodes());
    let dirs = names("d", 12);
    for dir in &dirs {
        fs.mkdir(Ino::ROOT, dir.as_bytes(), 0o755).unwrap();
    }
    let paths: Vec<PathBuf> =
        (0..240).map(|number| Path::new(&dirs[number % 12]).join(format!("f{number}"))).collect();
    let made = all_ok(fs.create_many(Ino::ROOT, &paths, 0o600));
    let nodes: BTreeSet<_> = made.iter().map(|attr| attr.ino.metadata_node().0).collect();
    assert_eq!(nodes.len(), 3, "files are on all nodes");
    let before = answered(&pool.daemons, "batch");
    assert_eq!(all_ok(fs.stat_many(Ino::ROOT, &paths, false)), made);
    let batches = answered(&pool.daemons, "batch") - before;
    assert!(
        batches <= 8 + 9,
        "{batches}: 8 to the root's node, and at most 9 to those of directories"
    );
    all_ok(fs.unlink_many(Ino::ROOT, &paths));
    let absent = fs.stat_many(Ino::ROOT, &paths, false);
    assert!(absent.iter().all(|result| *result == Err(Errno::ENOENT)));
}

#[test]
fn small_files_are_stored_whole_in_batches() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 << 20);
        let fs = attach(pool.nodes());
        let dir = fs.mkdir(Ino::ROOT, b"dir", 0o755).unwrap().ino;
        fs.mkdir(dir, b"taken", 0o755).unwrap();
        let file = |name: &str, length| NewFile {
            name: name.as_bytes().to_vec(),
            set: SetAttr { mode: Some(0o640), ..SetAttr::default() },
            data: support::noise(length as u64, length as u64),
        };
        // Together they are longer than one message.
        let mut files: Vec<_> = names("f", 40).iter().map(|name| file(name, 15_000)).collect();
        files.push(file("taken", 5));
        files.push(file("long", MAX_INLINE_FILE_BYTES + 1));
        let stored = fs.put_files(dir, files.clone());
        for position in [40, 41] {
            let NewFile { name, set, data } = files[position].clone();
            assert_eq!(stored[position], Err(fs.put_file((dir, &name), set, data).unwrap_err()));
        }
        for (file, stored) in files.iter().zip(stored).take(40) {
            let stored = stored.unwrap();
            assert_eq!((stored.mode, stored.size), (0o640, 15_000));
            let (attr, data) = fs.fetch_file(stored.ino).unwrap();
            assert!(data == file.data && attr.ino == stored.ino);
        }
        let batches = answered(&pool.daemons, "batch");
        assert!((4..=8).contains(&batches), "{batches} batches");
    }
}

#[test]
fn small_files_are_fetched_in_batches() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 << 20);
        let fs = attach(pool.nodes());
        // The files of a directory are on its node.
        let dirs = names("d", 6);
        let mut files = Vec::new();
        for dir in &dirs {
            let parent = fs.mkdir(Ino::ROOT, dir.as_bytes(), 0o755).unwrap().ino;
            for (index, name) in names("f", 40).into_iter().enumerate() {
                let (set, data) = (SetAttr::default(), support::noise(15_000, index as u64));
                let attr = fs.put_file((parent, name.as_bytes()), set, data.clone()).unwrap();
                files.push((attr, data));
            }
        }
        let before = answered(&pool.daemons, "batch");
        let wanted: Vec<_> = files.iter().map(|(attr, _)| (attr.ino, attr.size)).collect();
        for (fetched, (attr, data)) in fs.fetch_files(&wanted).into_iter().zip(&files) {
            let (found, contents) = fetched.unwrap();
            assert!(found.ino == attr.ino && contents == *data);
        }
        let batches = answered(&pool.daemons, "batch") - before;
        // 13 fit into a message.
        assert!((19..=21).contains(&batches), "{batches} batches");

        // Longer than expected, empty, removed, no file, too long.
        let unexpected: Vec<_> = files.iter().take(40).map(|(attr, _)| (attr.ino, 0)).collect();
        let all = fs.fetch_files(&unexpected);
        assert!(
            all.iter().zip(&files).all(|(fetched, file)| fetched.as_ref().unwrap().1 == file.1)
        );
        let dir = fs.resolve(Path::new("d0"), true).unwrap().ino;
        let empty = fs.put_file((dir, b"empty"), SetAttr::default(), Vec::new()).unwrap().ino;
        fs.unlink(dir, b"f1").unwrap();
        let long = fs.create(dir, b"long", 0o600, false, support::READ_WRITE).unwrap();
        long.file.write_all_at(&[1; MAX_INLINE_FILE_BYTES + 1], 0).unwrap();
        let mixed = [empty, files[1].0.ino, dir, long.attr.ino, files[2].0.ino];
        let fetched = fs.fetch_files(&mixed.map(|ino| (ino, 100)));
        let single = mixed.map(|ino| fs.fetch_file(ino));
        assert_eq!(fetched, single);
        let errors = fetched.iter().map(|result| result.as_ref().err().copied());
        let expected =
            [None, Some(Errno::ESTALE), Some(Errno::EISDIR), Some(Errno::EOPNOTSUPP), None];
        assert_eq!(errors.collect::<Vec<_>>(), expected);
    }
}

/// The group of the users of an instance.
const GROUP: u32 = 2000;

#[test]
fn users_need_the_permissions_that_they_need_for_single_requests() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let start = |node| {
            let directory = temporary.dir(&format!("flash{node}"));
            Daemon::start(StoreOptions::new(directory)).unwrap()
        };
        let pool = Pool { daemons: (0..nodes).map(start).collect() };
        let admin = StripedAdmin::connect(pool.nodes(), &ClientOptions::default()).unwrap();
        let spec = InstanceSpec { gid: GROUP, mode: 0o777, ..spec(64 << 20) };
        admin.create_instance(&spec, STRIPE).unwrap();
        let owner = attach(pool.nodes());
        make_tree(&owner);
        let inside = names("private/g/n", 40);
        all_ok(owner.create_many(Ino::ROOT, &inside, 0o666));
        let private = owner.resolve(Path::new("private/g"), true).unwrap().ino;
        // A process of another user, whom the daemons do not trust.
        as_user(1000, GROUP, || {
            let fs = attach(pool.nodes());
            for results in [
                fs.stat_many(Ino::ROOT, &inside, true),
                fs.create_many(Ino::ROOT, &names("private/g/new", 40), 0o666),
            ] {
                assert!(results.iter().all(|result| *result == Err(Errno::EACCES)), "{results:?}");
            }
            // The number of an inode that it has not looked up.
            let guessed = fs.lookup_many(private, &names("n", 40));
            assert!(guessed.iter().all(|result| *result == Err(Errno::ESTALE)), "{guessed:?}");
            let home = fs.resolve(Path::new("a/b"), true).unwrap().ino;
            let made = all_ok(fs.create_many(home, &names("own", 40), 0o600));
            assert!(made.iter().all(|attr| attr.uid == 1000));
            // It got tags of all of them.
            let fetched =
                all_ok(fs.fetch_files(&made.iter().map(|a| (a.ino, 0)).collect::<Vec<_>>()));
            assert!(fetched.iter().zip(&made).all(|(fetched, attr)| fetched.0.ino == attr.ino));
            for attr in made {
                fs.get_attr(attr.ino).unwrap();
            }
            let mixed: Vec<String> =
                names("private/n", 3).into_iter().chain(names("a/b/own", 3)).collect();
            let removed = fs.unlink_many(Ino::ROOT, &mixed);
            let expected = [Err(Errno::EACCES), Err(Errno::EACCES), Err(Errno::EACCES)];
            assert_eq!(removed, [&expected[..], &[Ok(()), Ok(()), Ok(())]].concat());
        });
    }
}

fn options_with(system: Arc<dyn System>) -> ClientOptions {
    ClientOptions { system, timeout: Duration::from_secs(20), ..ClientOptions::default() }
}

#[test]
fn batches_whose_replies_are_lost_are_made_once() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 << 20);
        let network = FaultyNetwork::new(0, 7);
        let fs = Fs::attach(pool.nodes(), INSTANCE, options_with(Arc::new(network))).unwrap();
        for dir in ["x", "y", "z"] {
            fs.mkdir_all(Path::new(dir), 0o755).unwrap();
        }
        for round in 0..12 {
            let dir = ["x", "y", "z"][round % 3];
            let paths = names(&format!("{dir}/{round}-"), 150);
            // A create that is made twice is EEXIST, and a removal ENOENT.
            let made = all_ok(fs.create_many(Ino::ROOT, &paths, 0o644));
            assert_eq!(all_ok(fs.stat_many(Ino::ROOT, &paths, true)), made);
            all_ok(fs.unlink_many(Ino::ROOT, &paths[..75]));
        }
        let batches = answered(&pool.daemons, "batch");
        assert!(batches > 12 * 13, "some are repeated: {batches}");
    }
}

#[test]
fn creates_of_a_batch_are_made_once_when_the_daemon_is_killed() {
    let temporary = Temporary::new();
    let mut daemon = Process::start(&temporary.dir("flash"));
    make_instance(daemon.local(), 64 << 20);
    let fs = attach(daemon.local());
    let dir = fs.mkdir(Ino::ROOT, b"dir", 0o755).unwrap().ino;
    let is_done = AtomicBool::new(false);
    let mut made: BTreeMap<String, Ino> = BTreeMap::new();
    std::thread::scope(|scope| {
        let creator = scope.spawn(|| {
            let mut made = Vec::new();
            let mut round = 0;
            while !is_done.load(Ordering::Acquire) {
                let names = names(&format!("{round}-"), 100);
                let created = all_ok(fs.create_many(dir, &names, 0o644));
                made.extend(names.into_iter().zip(created.into_iter().map(|attr| attr.ino)));
                round += 1;
            }
            made
        });
        for kill in 0..12 {
            std::thread::sleep(Duration::from_millis(7 + 13 * kill));
            daemon.kill();
            daemon.restart();
        }
        is_done.store(true, Ordering::Release);
        made.extend(creator.join().unwrap());
    });
    let mut listed = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let page = fs.read_dir(dir, cookie, 1 << 16, false).unwrap();
        for entry in &page.entries {
            cookie = entry.cookie;
            let name = String::from_utf8(entry.name.clone()).unwrap();
            if !name.starts_with('.') {
                assert_eq!(listed.insert(name, entry.ino), None);
            }
        }
        if page.end {
            break;
        }
    }
    assert!(listed == made, "{} files of {} that were reported", listed.len(), made.len());
    assert!(made.len() > 1000, "{} files between the kills", made.len());
}

/// Daemons, some of which may be of a release without batches.
#[derive(Clone, Debug, Default)]
struct Releases {
    is_earlier: Arc<AtomicBool>,
    /// The next reply to a batch is lost, and the daemon replaced by one of an earlier release.
    downgrades: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Link {
    releases: Releases,
    connection: Connection,
    has_batch: bool,
}

impl System for Releases {
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        let connection = Os.connect(address, auth, timeout)?;
        Ok(Box::new(Link { releases: self.clone(), connection, has_batch: false }))
    }
}

impl Channel for Link {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.has_batch = matches!(call.request, Request::Batch(_));
        let is_earlier = self.releases.is_earlier.load(Ordering::Acquire);
        assert!(!(self.has_batch && is_earlier), "the earlier release cannot read it");
        self.connection.send(call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        let mut response = self.connection.receive(seq, into)?;
        if self.has_batch && self.releases.downgrades.swap(false, Ordering::AcqRel) {
            self.releases.is_earlier.store(true, Ordering::Release);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if let Reply::Attached { takes_batches, .. } = &mut response.reply
            && self.releases.is_earlier.load(Ordering::Acquire)
        {
            *takes_batches = TrailingField(false);
        }
        Ok(response)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.connection.set_timeout(timeout)
    }
}

#[test]
fn daemons_of_earlier_releases_get_single_requests() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 << 20);
        let releases = Releases::default();
        releases.is_earlier.store(true, Ordering::Release);
        let options = options_with(Arc::new(releases.clone()));
        let fs = Fs::attach(pool.nodes(), INSTANCE, options).unwrap();
        make_tree(&fs);
        let paths: Vec<String> =
            names("a/b/f", 40).into_iter().chain(names("absent/f", 2)).collect();
        let made = fs.create_many(Ino::ROOT, &paths, 0o644);
        assert_eq!(fs.stat_many(Ino::ROOT, &paths, true), made);
        assert_eq!(made.iter().filter(|result| result.is_ok()).count(), 40);
        assert_eq!(answered(&pool.daemons, "batch"), 0);
    }
}

/// Whether the requests of the batch were carried out is not known, so they must not be repeated.
#[test]
fn batch_in_flight_fails_if_the_daemon_is_replaced_by_an_earlier_release() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let releases = Releases::default();
    let options = options_with(Arc::new(releases.clone()));
    let fs = Fs::attach(pool.nodes(), INSTANCE, options).unwrap();
    let started = Instant::now();
    releases.downgrades.store(true, Ordering::Release);
    let made = fs.create_many(Ino::ROOT, &names("f", 20), 0o644);
    assert!(made.iter().all(|result| *result == Err(Errno::EIO)), "{made:?}");
    assert!(started.elapsed() < Duration::from_secs(10), "without a timeout");
    all_ok(fs.create_many(Ino::ROOT, &names("g", 20), 0o644));
    assert_eq!(answered(&pool.daemons, "batch"), 1);
}

#[test]
fn threads_with_many_batches_and_single_requests_do_not_wait_for_each_other() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 64 << 20);
    let options = ClientOptions { connections: 1, ..ClientOptions::default() };
    let fs = Fs::attach(pool.nodes(), INSTANCE, options).unwrap();
    let dirs = names("d", 8);
    for dir in &dirs {
        fs.mkdir(Ino::ROOT, dir.as_bytes(), 0o755).unwrap();
    }
    std::thread::scope(|scope| {
        for dir in &dirs {
            let fs = &fs;
            scope.spawn(move || {
                let paths = names(&format!("{dir}/f"), 300);
                all_ok(fs.create_many(Ino::ROOT, &paths, 0o644));
                fs.sync().unwrap();
                all_ok(fs.stat_many(Ino::ROOT, &paths, true));
                all_ok(fs.unlink_many(Ino::ROOT, &paths));
            });
        }
    });
}
