//! Inode numbers are no way around directories that a user may not search.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::{ClientOptions, Fs, NodeAddresses};
use forebay_protocol::message::{InstanceSpec, NewInode, SetAttr, XattrMode};
use forebay_protocol::{Errno, Ino};
use forebay_store::daemon::{Daemon, StoreOptions};
use std::path::Path;
use std::sync::mpsc::channel;
use support::striped_admin::StripedAdmin;
use support::{READ, READ_WRITE, STRIPE, Temporary, as_user_in, attach, spec};

const OWNER: u32 = 1000;
const STRANGER: u32 = 1001;
const GROUP: u32 = 2000;

/// Daemons with an instance of `OWNER` that the members of `GROUP` may use.
fn shared_instance(temporary: &Temporary, nodes: usize) -> Vec<Daemon> {
    let start =
        |node| Daemon::start(StoreOptions::new(temporary.dir(&format!("flash{node}")))).unwrap();
    let daemons: Vec<Daemon> = (0..nodes).map(start).collect();
    let admin = StripedAdmin::connect(addresses(&daemons), &ClientOptions::default()).unwrap();
    let spec = InstanceSpec { uid: OWNER, gid: GROUP, mode: 0o770, ..spec(64 << 20) };
    admin.create_instance(&spec, STRIPE).unwrap();
    daemons
}

fn start_daemons(temporary: &Temporary, nodes: usize) -> Vec<Daemon> {
    let directory = |node| temporary.dir(&format!("flash{node}"));
    let start = |node| Daemon::start(StoreOptions::new(directory(node))).unwrap();
    (0..nodes).map(start).collect()
}

fn addresses(daemons: &[Daemon]) -> NodeAddresses {
    NodeAddresses::from(daemons.iter().map(Daemon::address).collect::<Vec<_>>())
}

/// Runs `act` as a member of the group, in a session of its own.
fn as_member<T: Send>(uid: u32, daemons: &[Daemon], act: impl FnOnce(Fs) -> T + Send) -> T {
    as_user_in(uid, GROUP, &[], || act(attach(addresses(daemons))))
}

/// The inodes of a directory that only its owner may search, and of what it contains.
struct Private {
    dir: Ino,
    file: Ino,
    symlink: Ino,
    below: Ino,
}

/// Everything in it is accessible to all users by its own mode.
fn make_private(fs: &Fs) -> Private {
    let dir = fs.mkdir(Ino::ROOT, b"private", 0o755).unwrap().ino;
    let below = fs.mkdir(dir, b"below", 0o777).unwrap().ino;
    let all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    fs.set_attr(below, None, all).unwrap();
    let created = fs.create(dir, b"file", 0o666, true, READ_WRITE).unwrap();
    let file = created.attr.ino;
    fs.set_attr(file, None, SetAttr { mode: Some(0o666), ..SetAttr::default() }).unwrap();
    created.file.write_at(b"secret", 0).unwrap();
    fs.set_xattr(file, b"user.key", b"value", XattrMode::Any).unwrap();
    let target = NewInode::Symlink(b"target".to_vec());
    let symlink = fs.make_inode(dir, b"symlink", target, 0o777).unwrap().ino;
    Private { dir, file, symlink, below }
}

fn make_private_with_mode(daemons: &[Daemon], mode: u16) -> Private {
    as_member(OWNER, daemons, |fs| {
        let private = make_private(&fs);
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        fs.set_attr(private.dir, None, set).unwrap();
        private
    })
}

/// The results of all requests that name an inode below the directory.
fn attempts(fs: &Fs, private: &Private) -> Vec<(&'static str, Result<(), Errno>)> {
    let Private { dir, file, symlink, below } = *private;
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    vec![
        ("open", fs.open(file, READ).map(drop)),
        ("open for writing", fs.open(file, READ_WRITE).map(drop)),
        ("get attributes", fs.get_attr(file).map(drop)),
        ("set attributes", fs.set_attr(file, None, set).map(drop)),
        ("access", fs.access(file, 4)),
        ("link", fs.link(file, Ino::ROOT, b"linked").map(drop)),
        ("get extended attribute", fs.get_xattr(file, b"user.key").map(drop)),
        ("list extended attributes", fs.list_xattr(file).map(drop)),
        ("set extended attribute", fs.set_xattr(file, b"user.key", b"", XattrMode::Any)),
        ("remove extended attribute", fs.remove_xattr(file, b"user.key")),
        ("read link", fs.read_link(symlink).map(drop)),
        ("look up in the directory", fs.lookup(dir, b"file").map(drop)),
        ("look up below", fs.lookup(below, b"..").map(drop)),
        ("list below", fs.read_dir(below, 0, 4096, true).map(drop)),
        ("create below", fs.create(below, b"new", 0o600, true, READ_WRITE).map(drop)),
        ("make directory below", fs.mkdir(below, b"new dir", 0o700).map(drop)),
    ]
}

fn check_strangers(nodes: usize) {
    let temporary = Temporary::new();
    let daemons = shared_instance(&temporary, nodes);
    let private = make_private_with_mode(&daemons, 0o700);
    let results = as_member(STRANGER, &daemons, |fs| {
        assert!(fs.lookup(Ino::ROOT, b"private").is_ok(), "its own attributes are visible");
        attempts(&fs, &private)
    });
    let allowed: Vec<_> = results.iter().filter(|(_, result)| result.is_ok()).collect();
    assert!(allowed.is_empty(), "{nodes} nodes: {allowed:?}");
    as_member(OWNER, &daemons, |fs| {
        let opened = fs.open_path(Path::new("private/file"), READ).unwrap();
        assert_eq!(opened.attr.size, 6, "nothing has changed");
    });
}

#[test]
fn strangers_reach_nothing_by_number_on_one_node() {
    check_strangers(1);
}

#[test]
fn strangers_reach_nothing_by_number_on_three_nodes() {
    check_strangers(3);
}

/// The attributes of a file that the session has looked up, and its first bytes.
fn check_access(fs: &Fs, file: Ino) {
    assert_eq!(fs.get_attr(file).unwrap().size, 6);
    let mut data = [0; 6];
    fs.open(file, READ).unwrap().file.read_at(&mut data, 0).unwrap();
    assert_eq!(&data, b"secret");
}

fn check_numbers_outlive_restart(nodes: usize) {
    let temporary = Temporary::new();
    let daemons = shared_instance(&temporary, nodes);
    let private = as_member(OWNER, &daemons, |fs| make_private(&fs));
    let nodes = addresses(&daemons);
    let (used, await_used) = channel();
    let (restarted, await_restarted) = channel();
    let use_file = move || {
        let fs = attach(nodes);
        let opened = fs.open_path(Path::new("private/file"), READ_WRITE).unwrap();
        assert_eq!(opened.attr.ino, private.file);
        let below = fs.resolve(Path::new("private/below"), true).unwrap().ino;
        let listed = fs.read_dir(Ino::ROOT, 0, 4096, true).unwrap().entries;
        let dir = listed.iter().find(|entry| entry.name == b"private").unwrap().ino;
        check_access(&fs, private.file);
        used.send(()).unwrap();
        await_restarted.recv().unwrap();
        opened.file.write_at(b"secret", 0).unwrap();
        check_access(&fs, private.file);
        assert!(fs.lookup(dir, b"file").is_ok(), "a listing shows inodes that may be used");
        assert!(fs.create(below, b"new", 0o600, true, READ_WRITE).unwrap().created);
    };
    std::thread::scope(|scope| {
        let user = scope.spawn(move || as_user_in(STRANGER, GROUP, &[], use_file));
        await_used.recv().unwrap();
        let count = daemons.len();
        daemons.into_iter().for_each(|daemon| daemon.stop().unwrap());
        let _daemons = start_daemons(&temporary, count);
        restarted.send(()).unwrap();
        user.join().unwrap();
    });
}

#[test]
fn numbers_and_open_files_of_a_session_outlive_a_restart() {
    check_numbers_outlive_restart(1);
}

#[test]
fn numbers_and_open_files_of_a_session_outlive_a_restart_of_three_nodes() {
    check_numbers_outlive_restart(3);
}

#[test]
fn listing_without_search_permission_shows_names_only() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let daemons = shared_instance(&temporary, nodes);
        let private = make_private_with_mode(&daemons, 0o744);
        as_member(STRANGER, &daemons, |fs| {
            let dir = fs.lookup(Ino::ROOT, b"private").unwrap().ino;
            let entries = fs.read_dir(dir, 0, 4096, true).unwrap().entries;
            assert_eq!(entries.len(), 3);
            assert!(entries.iter().all(|entry| entry.attr.is_none()), "{entries:?}");
            assert_eq!(fs.get_attr(private.file).unwrap_err(), Errno::ESTALE);
        });
    }
}
