//! Files without a name (`O_TMPFILE`), beside a local file system. Needs root, because it acts as
//! several users.

use crate::support;
use forebay_client::{ClientOptions, Fs};
use forebay_protocol::Ino;
use forebay_protocol::message::OpenMode;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use support::process::{Process, key};
use support::striped_admin::StripedAdmin;
use support::{INSTANCE, Mounted, STRIPE, Temporary, as_user, mount_at, on_all, shell, spec};

fn unnamed(dir: &Path, mode: u32, flags: OFlags) -> rustix::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags;
    rustix::fs::open(dir, flags, Mode::from_raw_mode(mode)).map(File::from)
}

fn give_name(file: &File, name: &Path) -> rustix::io::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, open, CWD, name, AtFlags::SYMLINK_FOLLOW)
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn unnamed_file_gets_a_name_with_its_contents() {
    on_all(|dir| {
        let sub = dir.join("sub");
        fs::create_dir(&sub).unwrap();
        let mut file = unnamed(&sub, 0o640, OFlags::empty()).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all(b"contents").unwrap();
        file.sync_all().unwrap();
        assert_eq!(entries(&sub), 0);
        let (first, other) = (sub.join("first"), dir.join("other"));
        fs::write(&other, "").unwrap();
        assert_eq!(give_name(&file, &other).unwrap_err(), Errno::EXIST);
        fs::remove_file(&other).unwrap();
        give_name(&file, &first).unwrap();
        let found = fs::metadata(&first).unwrap();
        assert_eq!((found.nlink(), found.mode() & 0o7777, found.len()), (1, 0o640, 8));
        assert_eq!(found.ino(), file.metadata().unwrap().ino());
        // Then it is a file as any other.
        fs::hard_link(&first, &other).unwrap();
        file.write_all(b" and more").unwrap();
        drop(file);
        assert_eq!(fs::read(&other).unwrap(), b"contents and more");
        fs::remove_file(&first).unwrap();
        assert_eq!(fs::metadata(&other).unwrap().nlink(), 1);
        fs::remove_file(&other).unwrap();
    });
}

#[test]
fn names_are_refused_to_exclusive_and_to_removed_files() {
    on_all(|dir| {
        let exclusive = unnamed(dir, 0o600, OFlags::EXCL).unwrap();
        assert_eq!(give_name(&exclusive, &dir.join("a")).unwrap_err(), Errno::NOENT);
        let removed = unnamed(dir, 0o600, OFlags::empty()).unwrap();
        give_name(&removed, &dir.join("b")).unwrap();
        fs::remove_file(dir.join("b")).unwrap();
        assert_eq!(give_name(&removed, &dir.join("c")).unwrap_err(), Errno::NOENT);
        assert_eq!(entries(dir), 0);
    });
}

#[test]
fn permissions_and_attributes_are_those_of_a_new_file_in_the_directory() {
    on_all(|dir| {
        let private = dir.join("private");
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = as_user(1000, 1000, || unnamed(&private, 0o600, OFlags::empty()).err());
        assert_eq!(refused, Some(Errno::ACCESS));
        let in_file = dir.join("file");
        fs::write(&in_file, "").unwrap();
        assert_eq!(unnamed(&in_file, 0o600, OFlags::empty()).unwrap_err(), Errno::NOTDIR);

        let group = dir.join("group");
        fs::create_dir(&group).unwrap();
        chown(&group, Some(0), Some(2000)).unwrap();
        fs::set_permissions(&group, fs::Permissions::from_mode(0o2777)).unwrap();
        let file = as_user(1000, 1000, || unnamed(&group, 0o644, OFlags::empty()).unwrap());
        let found = file.metadata().unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (1000, 2000, 0o644));
        drop(file);

        // Without any permission bit it is open nevertheless.
        let closed = as_user(1000, 1000, || unnamed(&group, 0, OFlags::empty()).unwrap());
        closed.write_all_at(b"text", 0).unwrap();
        let mut read = [0; 4];
        closed.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"text");
    });
}

#[test]
fn default_access_control_list_of_the_directory_applies() {
    on_all(|dir| {
        shell(dir, "mkdir listed; setfacl -d -m u:1234:rw,m::rw listed");
        let file = unnamed(&dir.join("listed"), 0o666, OFlags::empty()).unwrap();
        give_name(&file, &dir.join("listed/f")).unwrap();
        let list = shell(dir, "getfacl -cn listed/f");
        assert!(list.contains("user:1234:rw-"), "{list}");
    });
}

#[test]
fn space_and_inode_return_with_the_last_close() {
    for nodes in [1, 3] {
        let mounted = Mounted::new(nodes, 1 << 26);
        let used = || {
            let state = rustix::fs::statvfs(&mounted.path).unwrap();
            (state.f_blocks - state.f_bfree, state.f_files - state.f_ffree)
        };
        let before = used();
        let file = unnamed(&mounted.path, 0o600, OFlags::empty()).unwrap();
        let copy = file.try_clone().unwrap();
        file.write_all_at(&vec![7; 4 << 20], 0).unwrap();
        file.sync_all().unwrap();
        let during = used();
        assert!(during.0 >= before.0 + 1024 && during.1 == before.1 + 1, "{before:?} {during:?}");
        drop(file);
        assert_eq!(copy.metadata().unwrap().len(), 4 << 20);
        drop(copy);
        let returned = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            used() == before
        });
        assert!(returned, "{before:?} {:?}", used());
    }
}

#[test]
fn unnamed_files_outlive_restarts_of_the_daemons() {
    const BOTH: OpenMode =
        OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };
    for nodes in [1, 3] {
        let temporary = Temporary::new();
        let start = |node| Process::start(&temporary.dir(&format!("flash{node}")));
        let mut processes: Vec<Process> = (0..nodes).map(start).collect();
        let addresses: Vec<_> = processes.iter().map(Process::local).collect();
        let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
        let admin = StripedAdmin::connect(addresses.clone(), &options).unwrap();
        admin.create_instance(&spec(1 << 26), STRIPE).unwrap();
        let fs = Fs::attach(addresses, INSTANCE, options).unwrap();
        let path = temporary.dir("mnt");
        let mount = mount_at(fs.clone(), &path);
        // Directories are spread over the nodes.
        let dirs: Vec<_> = (0..6).map(|number| path.join(number.to_string())).collect();
        dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let mut file = unnamed(&path, 0o600, OFlags::empty()).unwrap();
        file.write_all(b"before").unwrap();
        let exclusive = fs.create_unnamed(Ino::ROOT, 0o600, false, BOTH).unwrap();
        let removed = fs.create(Ino::ROOT, b"removed", 0o600, true, BOTH).unwrap();
        fs.unlink(Ino::ROOT, b"removed").unwrap();
        for process in &mut processes {
            process.kill();
            process.restart();
        }
        file.write_all(b" and after").unwrap();
        for (number, dir) in dirs.iter().enumerate() {
            give_name(&file, &dir.join("f")).unwrap();
            assert_eq!(fs::metadata(dir.join("f")).unwrap().nlink(), number as u64 + 1);
        }
        for other in [exclusive.attr.ino, removed.attr.ino] {
            let linked = fs.link(other, Ino::ROOT, b"other").map(|_| ());
            assert_eq!(linked, Err(forebay_protocol::Errno::ENOENT));
        }
        drop(file);
        assert_eq!(fs::read(dirs[5].join("f")).unwrap(), b"before and after");
        drop((exclusive, removed, fs));
        support::unmount(mount);
    }
}
