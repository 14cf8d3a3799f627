//! Set-id bits and file capabilities of a program, which a change of its contents removes.
//!
//! Each check of mounts runs on a local file system, too. Needs root, because it acts as several users.

use crate::support;
use forebay_client::{ClientOptions, Fs, NodeAddresses};
use forebay_protocol::message::{CAPABILITY_XATTR, InstanceSpec, SetAttr, XattrMode};
use forebay_protocol::{Credentials, Errno as FsErrno, Ino};
use forebay_store::daemon::{Daemon, StoreOptions};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, StatxFlags, XattrFlags, fallocate, getxattr, listxattr,
    removexattr, setxattr, statx,
};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use support::striped_admin::StripedAdmin;
use support::{
    Pool, READ, READ_WRITE, STRIPE, Temporary, as_user, attach, on_all, spec,
    wait_until_attributes_are_cached,
};

/// The mode alone, which the kernel takes from its cache although other attributes there are out of date.
fn mode(path: &Path) -> u32 {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap();
    u32::from(found.stx_mode) & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn change_of_contents_by_a_stranger_clears_set_id_bits_at_once() {
    type Changing<'a> = &'a (dyn Fn(&File) -> io::Result<()> + Sync);
    let changes: [(&str, Changing<'_>); 6] = [
        ("write", &|file| file.write_all_at(b"x", 5)),
        ("truncate", &|file| file.set_len(10)),
        ("reserve", &|file| Ok(fallocate(file, FallocateFlags::empty(), 0, 65536)?)),
        ("reserve at the end", &|file| Ok(fallocate(file, FallocateFlags::KEEP_SIZE, 0, 65536)?)),
        ("punch a hole", &|file| {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(file, punch, 0, 4096)?)
        }),
        ("copy", &|file| {
            let source = File::open("/proc/self/exe")?;
            let mut buffer = [0; 4096];
            source.read_exact_at(&mut buffer, 0)?;
            file.write_all_at(&buffer, 0)
        }),
    ];
    on_all(|dir| {
        wait_until_attributes_are_cached();
        let path = dir.join("program");
        fs::write(&path, vec![7; 100_000]).unwrap();
        for (name, change) in changes {
            // Members keep the set-group bit without the execute bit, for mandatory locking.
            let cases = [
                (1000, 0o6777, 0o777),
                (1000, 0o4777, 0o777),
                (1000, 0o6767, 0o767),
                (0, 0o6767, 0o2767),
            ];
            for (gid, before, after) in cases {
                set_mode(&path, before);
                assert_eq!(mode(&path), before);
                as_user(1000, gid, || {
                    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                    change(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert_eq!(mode(&path), after, "{name} a file of mode {before:o}");
                });
                assert_eq!(mode(&path), after, "{name} a file of mode {before:o}");
                set_mode(&path, before);
                change(&OpenOptions::new().read(true).write(true).open(&path).unwrap()).unwrap();
                assert_eq!(mode(&path), before, "{name} by root");
            }
        }
    });
}

/// The kernel sends a request that changes nothing.
#[test]
fn change_of_neither_owner_nor_group_clears_set_id_bits() {
    on_all(|dir| {
        let path = dir.join("program");
        fs::write(&path, "text").unwrap();
        for (before, after) in [(0o6777, 0o777), (0o4755, 0o755), (0o2775, 0o775), (0o2767, 0o2767)]
        {
            set_mode(&path, before);
            chown(&path, None, None).unwrap();
            assert_eq!(mode(&path), after, "a file of mode {before:o}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, after);
        }
        set_mode(dir, 0o2777);
        chown(dir, None, None).unwrap();
        assert_eq!(mode(dir), 0o2777);
    });
}

/// The kernel checks the request for a value, but not the list; and a program with the library has no kernel.
#[test]
fn only_root_sees_trusted_extended_attributes() {
    let names = |path: &Path| {
        let mut names = [0; 256];
        let length = listxattr(path, &mut names).unwrap();
        String::from_utf8(names[..length].to_vec()).unwrap()
    };
    on_all(|dir| {
        let path = dir.join("file");
        fs::write(&path, "text").unwrap();
        for name in ["trusted.secret", "user.open"] {
            setxattr(&path, name, b"value", XattrFlags::empty()).unwrap();
        }
        assert!(names(&path).contains("trusted.secret"));
        assert_eq!(as_user(1000, 1000, || names(&path)), "user.open\0");
    });
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 << 20);
        let root = attach(pool.nodes());
        let ino = root.create(Ino::ROOT, b"file", 0o644, true, READ_WRITE).unwrap().attr.ino;
        for name in [b"trusted.secret".as_slice(), b"user.open"] {
            root.set_xattr(ino, name, b"value", XattrMode::Any).unwrap();
        }
        assert_eq!(root.get_xattr(ino, b"trusted.secret").unwrap(), b"value");
        let groups = Some(Vec::new());
        let user = Credentials { uid: 1000, gid: 1000, groups, checked: false };
        let fs = root.on_behalf_of(user);
        assert_eq!(fs.get_xattr(ino, b"trusted.secret"), Err(FsErrno::ENODATA));
        assert_eq!(fs.list_xattr(ino).unwrap(), [b"user.open".to_vec()]);
        assert_eq!(root.list_xattr(ino).unwrap().len(), 2);
    }
}

/// A file system that truncates with the open reports no attributes then.
#[test]
fn truncating_open_by_a_stranger_clears_set_id_bits_at_once() {
    on_all(|dir| {
        wait_until_attributes_are_cached();
        let path = dir.join("program");
        let truncate = || OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        for (before, after) in [(0o6777, 0o777), (0o4777, 0o777), (0o6767, 0o767)] {
            fs::write(&path, vec![7; 100_000]).unwrap();
            set_mode(&path, before);
            assert_eq!(mode(&path), before);
            as_user(1000, 1000, || {
                let _open = truncate();
                assert_eq!(mode(&path), after, "open for a file of mode {before:o}");
            });
            assert_eq!(mode(&path), after, "a file of mode {before:o}");
            set_mode(&path, before);
            drop(truncate());
            assert_eq!(mode(&path), before, "by root");
        }
    });
}

/// The kernel has the file system do that where it writes, and requests it itself elsewhere.
#[test]
fn change_of_contents_by_anybody_removes_the_capabilities_of_a_program() {
    type Changing<'a> = &'a (dyn Fn(&Path) -> io::Result<()> + Sync);
    let open = |path: &Path| OpenOptions::new().write(true).open(path);
    let changes: [(&str, Changing<'_>); 5] = [
        ("write", &|path| open(path)?.write_all_at(b"x", 5)),
        ("truncate", &|path| open(path)?.set_len(10)),
        ("reserve", &|path| Ok(fallocate(open(path)?, FallocateFlags::empty(), 0, 65536)?)),
        ("open to truncate", &|path| File::create(path).map(drop)),
        ("rewrite", &|path| fs::write(path, "text")),
    ];
    // `struct vfs_cap_data` of version 2 with CAP_SETGID, effective and permitted.
    let words: [u32; 5] = [0x0200_0001, 1 << 6, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let name = "security.capability";
    on_all(|dir| {
        let path = dir.join("program");
        for (what, change) in changes {
            for uid in [0, 1000] {
                fs::write(&path, vec![7; 100_000]).unwrap();
                set_mode(&path, 0o777);
                let mut found = [0; 64];
                setxattr(&path, name, &value, XattrFlags::empty()).unwrap();
                assert_eq!(getxattr(&path, name, &mut found), Ok(value.len()));
                as_user(uid, uid, || change(&path))
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                let left = getxattr(&path, name, &mut found);
                assert_eq!(left, Err(Errno::NODATA), "{what} by {uid}");
            }
        }
        // A file that is open gets them.
        let file = as_user(1000, 1000, || open(&path)).unwrap();
        setxattr(&path, name, &value, XattrFlags::empty()).unwrap();
        as_user(1000, 1000, || file.write_all_at(b"x", 0)).unwrap();
        assert_eq!(getxattr(&path, name, &mut [0; 64]), Err(Errno::NODATA));
        // Nobody else removes them as such.
        setxattr(&path, name, &value, XattrFlags::empty()).unwrap();
        assert_eq!(as_user(1000, 1000, || removexattr(&path, name)), Err(Errno::PERM));
    });
}

/// No kernel sees the writes of a program that uses the library, so that opening takes them.
#[test]
fn library_client_of_a_user_takes_set_id_bits_and_capabilities() {
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let start = |node| {
            Daemon::start(StoreOptions::new(temporary.dir(&format!("flash{node}")))).unwrap()
        };
        let daemons: Vec<Daemon> = (0..nodes).map(start).collect();
        let addresses: Vec<_> = daemons.iter().map(Daemon::address).collect();
        let addresses = NodeAddresses::from(addresses);
        let admin = StripedAdmin::connect(addresses.clone(), &ClientOptions::default()).unwrap();
        let spec = InstanceSpec { uid: 1000, gid: 1000, ..spec(64 << 20) };
        admin.create_instance(&spec, STRIPE).unwrap();
        let root = attach(addresses.clone());
        let file = root.create(Ino::ROOT, b"program", 0o755, true, READ_WRITE).unwrap().file;
        file.write_all_at(b"contents", 0).unwrap();
        let ino = file.ino();
        drop(file);
        let prepare = |mode| {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            root.set_attr(ino, None, set).unwrap();
            root.set_xattr(ino, CAPABILITY_XATTR, &[0; 20], XattrMode::Any).unwrap();
        };
        let check = |mode: u16, has_capabilities: bool, what: &str| {
            assert_eq!(root.get_attr(ino).unwrap().mode, mode, "{what}, {nodes} nodes");
            let found = root.get_xattr(ino, CAPABILITY_XATTR).err();
            let expected = (!has_capabilities).then_some(FsErrno::ENODATA);
            assert_eq!(found, expected, "{what}, {nodes} nodes");
        };
        let as_stranger = |gid, act: &(dyn Fn(Fs, Ino) + Sync)| {
            as_user(1000, gid, || {
                let fs = attach(addresses.clone());
                let found = fs.lookup(Ino::ROOT, b"program").unwrap().ino;
                act(fs, found);
            });
        };
        prepare(0o6777);
        as_stranger(1000, &|fs, ino| drop(fs.open(ino, READ).unwrap()));
        check(0o6777, true, "open for reading");
        for (mode, after) in [(0o4777, 0o777), (0o6777, 0o777), (0o2767, 0o767)] {
            prepare(mode);
            as_stranger(1000, &|fs, ino| {
                let opened = fs.open(ino, READ_WRITE).unwrap();
                assert_eq!(opened.attr.mode, after);
                opened.file.write_all_at(b"other", 0).unwrap();
            });
            check(after, false, "write");
        }
        prepare(0o4777);
        as_stranger(1000, &|fs, ino| {
            let set = SetAttr { size: Some(3), ..SetAttr::default() };
            fs.set_attr(ino, None, set).unwrap();
        });
        check(0o777, false, "truncate");
        // Root, who may set them, keeps the bits.
        prepare(0o4777);
        drop(root.open(ino, READ_WRITE).unwrap());
        check(0o4777, true, "open by root");
    }
}
