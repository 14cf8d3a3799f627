//! What a change of contents takes from a program on a mount: set-id bits and file capabilities.
//!
//! Each check runs on a local file system, too. Needs root, because it acts as several users.

use crate::support;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, StatxFlags, XattrFlags, fallocate, getxattr, removexattr,
    setxattr, statx,
};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use support::{as_user, on_all, wait_until_attributes_are_cached};

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
