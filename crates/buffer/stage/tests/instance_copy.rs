//! The copy of a whole instance to another one.

use crate::support;
use std::path::Path;
use std::sync::Arc;

use forebay_client::{Admin, ClientOptions, Fs};
use forebay_protocol::message::{InstanceSpec, NewInode, OpenMode, SetAttr, SetTime, XattrMode};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Attr, FileKind, Ino, InstanceId, Timestamp};
use forebay_stage::{ItemKind, Namespace, StageLocation, StageOptions, StageRequest, Verify};
use support::{Buffer, Sides, noise, one, run, sides};

const COPY: InstanceId = InstanceId(2);
const ACL: &[u8] = b"system.posix_acl_access";

/// An empty second instance.
fn second_instance(sides: &Sides) -> Buffer {
    let admin = Admin::connect(sides.daemon.address(), ClientOptions::default()).unwrap();
    let spec = InstanceSpec {
        id: COPY,
        uid: 0,
        gid: 0,
        mode: 0o777,
        capacity: 1 << 30,
        inodes: 100_000,
        placement: Placement::single_node(),
    };
    admin.create_instance(spec).unwrap();
    let fs = Fs::attach(sides.daemon.address(), COPY, ClientOptions::default()).unwrap();
    // As the node does when a mover attaches it.
    fs.mkdir_all(Path::new("striped"), 0o755).unwrap();
    Buffer::of(fs)
}

fn request(from: &Fs, to: &Fs) -> StageRequest {
    let root = |fs: &Fs, name: &str| Namespace::new(fs.clone(), Path::new(""), name).unwrap();
    let location = |space: &Arc<Namespace>| StageLocation::in_instance(space, "");
    one(ItemKind::Directory, location(&root(from, "from")), location(&root(to, "to")))
}

fn options() -> StageOptions {
    StageOptions { verify: Verify::ReadBack, workers: 2, ..StageOptions::default() }
}

fn ino(fs: &Fs, path: &str) -> Ino {
    fs.resolve(Path::new(path), false).unwrap().ino
}

/// A default ACL entry list: owner, user 7, group, mask, others.
fn acl() -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in
        [(1u16, 6u16, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// What a copy preserves of an entry besides contents.
fn kept(attr: &Attr) -> (FileKind, u16, (u32, u32), u32, u32, Timestamp) {
    (attr.kind, attr.mode, (attr.uid, attr.gid), attr.nlink, attr.rdev, attr.mtime)
}

#[test]
fn copy_has_all_that_users_have_stored() {
    let sides = sides();
    let (from, to) = (&sides.buffer, second_instance(&sides));
    let fs = &from.fs;
    fs.mkdir_all(Path::new("striped/a/empty"), 0o750).unwrap();
    fs.mkdir_all(Path::new("private/nid0"), 0o700).unwrap();
    from.write("a/small", b"small");
    from.write("a/large", &noise(3 << 20, 7));
    from.write("none", b"");
    let directory = ino(fs, "striped/a");
    let link = NewInode::Symlink(b"/anywhere".to_vec());
    fs.make_inode(directory, b"link", link, 0o777).unwrap();
    fs.link(ino(fs, "striped/a/large"), directory, b"other name").unwrap();
    let create = OpenMode { write: true, descriptor: true, ..OpenMode::default() };
    let sparse = fs.create_path(Path::new("private/nid0/sparse"), 0o600, create).unwrap();
    sparse.file.write_all_at(b"end", 1 << 20).unwrap();
    drop(sparse);
    for (name, kind, device) in [
        ("pipe", FileKind::Fifo, 0),
        ("socket", FileKind::Socket, 0),
        ("null", FileKind::CharDevice, 0x103),
    ] {
        fs.make_inode(directory, name.as_bytes(), NewInode::Node(kind, device), 0o640).unwrap();
    }
    let small = ino(fs, "striped/a/small");
    fs.set_xattr(small, b"user.note", b"kept", XattrMode::Any).unwrap();
    fs.set_xattr(small, ACL, &acl(), XattrMode::Any).unwrap();
    fs.link(ino(fs, "striped/a/pipe"), directory, b"pipe again").unwrap();
    for path in ["striped/a/pipe", "striped/a/small", "striped/a/empty", "striped/a", "striped"] {
        let set = SetAttr {
            uid: Some(1000),
            gid: Some(100),
            mtime: Some(SetTime::At(Timestamp { secs: 1_000_000, nanos: 5 })),
            ..SetAttr::default()
        };
        fs.set_attr(ino(fs, path), None, set).unwrap();
    }
    let report = run(&request(fs, &to.fs), &options()).unwrap();
    assert_eq!(report.hard_links, 2);
    assert!(report.read_back >= 3 << 20, "{report:?}");
    for path in [
        "striped",
        "striped/a",
        "striped/a/empty",
        "striped/a/small",
        "striped/a/large",
        "striped/a/other name",
        "striped/none",
        "striped/a/pipe",
        "striped/a/pipe again",
        "striped/a/socket",
        "striped/a/null",
        "private/nid0",
        "private/nid0/sparse",
    ] {
        let of = |fs: &Fs| fs.resolve(Path::new(path), false).unwrap();
        assert_eq!(kept(&of(&to.fs)), kept(&of(fs)), "{path}");
    }
    assert_eq!(to.read("a/small"), b"small");
    assert_eq!(to.read("a/large"), noise(3 << 20, 7));
    assert_eq!(to.fs.read_link(ino(&to.fs, "striped/a/link")).unwrap(), b"/anywhere");
    let same = |a: &str, b: &str| assert_eq!(ino(&to.fs, a), ino(&to.fs, b), "hard link {b}");
    same("striped/a/large", "striped/a/other name");
    same("striped/a/pipe", "striped/a/pipe again");
    let small = ino(&to.fs, "striped/a/small");
    assert_eq!(to.fs.get_xattr(small, b"user.note").unwrap(), b"kept");
    assert_eq!(to.fs.get_xattr(small, ACL).unwrap(), acl());
    let sparse = to.fs.resolve(Path::new("private/nid0/sparse"), false).unwrap();
    assert_eq!(sparse.size, (1 << 20) + 3);
    assert!(sparse.blocks * 512 < 1 << 20, "holes stay holes: {} blocks", sparse.blocks);
}

/// A copy that was interrupted finds its special files there.
#[test]
fn second_run_replaces_special_files() {
    let sides = sides();
    let (from, to) = (&sides.buffer, second_instance(&sides));
    let directory = ino(&from.fs, "striped");
    let pipe = NewInode::Node(FileKind::Fifo, 0);
    from.fs.make_inode(directory, b"pipe", pipe, 0o640).unwrap();
    for _ in 0..2 {
        run(&request(&from.fs, &to.fs), &options()).unwrap();
    }
    assert_eq!(to.entries("").len(), 1, "the pipe");
    assert_eq!(to.attr("pipe").unwrap().kind, FileKind::Fifo);
}
