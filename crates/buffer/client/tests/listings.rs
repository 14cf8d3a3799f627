//! Number of requests of a listing with attributes from several nodes.

use crate::support;
use forebay_client::{DirPage, Fs};
use forebay_protocol::message::{OnExisting, XattrMode};
use forebay_protocol::{Errno, Ino};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Mounted, Pool, READ_WRITE, STRIPE, Temporary, attach};

const NODES: usize = 3;
const EACH: u64 = 200;

/// Number of requests so far, by kind.
fn counts(pool: &Pool) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for daemon in &pool.daemons {
        for (kind, requests) in daemon.stats().collect_report(Duration::ZERO).requests {
            *all.entry(kind).or_default() += requests.latency.count();
        }
    }
    all
}

fn pages(fs: &Fs, dir: Ino) -> Vec<DirPage> {
    let mut pages: Vec<DirPage> = Vec::new();
    while pages.last().is_none_or(|page| !page.end) {
        let last = pages.last().and_then(|page| page.entries.last());
        let behind = last.map_or(0, |entry| entry.cookie);
        pages.push(fs.read_dir(dir, behind, 1 << 16, true).unwrap());
    }
    pages
}

/// Directories are distributed by their names, a file is on the node of the directory in which it was
/// created, and the length of a file that is being written is known to its data objects only.
#[test]
fn listing_page_takes_a_few_requests_per_node() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, NODES, 64 << 20);
    // With another client nothing is cached.
    let (fs, beside) = (attach(pool.nodes()), attach(pool.nodes()));
    let dir = fs.mkdir(Ino::ROOT, b"dir", 0o755).unwrap().ino;
    let mut open = Vec::new();
    let mut others = Vec::new();
    for number in 0..EACH {
        let name = |what: &str| format!("{what}{number}").into_bytes();
        let other = fs.mkdir(dir, &name("dir"), 0o755).unwrap().ino;
        let (moved, file) = (name("moved"), name("open"));
        drop(fs.create(other, &moved, 0o640, true, READ_WRITE).unwrap());
        fs.rename((other, &moved), (dir, &moved), OnExisting::Fail).unwrap();
        let file = fs.create(dir, &file, 0o600, true, READ_WRITE).unwrap().file;
        file.write_all_at(b"end", number % 4 * STRIPE).unwrap();
        open.push(file);
        others.push(other);
    }
    assert!(others.iter().any(|other| other.metadata_node() != dir.metadata_node()));

    let before = counts(&pool);
    let pages = pages(&beside, dir);
    let after = counts(&pool);
    let rise = |kind: &str| after[kind] - before[kind];
    let kinds = ["readdir", "getattr", "getattrs", "stat_objects"].map(rise);
    let (asked, nodes) = (pages.len() as u64, NODES as u64);
    assert!(asked < EACH / 10, "{asked} pages");
    assert_eq!(kinds[..2], [asked, 0]);
    assert!((1..=asked * (nodes - 1)).contains(&kinds[2]), "{kinds:?}");
    assert!((1..=asked * nodes).contains(&kinds[3]), "{kinds:?}");

    // The attributes are those of single requests.
    let mut count = 0;
    for entry in pages.iter().flat_map(|page| &page.entries) {
        let attr = entry.attr.unwrap();
        assert_eq!((attr.ino, attr.kind), (entry.ino, entry.kind));
        assert_eq!(attr, fs.get_attr(entry.ino).unwrap());
        if let Some(number) = entry.name.strip_prefix(b"open") {
            let number: u64 = std::str::from_utf8(number).unwrap().parse().unwrap();
            assert_eq!(attr.size, number % 4 * STRIPE + 3);
        }
        count += 1;
    }
    assert_eq!(count, 3 * EACH);
}

/// An entry that is removed between the two requests has no attributes; the others have theirs.
#[test]
fn listing_page_with_removed_files_is_read() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, NODES, 64 << 20);
    let (fs, beside) = (attach(pool.nodes()), attach(pool.nodes()));
    let dir = fs.mkdir(Ino::ROOT, b"dir", 0o755).unwrap().ino;
    let done = AtomicBool::new(false);
    for number in 0..EACH {
        let name = format!("kept{number}");
        fs.mkdir(dir, name.as_bytes(), 0o755).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..EACH {
                let name = format!("gone{number}").into_bytes();
                fs.mkdir(dir, &name, 0o755).unwrap();
                fs.rmdir(dir, &name).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let entries = pages(&beside, dir).into_iter().flat_map(|page| page.entries);
            let kept = entries.filter(|entry| entry.name.starts_with(b"kept"));
            assert_eq!(kept.filter(|entry| entry.attr.is_some()).count() as u64, EACH);
        }
    });
}

/// `ls -l` requests the label of every file until `EOPNOTSUPP`.
#[test]
fn unsupported_xattrs_take_no_requests() {
    let mounted = Mounted::new(NODES, 64 << 20);
    let file = mounted.path.join("file");
    std::fs::write(&file, "text").unwrap();
    let get = |name: &str| rustix::fs::getxattr(&file, name, &mut [0u8; 100]);
    let before = counts(&mounted.pool);
    assert_eq!(get("security.selinux"), Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(get("user.none"), Err(rustix::io::Errno::NODATA));
    let after = counts(&mounted.pool);
    assert_eq!(after["getxattr"] - before["getxattr"], 1);
    for (name, set) in [
        ("security.selinux", Err(Errno::EOPNOTSUPP)),
        ("system.posix_acl_access", Err(Errno::EINVAL)),
        ("security.capability", Ok(())),
    ] {
        let fs = attach(mounted.pool.nodes());
        let ino = fs.lookup(Ino::ROOT, b"file").unwrap().ino;
        assert_eq!(fs.set_xattr(ino, name.as_bytes(), b"x", XattrMode::Any), set);
    }
}

/// The object of a file on the only node, which a failing device cannot read.
fn remove_object(flash: &std::path::Path, ino: Ino) {
    let mut folders = vec![flash.join("objects")];
    let name = format!("{:016x}", ino.0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == name.as_str() {
                return std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }
    panic!("inode {ino} has no object");
}

#[test]
fn unreadable_object_does_not_hide_the_other_entries() {
    let mounted = Mounted::new(1, 16 << 20);
    let fs = attach(mounted.pool.nodes());
    let put = |name: &str| {
        let set = forebay_protocol::message::SetAttr::default();
        fs.put_file((Ino::ROOT, name.as_bytes()), set, b"data".to_vec()).unwrap().ino
    };
    let inos = ["a", "b", "c"].map(put);
    remove_object(&mounted.temporary.dir("flash0"), inos[1]);
    let listed: Vec<_> = pages(&fs, Ino::ROOT).into_iter().flat_map(|page| page.entries).collect();
    let sizes: Vec<_> = listed.iter().map(|entry| entry.attr.map(|attr| attr.size)).collect();
    assert_eq!(sizes, [Some(4), None, Some(4)]);
    assert_eq!(support::shell(&mounted.path, "ls -1f | sort"), ".\n..\na\nb\nc\n");
    assert_eq!(support::shell(&mounted.path, "cat a c"), "datadata");
    assert!(fs.get_attr(inos[1]).is_err());
}
