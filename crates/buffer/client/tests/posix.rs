//! The semantics of POSIX and Linux for every operation, on mounted instances on one storage node and
//! on three. Each check also runs on a local directory, which validates the check itself.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::MountOptions;
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
    Timestamps, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::path::Path;
use std::process::Command;
use support::{as_user, on_all, on_all_with, shell};

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

fn touch(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o644).open(path).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn create_and_open_follow_flags_and_links() {
    on_all(|dir| {
        let file = dir.join("f");
        touch(&file);
        assert_eq!(mode(&file), 0o644);
        let again = OpenOptions::new().write(true).create_new(true).open(&file);
        assert_eq!(errno(again), libc::EEXIST);
        assert_eq!(errno(File::open(dir.join("none"))), libc::ENOENT);
        assert_eq!(errno(File::open(file.join("x"))), libc::ENOTDIR);
        assert_eq!(errno(OpenOptions::new().write(true).open(dir)), libc::EISDIR);
        assert_eq!(errno(File::create(dir.join("n".repeat(256)))), libc::ENAMETOOLONG);
        File::create(dir.join("n".repeat(255))).unwrap();
        fs::write(&file, "long contents").unwrap();
        fs::write(&file, "short").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"short");
        symlink("f", dir.join("l")).unwrap();
        let direct =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(dir.join("l"));
        assert_eq!(errno(direct), libc::ELOOP);
        symlink("loop", dir.join("loop")).unwrap();
        assert_eq!(errno(File::open(dir.join("loop"))), libc::ELOOP);
        let read_only = OpenOptions::new().read(true).open(&file).unwrap();
        assert_eq!(errno(read_only.write_at(b"x", 0)), libc::EBADF);
        let write_only = OpenOptions::new().write(true).open(&file).unwrap();
        assert_eq!(errno(write_only.read_at(&mut [0], 0)), libc::EBADF);
    });
}

#[test]
fn permissions_are_checked_for_owner_group_and_others() {
    on_all(|dir| {
        let secret = dir.join("secret");
        touch(&secret).write_all(b"x").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&secret, Some(1000), Some(2000)).unwrap();
        as_user(1000, 1, || File::options().read(true).write(true).open(&secret).unwrap());
        as_user(1001, 2000, || {
            File::open(&secret).unwrap();
            assert_eq!(errno(File::options().write(true).open(&secret)), libc::EACCES);
            let wider = fs::Permissions::from_mode(0o666);
            assert_eq!(errno(fs::set_permissions(&secret, wider)), libc::EPERM);
            assert_eq!(errno(std::os::unix::fs::chown(&secret, Some(1001), None)), libc::EPERM);
        });
        as_user(1002, 1, || assert_eq!(errno(File::open(&secret)), libc::EACCES));
        let closed = dir.join("closed");
        fs::DirBuilder::new().mode(0o755).create(&closed).unwrap();
        touch(&closed.join("f"));
        as_user(1000, 1000, || {
            assert_eq!(errno(File::create(closed.join("g"))), libc::EACCES);
            assert_eq!(errno(fs::remove_file(closed.join("f"))), libc::EACCES);
            assert_eq!(errno(fs::rename(closed.join("f"), dir.join("f"))), libc::EACCES);
            assert_eq!(errno(fs::create_dir(closed.join("d"))), libc::EACCES);
            assert_eq!(errno(symlink("x", closed.join("l"))), libc::EACCES);
            let mine = dir.join("mine");
            touch(&mine);
            let meta = fs::metadata(&mine).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (1000, 1000));
            fs::set_permissions(&mine, fs::Permissions::from_mode(0o600)).unwrap();
        });
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        as_user(1000, 1000, || {
            assert_eq!(errno(fs::metadata(closed.join("f"))), libc::EACCES);
            assert_eq!(errno(fs::read_dir(&closed)), libc::EACCES);
        });
    });
}

/// The node of a new directory depends on its name, so several are made.
#[test]
fn entries_of_private_directories_are_hidden_from_other_users_at_once() {
    on_all(|dir| {
        let private = dir.join("private");
        fs::DirBuilder::new().mode(0o700).create(&private).unwrap();
        for number in 0..20 {
            let sub = private.join(format!("sub{number}"));
            fs::create_dir(&sub).unwrap();
            let seen = as_user(1000, 1000, || (fs::metadata(&sub), fs::read_dir(&sub).map(drop)));
            assert_eq!((errno(seen.0), errno(seen.1)), (libc::EACCES, libc::EACCES));
            // Links to a file of another node, and files that are opened with O_CREAT.
            let (file, link) = (sub.join("f"), private.join(format!("link{number}")));
            touch(&file);
            fs::hard_link(&file, &link).unwrap();
            let seen = as_user(1000, 1000, || fs::metadata(&link).map(drop));
            assert_eq!(errno(seen), libc::EACCES, "a new link");
            std::thread::sleep(std::time::Duration::from_millis(5));
            OpenOptions::new().write(true).create(true).truncate(false).open(&link).unwrap();
            let seen = as_user(1000, 1000, || File::open(&link).map(drop));
            assert_eq!(errno(seen), libc::EACCES, "an opened link");
        }
    });
}

#[test]
fn access_and_execution_follow_mode_bits() {
    on_all(|dir| {
        let program = dir.join("program");
        fs::copy("/bin/true", &program).unwrap();
        let run = || Command::new(&program).status().map(|status| status.success());
        let may = |how| rustix::fs::access(&program, how);
        for (mode, reads, runs) in [(0o755, true, true), (0o711, false, true), (0o744, true, false)]
        {
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            as_user(1000, 1000, || {
                assert_eq!(may(Access::READ_OK).is_ok(), reads, "{mode:o}");
                assert_eq!(may(Access::EXEC_OK).is_ok(), runs, "{mode:o}");
                assert_eq!(may(Access::WRITE_OK), Err(Errno::ACCESS));
                assert_eq!(File::open(&program).is_ok(), reads, "{mode:o}");
                match run() {
                    Ok(done) => assert!(runs && done, "{mode:o}"),
                    Err(error) => {
                        assert!(!runs, "{mode:o}: {error}");
                        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
                    }
                }
            });
        }
        fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(errno(run()), libc::EACCES, "root may execute a file with any execute bit");
        // A directory with search but without read permission, and the reverse.
        let sub = dir.join("sub");
        fs::create_dir(&sub).unwrap();
        touch(&sub.join("f"));
        fs::set_permissions(&sub, fs::Permissions::from_mode(0o711)).unwrap();
        as_user(1000, 1000, || {
            assert_eq!(errno(fs::read_dir(&sub)), libc::EACCES);
            File::open(sub.join("f")).unwrap();
            assert_eq!(rustix::fs::access(&sub, Access::EXEC_OK), Ok(()));
        });
        fs::set_permissions(&sub, fs::Permissions::from_mode(0o744)).unwrap();
        as_user(1000, 1000, || {
            assert_eq!(names(&sub), ["f"]);
            assert_eq!(errno(File::open(sub.join("f"))), libc::EACCES);
            assert_eq!(rustix::fs::access(&sub, Access::EXEC_OK), Err(Errno::ACCESS));
        });
        // Permissions are checked when a file is opened only.
        let open = as_user(1000, 1000, || touch(&dir.join("open")));
        fs::set_permissions(dir.join("open"), fs::Permissions::from_mode(0o000)).unwrap();
        as_user(1000, 1000, || {
            (&open).write_all(b"still").unwrap();
            open.set_len(3).unwrap();
            assert_eq!(open.metadata().unwrap().len(), 3);
            assert_eq!(errno(File::open(dir.join("open"))), libc::EACCES);
            fs::set_permissions(dir.join("open"), fs::Permissions::from_mode(0o600)).unwrap();
            File::open(dir.join("open")).unwrap();
        });
        // The mode of a new file does not restrict the descriptor that created it.
        as_user(1000, 1000, || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o444);
            let mut created = options.open(dir.join("made")).unwrap();
            created.write_all(b"text").unwrap();
            assert_eq!(errno(OpenOptions::new().write(true).open(dir.join("made"))), libc::EACCES);
        });
    });
}

#[test]
fn running_program_cannot_be_truncated() {
    on_all(|dir| {
        let program = dir.join("program");
        fs::copy("/bin/sleep", &program).unwrap();
        let length = fs::metadata(&program).unwrap().len();
        let mut running = Command::new(&program).arg("60").spawn().unwrap();
        let truncate = |access: OFlags| {
            let opened = rustix::fs::open(&program, access | OFlags::TRUNC, Mode::empty());
            opened.map(drop)
        };
        assert_eq!(truncate(OFlags::RDONLY), Err(Errno::TXTBSY));
        assert_eq!(truncate(OFlags::WRONLY), Err(Errno::TXTBSY));
        assert_eq!(fs::metadata(&program).unwrap().len(), length);
        running.kill().unwrap();
        running.wait().unwrap();
        // The kernel closes the program's file a moment later.
        let start = std::time::Instant::now();
        while truncate(OFlags::RDONLY).is_err() {
            assert!(start.elapsed() < std::time::Duration::from_secs(10), "it does not run");
        }
        assert_eq!(fs::metadata(&program).unwrap().len(), 0);
    });
}

#[test]
fn too_long_names_are_refused_in_every_operation() {
    let refused_in_all_states = |dir: &Path| {
        let sub = dir.join("sub");
        fs::DirBuilder::new().mode(0o755).create(&sub).unwrap();
        let long = sub.join("n".repeat(256));
        let refused = || {
            assert_eq!(errno(fs::remove_file(&long)), libc::ENAMETOOLONG);
            assert_eq!(errno(fs::remove_dir(&long)), libc::ENAMETOOLONG);
            assert_eq!(errno(fs::metadata(&long)), libc::ENAMETOOLONG);
            let mode = fs::Permissions::from_mode(0o600);
            assert_eq!(errno(fs::set_permissions(&long, mode)), libc::ENAMETOOLONG);
        };
        refused();
        // All names of the directory are known to the mount, as far as it caches listings.
        touch(&sub.join("file"));
        assert_eq!(shell(&sub, "ls -l | wc -l"), "2\n");
        refused();
    };
    on_all(refused_in_all_states);
    let options = MountOptions { kernel_permissions: true, ..MountOptions::default() };
    on_all_with(&options, refused_in_all_states);
}

#[test]
fn sticky_directory_protects_entries_of_other_users() {
    on_all(|dir| {
        let sticky = dir.join("sticky");
        fs::DirBuilder::new().mode(0o777).create(&sticky).unwrap();
        fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).unwrap();
        as_user(1000, 1000, || touch(&sticky.join("f")));
        as_user(1001, 1001, || {
            assert_eq!(errno(fs::remove_file(sticky.join("f"))), libc::EPERM);
            assert_eq!(errno(fs::rename(sticky.join("f"), sticky.join("g"))), libc::EPERM);
            touch(&sticky.join("own"));
            assert_eq!(errno(fs::rename(sticky.join("own"), sticky.join("f"))), libc::EPERM);
        });
        as_user(1000, 1000, || fs::remove_file(sticky.join("f")).unwrap());
    });
}

#[test]
fn set_id_bits_are_cleared_by_writes_and_chown() {
    on_all(|dir| {
        let shared = dir.join("shared");
        fs::create_dir(&shared).unwrap();
        std::os::unix::fs::chown(&shared, None, Some(3000)).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o2777)).unwrap();
        as_user(1000, 1000, || {
            touch(&shared.join("f"));
            fs::create_dir(shared.join("d")).unwrap();
        });
        assert_eq!(fs::metadata(shared.join("f")).unwrap().gid(), 3000);
        assert_eq!(fs::metadata(shared.join("d")).unwrap().gid(), 3000);
        assert_eq!(mode(&shared.join("d")) & 0o2000, 0o2000);
        let program = dir.join("program");
        touch(&program);
        for act in ["write", "truncate", "chown"] {
            fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
            assert_eq!(mode(&program), 0o6777);
            match act {
                "chown" => std::os::unix::fs::chown(&program, Some(1), Some(1)).unwrap(),
                _ => as_user(1000, 1000, || {
                    let file = File::options().write(true).open(&program).unwrap();
                    match act {
                        "write" => file.write_all_at(b"x", 0).unwrap(),
                        _ => file.set_len(10).unwrap(),
                    }
                }),
            }
            assert_eq!(mode(&program) & 0o6000, 0, "after {act}");
        }
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        File::options().write(true).open(&program).unwrap().write_all_at(b"x", 0).unwrap();
        assert_eq!(mode(&program), 0o4755, "a write by root keeps them");
    });
}

#[test]
fn hard_and_symbolic_links_are_counted_and_removed() {
    on_all(|dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        touch(&a).write_all(b"data").unwrap();
        fs::hard_link(&a, &b).unwrap();
        assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(&a).unwrap().ino(), fs::metadata(&b).unwrap().ino());
        assert_eq!(errno(fs::hard_link(&a, &b)), libc::EEXIST);
        assert_eq!(errno(fs::hard_link(dir, dir.join("d"))), libc::EPERM);
        fs::remove_file(&a).unwrap();
        assert_eq!(fs::metadata(&b).unwrap().nlink(), 1);
        let mut open = File::options().read(true).write(true).open(&b).unwrap();
        fs::remove_file(&b).unwrap();
        assert_eq!(errno(File::open(&b)), libc::ENOENT);
        assert_eq!(open.metadata().unwrap().nlink(), 0);
        open.write_all_at(b"still", 0).unwrap();
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "still");
        drop(open);
        assert_eq!(errno(fs::remove_file(dir)), libc::EISDIR);
        touch(&a);
        assert_eq!(errno(fs::remove_dir(&a)), libc::ENOTDIR);
        let sub = dir.join("sub");
        fs::create_dir(&sub).unwrap();
        touch(&sub.join("f"));
        assert_eq!(errno(fs::remove_dir(&sub)), libc::ENOTEMPTY);
        fs::remove_file(sub.join("f")).unwrap();
        fs::remove_dir(&sub).unwrap();
        symlink("/a/b/../target", dir.join("l")).unwrap();
        assert_eq!(fs::read_link(dir.join("l")).unwrap(), Path::new("/a/b/../target"));
        assert_eq!(fs::symlink_metadata(dir.join("l")).unwrap().len(), 14);
        assert_eq!(errno(symlink("x".repeat(4096), dir.join("long"))), libc::ENAMETOOLONG);
    });
}

#[test]
fn renames_replace_or_refuse_as_in_posix() {
    on_all(|dir| {
        let path = |name: &str| dir.join(name);
        fs::write(path("a"), "a").unwrap();
        fs::write(path("b"), "b").unwrap();
        fs::create_dir_all(path("d/e")).unwrap();
        fs::create_dir(path("empty")).unwrap();
        fs::rename(path("a"), path("b")).unwrap();
        assert_eq!(fs::read(path("b")).unwrap(), b"a");
        assert_eq!(errno(fs::rename(path("a"), path("b"))), libc::ENOENT);
        assert_eq!(errno(fs::rename(path("b"), path("d"))), libc::EISDIR);
        assert_eq!(errno(fs::rename(path("d"), path("b"))), libc::ENOTDIR);
        assert_eq!(errno(fs::rename(path("empty"), path("d"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::rename(path("d"), path("d/e/f"))), libc::EINVAL);
        assert_eq!(fs::metadata(path("d")).unwrap().nlink(), 3);
        fs::rename(path("d/e"), path("empty")).unwrap();
        assert_eq!(fs::metadata(path("d")).unwrap().nlink(), 2);
        fs::hard_link(path("b"), path("b2")).unwrap();
        fs::rename(path("b"), path("b2")).unwrap();
        assert!(
            path("b").exists() && path("b2").exists(),
            "a rename between names of one file does nothing"
        );
        let rename = |from: &str, to: &str, flags| {
            rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags)
        };
        assert_eq!(rename("b", "b2", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename("b2", "c", RenameFlags::NOREPLACE).unwrap();
        fs::write(path("x"), "x").unwrap();
        rename("x", "d", RenameFlags::EXCHANGE).unwrap();
        assert!(path("x").is_dir() && path("d").is_file());
        assert_eq!(rename("x", "none", RenameFlags::EXCHANGE), Err(Errno::NOENT));
        let open = File::open(path("c")).unwrap();
        fs::rename(path("d"), path("c")).unwrap();
        let mut old = String::new();
        (&open).read_to_string(&mut old).unwrap();
        assert_eq!(old, "a", "the replaced file stays readable while it is open");
    });
}

#[test]
fn attributes_and_times_are_set_and_updated() {
    on_all(|dir| {
        let file = dir.join("f");
        let open = touch(&file);
        let stamp = |secs, nanos| Timespec { tv_sec: secs, tv_nsec: nanos };
        let times =
            Timestamps { last_access: stamp(-7, 5), last_modification: stamp(1 << 33, 999) };
        rustix::fs::futimens(&open, &times).unwrap();
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.atime(), meta.atime_nsec()), (-7, 5));
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (1 << 33, 999));
        let before = fs::metadata(&file).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let after = fs::metadata(&file).unwrap();
        assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
        assert_eq!(after.mtime(), before.mtime());
        open.write_all_at(b"x", 0).unwrap();
        assert!(fs::metadata(&file).unwrap().mtime() < 1 << 33, "a write sets the time");
        let parent = fs::metadata(dir).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        touch(&dir.join("g"));
        let later = fs::metadata(dir).unwrap();
        assert!((later.mtime(), later.mtime_nsec()) > (parent.mtime(), parent.mtime_nsec()));
        as_user(1000, 1000, || {
            let link = dir.join("f");
            let result = rustix::fs::utimensat(CWD, &link, &times, AtFlags::empty());
            assert_eq!(result, Err(Errno::PERM));
        });
    });
}

#[test]
fn truncation_holes_and_allocation_match_a_local_file_system() {
    on_all(|dir| {
        let path = dir.join("f");
        let file = touch(&path);
        file.write_all_at(b"start", 0).unwrap();
        file.write_all_at(b"end", 1 << 20).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), (1 << 20) + 3);
        assert!(meta.blocks() * 512 < 1 << 16, "a hole takes no space");
        let mut hole = [1; 100];
        file.read_exact_at(&mut hole, 5000).unwrap();
        assert_eq!(hole, [0; 100]);
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(4096));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(8192)), Ok(1 << 20));
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(1 << 21)), Err(Errno::NXIO));
        file.set_len(3).unwrap();
        file.set_len(10).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"sta\0\0\0\0\0\0\0");
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 65536).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 65536);
        assert!(file.metadata().unwrap().blocks() * 512 >= 65536);
        file.write_all_at(&[5; 65536], 0).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 4096, 8192).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(
            bytes[4096..12288].iter().all(|b| *b == 0) && bytes[4095] == 5 && bytes[12288] == 5
        );
        let end = rustix::fs::seek(&file, SeekFrom::End(0)).unwrap();
        assert_eq!(end, 65536);
        assert_eq!(errno(fs::File::open(&path).unwrap().set_len(1)), libc::EINVAL);
        shell(dir, "truncate -s 7 f");
        assert_eq!(file.metadata().unwrap().len(), 7);
    });
}

#[test]
fn appends_of_several_writers_do_not_overlap() {
    on_all(|dir| {
        let path = dir.join("log");
        touch(&path);
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let path = &path;
                scope.spawn(move || {
                    let mut file = OpenOptions::new().append(true).open(path).unwrap();
                    for _ in 0..100 {
                        file.write_all(&[writer; 37]).unwrap();
                    }
                });
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4 * 100 * 37);
        assert!(bytes.chunks(37).all(|line| line.iter().all(|b| *b == line[0])));
    });
}

#[test]
fn directory_is_listed_completely_while_it_changes() {
    on_all(|dir| {
        let sub = dir.join("many");
        fs::create_dir(&sub).unwrap();
        for number in 0..3000 {
            touch(&sub.join(format!("{number:05}")));
        }
        let mut seen = Vec::new();
        for (index, entry) in fs::read_dir(&sub).unwrap().enumerate() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if index % 3 == 0 {
                fs::remove_file(sub.join(&name)).unwrap();
                touch(&sub.join(format!("new{index}")));
            }
            if !name.starts_with("new") {
                seen.push(name);
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 3000, "entries that exist all the time are listed once");
        fs::remove_dir_all(&sub).unwrap();
        assert!(!names(dir).contains(&"many".to_owned()));
    });
}

#[test]
fn special_files_and_extended_attributes_are_kept() {
    on_all(|dir| {
        let pipe = dir.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let (reading, writing) = (pipe.clone(), pipe.clone());
        let reader = std::thread::spawn(move || fs::read(reading).unwrap());
        fs::write(writing, "through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        let socket = dir.join("socket");
        std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::net::UnixStream::connect(&socket).unwrap_err();
        let file = dir.join("f");
        touch(&file);
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&file, name, value, flags);
        set("user.a", b"1", XattrFlags::CREATE).unwrap();
        assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(set("user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
        set("user.a", b"22", XattrFlags::empty()).unwrap();
        let mut value = [0; 10];
        assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut value), Ok(2));
        assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut value[..1]), Err(Errno::RANGE));
        let mut list = [0; 100];
        let count = rustix::fs::listxattr(&file, &mut list[..]).unwrap();
        assert_eq!(OsStr::new("user.a\0").as_encoded_bytes(), &list[..count]);
        rustix::fs::removexattr(&file, "user.a").unwrap();
        assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut value), Err(Errno::NODATA));
    });
}

#[test]
fn current_directory_can_be_removed() {
    on_all(|dir| {
        let removed = dir.join("gone");
        fs::create_dir(&removed).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let open = rustix::fs::open(&removed, flags, Mode::empty()).unwrap();
        fs::remove_dir(&removed).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let result = rustix::fs::openat(&open, "f", flags, Mode::RUSR);
        assert!(matches!(result, Err(Errno::NOENT | Errno::STALE)), "{result:?}");
        assert!(!removed.exists());
    });
}
