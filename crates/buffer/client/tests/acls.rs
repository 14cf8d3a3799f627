//! POSIX access control lists on mounts, compared with those of a local file system.
//!
//! Needs root, because it acts as several users, and the programs `setfacl`, `getfacl` and `rsync`.

use crate::support;
use forebay_client::{MountOptions, mount};
use forebay_protocol::Credentials;
use forebay_random::RandomSequence;
use rustix::fs::{Access, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt::Write;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;
use support::process::Process;
use support::{
    Pool, READ, Temporary, as_user_in, attach, make_instance, mount_at, need, on_all, on_all_with,
    shell,
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// Users with their groups.
const USERS: [(u32, &[u32]); 4] = [(0, &[]), (1000, &[3000]), (1001, &[3000, 3001]), (1002, &[])];
const STEPS: usize = 1500;
const PATHS: [&str; 6] = ["f", "d", "d/f", "d/e", "d/e/f", "g"];

/// A list that is valid most of the time.
fn random_list(random: &mut RandomSequence) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    let mut add = |tag: u16, permissions: u16, id: u32| {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    };
    let is_broken = random.below(20) == 0;
    let mut permissions = || random.below(8) as u16;
    add(1, permissions(), u32::MAX);
    let named = permissions();
    for (bit, uid) in [(1, 1001), (2, 1002)] {
        if named & bit != 0 {
            add(2, permissions(), uid);
        }
    }
    add(4, permissions(), u32::MAX);
    if named & 4 != 0 {
        add(8, permissions(), 3001);
    }
    if (named != 0 || permissions() == 0) && !is_broken {
        add(16, permissions(), u32::MAX);
    }
    add(32, permissions(), u32::MAX);
    value
}

/// Carries out a random operation. Returns its description with its result.
fn operate(random: &mut RandomSequence, dir: &Path) -> String {
    let (uid, groups) = USERS[random.below(4) as usize];
    let name = PATHS[random.below(6) as usize];
    let path = &dir.join(name);
    let mode = random.below(0o1000) | [0, 0, 0, 0o2000][random.below(4) as usize];
    let umask = [0, 0o022, 0o077, 0o027][random.below(4) as usize];
    let (which, list) = (random.below(16), random_list(random));
    let flags = XattrFlags::empty();
    let act = || -> (&str, Result<(), Errno>) {
        // SAFETY: the raw calls give this thread a mask of its own.
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_FS), 0);
            libc::umask(umask);
        }
        let bits = Mode::from_raw_mode(mode);
        let open = |flags| rustix::fs::open(path, flags, bits).map(drop);
        match which {
            0..3 => ("set the list", rustix::fs::setxattr(path, ACCESS, &list, flags)),
            3 | 4 => ("set the default", rustix::fs::setxattr(path, DEFAULT, &list, flags)),
            5 => ("remove the list", rustix::fs::removexattr(path, ACCESS)),
            6 => ("remove the default", rustix::fs::removexattr(path, DEFAULT)),
            7 => ("chmod", rustix::fs::chmod(path, bits)),
            8 | 14 => ("create", open(OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)),
            9 => ("mkdir", rustix::fs::mkdir(path, bits)),
            10 => ("read", open(OFlags::RDONLY | OFlags::NONBLOCK)),
            11 => ("write", open(OFlags::WRONLY | OFlags::NONBLOCK)),
            12 => ("execute", rustix::fs::access(path, Access::EXEC_OK)),
            13 => ("read and write", rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK)),
            _ if path.is_dir() => ("rmdir", rustix::fs::rmdir(path)),
            _ => ("unlink", rustix::fs::unlink(path)),
        }
    };
    let (what, result) = as_user_in(uid, 100 + uid, groups, act);
    let result = result.map_err(|errno| errno.raw_os_error());
    format!("{what} {name} as {uid}, mode {mode:o}, mask {umask:o}: {result:?}")
}

/// Owner, mode and lists of all paths, as root sees them.
fn state(dir: &Path) -> String {
    let mut text = String::new();
    for name in PATHS {
        let path = dir.join(name);
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        write!(text, "{name} {:o} {} {}", meta.mode(), meta.uid(), meta.gid()).unwrap();
        for attribute in [ACCESS, DEFAULT] {
            let mut value = [0; 200];
            let read = rustix::fs::getxattr(&path, attribute, &mut value[..]);
            let value = read.map(|length| value[..length].to_vec());
            write!(text, " {value:?}").unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn random_operations_of_several_users_have_the_results_of_a_local_file_system() {
    for (kernel_permissions, seed) in [(false, 1), (true, 2)] {
        let local: RefCell<Vec<(String, String)>> = RefCell::default();
        let options = MountOptions { kernel_permissions, ..MountOptions::default() };
        on_all_with(&options, |root| {
            let dir = root.join("work");
            fs::create_dir(&dir).unwrap();
            chown(&dir, Some(1000), Some(3000)).unwrap();
            fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
            let mut random = RandomSequence::new(seed);
            let is_local = local.borrow().is_empty();
            for step in 0..STEPS {
                let done = (operate(&mut random, &dir), state(&dir));
                if is_local {
                    local.borrow_mut().push(done);
                } else {
                    let expected = &local.borrow()[step];
                    assert_eq!(
                        &done, expected,
                        "step {step} with seed {seed}: {kernel_permissions}"
                    );
                }
            }
        });
        let succeeded = local.borrow().iter().filter(|(done, _)| done.ends_with("Ok(())")).count();
        assert!((STEPS / 10..STEPS).contains(&succeeded), "{succeeded} operations succeeded");
    }
}

#[test]
fn programs_set_show_inherit_and_copy_lists() {
    ["setfacl", "getfacl", "rsync"].into_iter().for_each(need);
    let local = RefCell::new(String::new());
    on_all(|dir| {
        let shown = shell(
            dir,
            "umask 077; mkdir a; touch a/f; setfacl -m u:1001:rwx,g:3000:rx,m::rx a/f
             setfacl -d -m u:1001:rwx,g:3000:rx a; mkdir a/sub; touch a/sub/new; mkfifo a/sub/pipe
             ln -s f a/link; chmod 0607 a/sub/new; setfacl -x u:1001 a/f; echo text >a/f
             cp -a a copied; rsync -aA a/ synchronized; mv a moved; rm -r copied/sub/pipe
             find moved copied synchronized | sort | xargs getfacl -n
              ls -lR --time-style=+ copied | grep -v total | cut -c1-11
             setfacl -bR moved; find moved | sort | xargs getfacl -n; rm -r moved copied synchronized",
        );
        let known = local.replace(shown.clone());
        let differing = known.lines().zip(shown.lines()).find(|(known, shown)| known != shown);
        assert!(known.is_empty() || known == shown, "{differing:?}\n{known}\n{shown}");
    });
}

#[test]
fn list_on_one_mount_has_effect_on_others_at_once() {
    for kernel_permissions in [false, true] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, 1, 64 << 20);
        let options = MountOptions { kernel_permissions, ..MountOptions::default() };
        let paths = ["one", "other"].map(|name| temporary.dir(name));
        let mounts = paths.each_ref().map(|path| mount(attach(pool.nodes()), path, &options));
        let mounts = mounts.map(Result::unwrap);
        fs::create_dir_all(paths[0].join("dir")).unwrap();
        fs::write(paths[0].join("dir/file"), "text").unwrap();
        fs::set_permissions(paths[0].join("dir"), Permissions::from_mode(0o750)).unwrap();
        // Nobody has a lease for a while after it was recalled.
        for (round, wait) in [0, 1200, 0, 0, 1200, 0].into_iter().enumerate() {
            let (here, there) = (&paths[round % 2], &paths[1 - round % 2]);
            let read = |root: &Path| fs::read(root.join("dir/file")).is_ok();
            let both = || as_user_in(1001, 1001, &[], || (read(here), read(there)));
            shell(here, "setfacl -m u:1001:rx dir");
            assert_eq!(both(), (true, true), "permitted, round {round}");
            std::thread::sleep(Duration::from_millis(wait));
            assert_eq!(both(), (true, true));
            shell(here, "setfacl -m u:1001:r dir");
            assert_eq!(both(), (false, false), "denied, round {round}");
            std::thread::sleep(Duration::from_millis(wait));
            assert_eq!(both(), (false, false));
        }
        // The client library asks the same storage node.
        let library = |uid| {
            let fs = attach(pool.nodes());
            let groups = Some(Vec::new());
            let user = Credentials { uid, gid: uid, groups, checked: false };
            fs.on_behalf_of(user).open_path(Path::new("dir/file"), READ).map(drop)
        };
        assert_eq!(library(1001), Err(forebay_protocol::Errno::EACCES));
        shell(&paths[0], "setfacl -m u:1001:x dir");
        assert_eq!(library(1001), Ok(()));
        assert_eq!(library(1002), Err(forebay_protocol::Errno::EACCES));
        mounts.into_iter().for_each(support::unmount);
    }
}

#[test]
fn synced_list_survives_the_end_of_the_daemon() {
    let temporary = Temporary::new();
    let mut daemon = Process::start(&temporary.dir("flash"));
    make_instance(daemon.local(), 64 << 20);
    let path = temporary.dir("mnt");
    let mounted = mount_at(attach(daemon.local()), &path);
    let lists = || shell(&path, "find . | sort | xargs getfacl -n");
    shell(&path, "mkdir dir; setfacl -d -m u:1001:rwx dir; mkdir dir/sub; touch dir/sub/file");
    shell(&path, "setfacl -m u:1002:r dir/sub/file; chmod 640 dir/sub/file");
    File::open(&path).unwrap().sync_all().unwrap();
    let before = lists();
    assert!(before.contains("user:1002:r--") && before.contains("default:user:1001:rwx"));
    daemon.kill();
    daemon.restart();
    assert_eq!(lists(), before);
    support::unmount(mounted);
}
