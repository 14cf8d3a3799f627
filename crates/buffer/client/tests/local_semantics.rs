//! Behaviour of mounts that programs for local file systems rely on.
//!
//! Each check runs on a local file system, too. Needs root, because it acts as several users.

use crate::support;
use forebay_client::MountOptions;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use support::{
    Mounted, as_user, as_user_in, on_all, on_all_with, shell, wait_until_attributes_are_cached,
};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn listing_ends_although_entries_are_renamed_or_added() {
    on_all(|dir| {
        let listed = dir.join("listed");
        fs::create_dir(&listed).unwrap();
        for number in 0..500 {
            File::create_new(listed.join(number.to_string())).unwrap();
        }
        let list = |change: &dyn Fn(&Path)| {
            let names = fs::read_dir(&listed).unwrap().take(2000).map(|entry| {
                let entry = entry.unwrap();
                change(&entry.path());
                entry.file_name()
            });
            let mut names: Vec<_> = names.collect();
            assert!(names.len() < 2000, "the listing does not end");
            names.sort();
            names.dedup();
            names.len()
        };
        let other = dir.join("other");
        let renamed = list(&|path| {
            fs::rename(path, &other).unwrap();
            fs::rename(&other, path).unwrap();
        });
        assert_eq!(renamed, 500);
        let replaced = list(&|path| {
            fs::remove_file(path).unwrap();
            File::create_new(path).unwrap();
        });
        assert_eq!(replaced, 500);
        // What was there before the listing began is in the next one.
        assert_eq!(list(&|_| {}), 500);
        fs::remove_dir_all(&listed).unwrap();
    });
}

#[test]
fn rewound_directory_shows_new_entries() {
    on_all(|dir| {
        let mut open = rustix::fs::Dir::read_from(File::open(dir).unwrap()).unwrap();
        let mut count = || open.by_ref().filter(|entry| entry.is_ok()).count();
        let before = count();
        File::create_new(dir.join("new")).unwrap();
        open.rewind();
        let after = open.by_ref().filter(|entry| entry.is_ok()).count();
        assert_eq!(after, before + 1);
    });
}

#[test]
fn removed_directory_keeps_its_attributes_while_it_is_in_use() {
    on_all(|dir| {
        let path = |name: &str| dir.join(name);
        for name in ["moved", "replaced", "removed"] {
            fs::create_dir(path(name)).unwrap();
            set_mode(&path(name), 0o750);
        }
        let opened = ["replaced", "removed"].map(|name| File::open(path(name)).unwrap());
        let numbers = opened.each_ref().map(|dir| dir.metadata().unwrap().ino());
        fs::rename(path("moved"), path("replaced")).unwrap();
        fs::remove_dir(path("removed")).unwrap();
        for (dir, ino) in opened.iter().zip(numbers) {
            let found = dir.metadata().unwrap();
            assert_eq!((found.ino(), found.nlink(), found.mode()), (ino, 0, 0o40750));
        }
        shell(dir, "mkdir cwd; cd cwd; rmdir ../cwd; test $(stat -c %h .) = 0");
    });
}

/// The kernel opens pipes and connects to sockets itself.
#[test]
fn modes_of_pipes_and_sockets_apply_if_the_kernel_checks_permissions() {
    let options = MountOptions { kernel_permissions: true, ..MountOptions::default() };
    on_all_with(&options, |dir| {
        let (pipe, socket) = (dir.join("pipe"), dir.join("socket"));
        shell(dir, "mkfifo pipe");
        let _listener = UnixListener::bind(&socket).unwrap();
        let denied = |result: io::Result<()>| {
            result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).map(drop)
        };
        let connect = || UnixStream::connect(&socket).map(drop);
        for path in [&pipe, &socket] {
            chown(path, Some(1000), Some(2000)).unwrap();
            set_mode(path, 0o660);
        }
        for (uid, groups) in [(1000, &[][..]), (1001, &[2000]), (0, &[])] {
            as_user_in(uid, 1, groups, || {
                open().unwrap();
                connect().unwrap();
            });
        }
        assert!(denied(as_user(1001, 1, open)) && denied(as_user(1001, 1, connect)));
        for path in [&pipe, &socket] {
            set_mode(path, 0o666);
        }
        as_user(1001, 1, open).unwrap();
        as_user(1001, 1, connect).unwrap();
        // A change of permissions is in force at once.
        for path in [&pipe, &socket] {
            set_mode(path, 0o600);
        }
        assert!(denied(as_user(1001, 1, open)) && denied(as_user(1001, 1, connect)));
    });
}

/// `fs.protected_symlinks`, `_hardlinks`, `_fifos`, `_regular`: whatever is set, it has the effect that
/// it has on a local file system.
#[test]
fn protection_of_sticky_directories_is_that_of_a_local_file_system() {
    let options = MountOptions { kernel_permissions: true, ..MountOptions::default() };
    let results = std::cell::RefCell::new(Vec::new());
    on_all_with(&options, |dir| {
        let sticky = dir.join("sticky");
        fs::create_dir(&sticky).unwrap();
        set_mode(&sticky, 0o1777);
        chown(&sticky, Some(1002), Some(1002)).unwrap();
        as_user(1000, 1000, || {
            fs::write(sticky.join("file"), "text").unwrap();
            set_mode(&sticky.join("file"), 0o666);
            fs::write(sticky.join("private"), "text").unwrap();
            set_mode(&sticky.join("private"), 0o600);
            shell(&sticky, "mkfifo pipe; chmod 666 pipe; ln -s file link");
        });
        let outcomes = as_user(1001, 1001, || {
            let create = |name: &str, flags| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).custom_flags(flags);
                options.open(sticky.join(name)).map(drop)
            };
            let outcomes = [
                fs::read(sticky.join("link")).map(drop),
                fs::hard_link(sticky.join("private"), sticky.join("second")),
                create("file", 0),
                create("pipe", libc::O_NONBLOCK),
                fs::remove_file(sticky.join("file")),
            ];
            outcomes.map(|outcome| outcome.map_err(|error| error.raw_os_error()))
        });
        results.borrow_mut().push(outcomes);
    });
    let results = results.into_inner();
    assert_eq!(results[1], results[0], "one node");
    assert_eq!(results[2], results[0], "three nodes");
}

#[test]
fn times_are_those_of_a_write_through_a_memory_map() {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let options = MountOptions { kernel_permissions: true, ..MountOptions::default() };
    on_all_with(&options, |dir| {
        let path = dir.join("mapped");
        fs::write(&path, [1; 8192]).unwrap();
        wait_until_attributes_are_cached();
        let before = fs::metadata(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which nothing else refers to; it is used within its length, and
        // unmapped once.
        unsafe {
            let map = mmap(std::ptr::null_mut(), 8192, access, MapFlags::SHARED, &file, 0).unwrap();
            map.cast::<u8>().write_volatile(2);
            munmap(map, 8192).unwrap();
        }
        drop(file);
        let after = fs::metadata(&path).unwrap();
        let times = |found: &fs::Metadata| {
            ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()))
        };
        assert!(times(&after).0 > times(&before).0 && times(&after).1 > times(&before).1);
    });
}

#[test]
fn holes_are_found_and_kept() {
    on_all(|dir| {
        let path = dir.join("sparse");
        let mut file = File::create_new(&path).unwrap();
        file.set_len(3 << 30).unwrap();
        file.write_all_at(b"data", 2_000_000_000).unwrap();
        file.flush().unwrap();
        let found = shell(
            dir,
            "cp --sparse=auto sparse copy; cmp -i 1999000000 -n 2000000 sparse copy; \
             stat -c '%s %b' copy; rm sparse copy",
        );
        let mut numbers = found.split_whitespace().map(|word| word.parse::<u64>().unwrap());
        assert_eq!(numbers.next(), Some(3 << 30));
        assert!(numbers.next().is_some_and(|blocks| blocks <= 64), "{found}");
    });
}

/// Without these a program would take a file's flags for set.
#[test]
fn unsupported_functions_are_refused() {
    for nodes in [1, 3] {
        let mounted = Mounted::new(nodes, 1 << 26);
        let dir = &mounted.path;
        fs::write(dir.join("file"), "text").unwrap();
        let file = File::open(dir.join("file")).unwrap();
        assert_eq!(rustix::fs::ioctl_getflags(&file).unwrap_err(), rustix::io::Errno::NOTTY);
        let set = rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::IMMUTABLE);
        assert_eq!(set.unwrap_err(), rustix::io::Errno::NOTTY);
        let (from, to) = (dir.join("file"), dir.join("other"));
        let whiteout = rustix::fs::RenameFlags::WHITEOUT;
        let renamed =
            rustix::fs::renameat_with(rustix::fs::CWD, &from, rustix::fs::CWD, &to, whiteout);
        assert_eq!(renamed.unwrap_err(), rustix::io::Errno::INVAL);
        let file = OpenOptions::new().write(true).open(&from).unwrap();
        for change in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            let changed = fallocate(&file, change, 0, 4096);
            assert_eq!(changed.unwrap_err(), rustix::io::Errno::OPNOTSUPP);
        }
        assert_eq!(fs::read(&from).unwrap(), b"text");
    }
}

#[test]
fn access_times_of_directories_and_links_are_set_only_on_request() {
    for nodes in [1, 3] {
        let mounted = Mounted::new(nodes, 1 << 26);
        let times = shell(
            &mounted.path,
            "mkdir directory; touch directory/file; ln -s directory link; \
             touch -h -a -d @1000 directory link; ls directory/ > /dev/null; readlink link > /dev/null; \
             stat -c %X directory link",
        );
        assert_eq!(times, "1000\n1000\n");
    }
}

/// `mount -o remount` must not run a program that has the name of the source.
#[test]
fn mounts_of_root_have_their_own_type() {
    let mounted = Mounted::new(1, 1 << 26);
    let path = mounted.path.canonicalize().unwrap();
    let kind = shell(&mounted.path, "findmnt -n -o FSTYPE,OPTIONS --mountpoint \"$PWD\"");
    assert!(kind.starts_with("fuse.forebay "), "{kind}");
    assert!(kind.contains("nosuid") && kind.contains("nodev") && kind.contains("allow_other"));
    shell(Path::new("/"), &format!("mount -i -o remount,ro {}", path.display()));
    let refused = File::create(path.join("file")).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    shell(Path::new("/"), &format!("mount -i -o remount,rw {}", path.display()));
    fs::write(path.join("file"), "text").unwrap();
}

/// When the kernel has to drop the names that it caches, it unmounts what is mounted on them.
#[test]
fn mount_on_a_directory_stays_if_the_kernel_checks_permissions() {
    let options = MountOptions { kernel_permissions: true, ..MountOptions::default() };
    for nodes in [1, 3] {
        let mounted = Mounted::with_options(nodes, 1 << 26, &options);
        wait_until_attributes_are_cached();
        let (dir, private) = (&mounted.path, mounted.path.join("private"));
        shell(dir, "mkdir point private; touch private/file; mount -t tmpfs none point");
        as_user(1000, 1000, || fs::metadata(private.join("file"))).unwrap();
        set_mode(&private, 0o700);
        let seen = as_user(1000, 1000, || fs::metadata(private.join("file")).map(drop));
        assert_eq!(seen.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let kind =
            shell(dir, "stat -f -c %T point; findmnt -n -o FSTYPE --mountpoint \"$PWD/point\"");
        shell(dir, "umount point");
        assert_eq!(kind, "tmpfs\ntmpfs\n");
    }
}

/// A file system that is mounted over a mount, or in its place, is not unmounted with it.
#[test]
fn mount_that_was_unmounted_from_outside_ends() {
    let mut mounted = Mounted::new(1, 1 << 26);
    shell(&mounted.temporary.0, "umount mnt; mount -t tmpfs none mnt");
    support::unmount(mounted.mount.take().unwrap());
    let kind = shell(&mounted.temporary.0, "findmnt -n -o FSTYPE mnt; umount mnt");
    assert_eq!(kind.trim(), "tmpfs");
}

/// The kernel keeps a file system whose mount is gone, or is covered, as long as it is in use.
#[test]
fn unmount_does_not_wait_for_the_users_of_a_mount_that_is_gone_or_covered() {
    let is_busy = |mounted: &mut Mounted| {
        let error = mounted.mount.take().unwrap().unmount().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    };
    let mut mounted = Mounted::new(1, 1 << 26);
    let mut open = File::create_new(mounted.path.join("file")).unwrap();
    shell(&mounted.temporary.0, "umount -l mnt");
    is_busy(&mut mounted);
    open.write_all(b"served until it is closed").unwrap();
    drop(open);
    let mut mounted = Mounted::new(1, 1 << 26);
    fs::write(mounted.path.join("file"), "served").unwrap();
    shell(&mounted.temporary.0, "mount -t tmpfs none mnt");
    is_busy(&mut mounted);
    shell(&mounted.temporary.0, "umount mnt");
    assert_eq!(fs::read(mounted.path.join("file")).unwrap(), b"served");
    shell(&mounted.temporary.0, "umount mnt");
}
