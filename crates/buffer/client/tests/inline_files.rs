//! Small files that are created and read with one request each.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs, NodeAddresses};
use forebay_protocol::message::{MAX_INLINE_FILE_BYTES, SetAttr, SetTime};
use forebay_protocol::{Errno, FileKind, Ino, Timestamp};
use forebay_store::daemon::{self, Daemon};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use support::{INSTANCE, Pool, READ, READ_WRITE, STRIPE, Temporary, as_user, attach, users_pool};

const WHEN: Timestamp = Timestamp { secs: 1_000_000_000, nanos: 5 };

fn like(mode: u16) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        atime: Some(SetTime::At(WHEN)),
        mtime: Some(SetTime::At(WHEN)),
        ..SetAttr::default()
    }
}

/// The contents of `name`, read through an open file.
fn opened(fs: &Fs, parent: Ino, name: &[u8]) -> Vec<u8> {
    let attr = fs.lookup(parent, name).unwrap();
    let file = fs.open(attr.ino, READ).unwrap().file;
    let mut bytes = vec![0; attr.size as usize + 1];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

fn check_inline_files(nodes: NodeAddresses) {
    let fs = attach(nodes);
    for directory in 0..8 {
        let name = format!("d{directory}");
        fs.mkdir_all(Path::new(&name), 0o755).unwrap();
        let parent = fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino;
        for length in [0, 1, 4096, 10_000, STRIPE as usize] {
            let data: Vec<u8> = (0..length).map(|i| (i * 7 + directory) as u8).collect();
            let name = format!("f{length}").into_bytes();
            let attr = fs.put_file((parent, &name), like(0o640), data.clone()).unwrap();
            assert_eq!((attr.kind, attr.mode), (FileKind::File, 0o640));
            assert_eq!((attr.size, attr.nlink), (length as u64, 1));
            assert_eq!((attr.atime, attr.mtime), (WHEN, WHEN));
            assert_eq!(opened(&fs, parent, &name), data);
            let (found, bytes) = fs.fetch_file(attr.ino).unwrap();
            assert_eq!((found.mode, found.size, found.mtime), (0o640, attr.size, WHEN));
            assert_eq!(bytes, data);
            // Fetching a file does not change its access time.
            assert_eq!(fs.get_attr(attr.ino).unwrap().ctime, found.ctime);
            // It can be written like any other file.
            let file = fs.open(attr.ino, READ_WRITE).unwrap().file;
            file.write_all_at(b"more", length as u64).unwrap();
            drop(file);
            let longer = fs.get_attr(attr.ino).unwrap();
            assert_eq!(longer.size, length as u64 + 4);
            assert!(longer.mtime > WHEN);
        }
    }
    fs.sync().unwrap();
}

#[test]
fn inline_file_is_written_and_read_in_one_request() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    check_inline_files(pool.nodes());
}

#[test]
fn inline_file_is_written_and_read_over_several_nodes() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 96 << 20);
    check_inline_files(pool.nodes());
    let fs = attach(pool.nodes());
    let long = vec![1; STRIPE as usize + 1];
    let refused = fs.put_file((Ino::ROOT, b"long"), like(0o600), long);
    assert_eq!(refused.map(|_| ()), Err(Errno::EOPNOTSUPP));
    // A file with another metadata node cannot be replaced in one request.
    let elsewhere = (0..8)
        .map(|i| fs.lookup(Ino::ROOT, format!("d{i}").as_bytes()).unwrap().ino)
        .find(|dir| dir.metadata_node() != Ino::ROOT.metadata_node())
        .unwrap();
    let there = fs.lookup(elsewhere, b"f1").unwrap();
    fs.link(there.ino, Ino::ROOT, b"taken").unwrap();
    let refused = fs.put_file((Ino::ROOT, b"taken"), like(0o600), vec![1]);
    assert_eq!(refused.map(|_| ()), Err(Errno::EOPNOTSUPP));
    assert_eq!(fs.lookup(Ino::ROOT, b"taken").unwrap().ino, there.ino);
}

#[test]
fn inline_file_replaces_existing_entry() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let fs = attach(pool.nodes());
    let put = |name: &[u8], data: &[u8]| fs.put_file((Ino::ROOT, name), like(0o600), data.to_vec());
    let old = put(b"f", b"old").unwrap();
    let kept = fs.open(old.ino, READ).unwrap().file;
    fs.link(old.ino, Ino::ROOT, b"other").unwrap();
    let new = put(b"f", b"newer").unwrap();
    assert_ne!(new.ino, old.ino);
    assert_eq!(opened(&fs, Ino::ROOT, b"f"), b"newer");
    assert_eq!(opened(&fs, Ino::ROOT, b"other"), b"old");
    assert_eq!(fs.lookup(Ino::ROOT, b"other").unwrap().nlink, 1);
    fs.unlink(Ino::ROOT, b"other").unwrap();
    let mut bytes = [0; 4];
    assert_eq!(kept.read_at(&mut bytes, 0), Ok(3));
    fs.mkdir(Ino::ROOT, b"d", 0o755).unwrap();
    let refused = |name: &[u8]| put(name, b"").map(|_| ()).unwrap_err();
    assert_eq!(refused(b"d"), Errno::EISDIR);
    assert_eq!(refused(b".."), Errno::EINVAL);
    assert_eq!(refused(b"a/b"), Errno::EINVAL);
    assert_eq!(refused(&[b'n'; 256]), Errno::ENAMETOOLONG);
    let into_file = fs.put_file((new.ino, b"x"), like(0o600), Vec::new());
    assert_eq!(into_file.map(|_| ()), Err(Errno::ENOTDIR));
    let sized = SetAttr { size: Some(5), ..like(0o600) };
    let refused = fs.put_file((Ino::ROOT, b"s"), sized, Vec::new());
    assert_eq!(refused.map(|_| ()), Err(Errno::EINVAL));
    let refused = put(b"long", &vec![0; MAX_INLINE_FILE_BYTES + 1]);
    assert_eq!(refused.map(|_| ()), Err(Errno::EOPNOTSUPP));
    // Longer files and other inodes are not fetched.
    let long = fs.create(Ino::ROOT, b"long", 0o600, true, READ_WRITE).unwrap();
    long.file.write_all_at(&vec![1; MAX_INLINE_FILE_BYTES + 1], 0).unwrap();
    assert_eq!(fs.fetch_file(long.attr.ino).map(|_| ()), Err(Errno::EOPNOTSUPP));
    assert_eq!(fs.fetch_file(Ino::ROOT).map(|_| ()), Err(Errno::EISDIR));
    assert_eq!(fs.fetch_file(Ino(999)).map(|_| ()), Err(Errno::ESTALE));
    // The attributes show that there are extended attributes.
    assert!(!fs.fetch_file(new.ino).unwrap().0.extended);
    let any = forebay_protocol::message::XattrMode::Any;
    fs.set_xattr(new.ino, b"user.a", b"b", any).unwrap();
    assert!(fs.fetch_file(new.ino).unwrap().0.extended);
}

#[test]
fn inline_requests_check_the_same_permissions() {
    let temporary = Temporary::new();
    let options = daemon::StoreOptions::new(temporary.dir("flash"));
    let daemon = users_pool(options, 0o770);
    let once = ClientOptions { timeout: std::time::Duration::ZERO, ..ClientOptions::default() };
    let attach = || Fs::attach(daemon.address(), INSTANCE, once.clone()).unwrap();
    as_user(1000, 2000, || {
        let fs = attach();
        let created = fs.put_file((Ino::ROOT, b"secret"), like(0o6700), b"mine".to_vec());
        let created = created.unwrap();
        assert_eq!((created.uid, created.gid, created.mode), (1000, 2000, 0o6700));
        let given = SetAttr { uid: Some(1001), ..like(0o600) };
        let refused = fs.put_file((Ino::ROOT, b"given"), given, Vec::new());
        assert_eq!(refused.map(|_| ()), Err(Errno::EPERM));
        assert_eq!(fs.lookup(Ino::ROOT, b"given").map(|_| ()), Err(Errno::ENOENT));
        let sticky = fs.mkdir(Ino::ROOT, b"sticky", 0o777).unwrap().ino;
        let mode = SetAttr { mode: Some(0o3777), ..SetAttr::default() };
        fs.set_attr(sticky, None, mode).unwrap();
        fs.put_file((sticky, b"owned"), like(0o666), Vec::new()).unwrap();
        fs.mkdir(Ino::ROOT, b"closed", 0o700).unwrap();
    });
    as_user(1001, 2000, || {
        let fs = attach();
        let found = |name: &[u8]| fs.lookup(Ino::ROOT, name).unwrap().ino;
        let (secret, sticky, closed) = (found(b"secret"), found(b"sticky"), found(b"closed"));
        let put =
            |at, set| fs.put_file(at, set, b"theirs".to_vec()).map(|attr| (attr.uid, attr.gid));
        assert_eq!(fs.fetch_file(secret).map(|_| ()), Err(Errno::EACCES));
        assert_eq!(put((closed, b"f"), like(0o600)), Err(Errno::EACCES));
        assert_eq!(put((sticky, b"owned"), like(0o600)), Err(Errno::EPERM));
        assert_eq!(put((sticky, b"f"), like(0o600)), Ok((1001, 2000)));
        assert_eq!(put((Ino::ROOT, b"secret"), like(0o600)), Ok((1001, 2000)));
    });
    let fs = attach();
    let given = SetAttr { uid: Some(7), gid: Some(8), ..like(0o4755) };
    let given = fs.put_file((Ino::ROOT, b"given"), given, Vec::new()).unwrap();
    assert_eq!((given.uid, given.gid, given.mode), (7, 8, 0o4755));
}

#[test]
fn inline_files_are_limited_by_capacity() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 1 << 20);
    let fs = attach(pool.nodes());
    let mut created = 0;
    let refused = loop {
        let name = format!("f{created}").into_bytes();
        match fs.put_file((Ino::ROOT, &name), like(0o600), vec![1; 60_000]) {
            Ok(_) => created += 1,
            Err(errno) => break errno,
        }
    };
    assert_eq!((created, refused), (17, Errno::ENOSPC));
    let used = fs.statfs().unwrap();
    assert!(used.used <= used.capacity && used.inodes_used == created + 1);
    fs.unlink(Ino::ROOT, b"f0").unwrap();
    fs.put_file((Ino::ROOT, b"again"), like(0o600), vec![1; 60_000]).unwrap();
}

/// The data object of a file.
fn object(temporary: &Temporary, ino: Ino) -> PathBuf {
    let objects = temporary.0.join(format!("flash0/objects/{:016x}", INSTANCE.0));
    objects.join(format!("{:02x}/{:016x}", ino.0 % 64, ino.0))
}

#[test]
fn inline_file_has_checksums_and_damaged_data_are_not_returned() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 1, 64 << 20);
    let fs = attach(pool.nodes());
    let created = fs.put_file((Ino::ROOT, b"f"), like(0o600), vec![7; 5000]);
    let ino = created.unwrap().ino;
    let admin = Admin::connect(pool.daemons[0].address(), ClientOptions::default()).unwrap();
    let scrubbed = admin.scrub(INSTANCE).unwrap();
    assert_eq!((scrubbed.intact, scrubbed.bytes), (1, 5000));
    let path = object(&temporary, ino);
    let damaged = std::fs::File::options().write(true).open(path).unwrap();
    damaged.write_all_at(&[8], 4000).unwrap();
    let times = std::fs::FileTimes::new()
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5));
    damaged.set_times(times).unwrap();
    assert_eq!(fs.fetch_file(ino).map(|_| ()), Err(Errno::EIO));
    assert_eq!(admin.scrub(INSTANCE).unwrap().damaged, [(ino, 0)]);
}

#[test]
fn inline_file_survives_daemon_restart() {
    let temporary = Temporary::new();
    let flash = temporary.dir("flash");
    let start = || Daemon::start(daemon::StoreOptions::new(&flash)).unwrap();
    let daemon = start();
    support::make_instance(daemon.address(), 64 << 20);
    let fs = attach(daemon.address());
    let created = fs.put_file((Ino::ROOT, b"f"), like(0o644), b"data".to_vec());
    let ino = created.unwrap().ino;
    daemon.stop().unwrap();
    let daemon = start();
    let (attr, data) = fs.fetch_file(ino).unwrap();
    assert_eq!((attr.mode, attr.mtime, data), (0o644, WHEN, b"data".to_vec()));
    fs.sync().unwrap();
    drop(fs);
    daemon.stop().unwrap();
}
