//! Parallel file systems with limits for users, those without access control lists, and those whose `syncfs`
//! does not make files durable.
//! Needs root, and a mount of FUSE.

use crate::support;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use forebay_client::{Admin, ClientOptions, Fs, MountOptions, mount};
use forebay_protocol::InstanceId;
use forebay_protocol::message::{ACCESS_ACL, InstanceSpec, XattrMode};
use forebay_stage::end::LocalFileSystem;
use forebay_stage::{Identity, ItemKind, StageLocation, StageOptions, Verify};
use support::{noise, one, run, sides};

const USER: u32 = 12_345;
const MIB: usize = 1 << 20;

/// A mounted file system.
struct Mounted(PathBuf);

impl Mounted {
    fn new(arguments: &[&str], at: &Path) -> Option<Mounted> {
        assert!(rustix::process::geteuid().is_root(), "this test mounts file systems: run as root");
        let mounted = Command::new("mount").args(arguments).arg(at).status().unwrap();
        mounted.success().then(|| Mounted(at.to_owned()))
    }

    /// A small ext4, half of whose blocks are reserved for root. `None` where there are no loop devices, and
    /// need not be.
    fn with_reserved_blocks(image: &Path, at: &Path) -> Option<Mounted> {
        fs::File::create(image).unwrap().set_len(32 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "50"]).arg(image).status();
        assert!(made.unwrap().success(), "mkfs.ext4 fails");
        let mounted = Mounted::new(&["-o", "loop", image.to_str().unwrap()], at);
        if mounted.is_none() {
            support::expect_no_loop_devices("a limit of blocks");
        }
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "umount fails");
    }
}

#[test]
fn stage_out_of_a_user_is_bound_by_limits_that_root_may_exceed() {
    let sides = sides();
    fs::set_permissions(sides.directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let image = sides.directory.path().join("image");
    let Some(disk) = Mounted::with_reserved_blocks(&image, &sides.pfs) else { return };
    let mine = sides.pfs.join("mine");
    fs::create_dir(&mine).unwrap();
    std::os::unix::fs::chown(&mine, Some(USER), Some(USER)).unwrap();
    let pfs = LocalFileSystem::open(&[], Identity::for_user(USER, USER).unwrap().map(Arc::new));
    sides.buffer.write("large", &noise(20 * MIB, 1));
    let target = |name: &str| StageLocation::in_pfs(&pfs, mine.join(name));
    let out = one(ItemKind::File, sides.inside("large"), target("large"));
    let error = run(&out, &StageOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
    sides.buffer.write("small", &noise(2 * MIB, 2));
    run(&one(ItemKind::File, sides.inside("small"), target("small")), &StageOptions::default())
        .unwrap();
    // Root is not bound.
    let out = one(ItemKind::File, sides.inside("large"), sides.outside("mine/of_root"));
    run(&out, &StageOptions::default()).unwrap();
    drop(pfs);
    drop(disk);
}

/// A list with these entries: tag, permissions and user or group.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn copies_without_their_access_control_lists_are_for_nobody_else() {
    const NO_ID: u32 = u32::MAX;
    let sides = sides();
    let disk = Mounted::new(&["-t", "ramfs", "ramfs"], &sides.pfs).unwrap();
    sides.buffer.fs.mkdir_all(Path::new("striped/tree"), 0o755).unwrap();
    sides.buffer.write("tree/file", b"contents");
    // The group has nothing; a user may read and write.
    let of_file = [(1, 6, NO_ID), (2, 6, USER), (4, 0, NO_ID), (16, 6, NO_ID), (32, 0, NO_ID)];
    // All but one user may read.
    let of_dir = [(1, 7, NO_ID), (2, 0, USER), (4, 5, NO_ID), (16, 5, NO_ID), (32, 5, NO_ID)];
    for (path, entries, mode) in [("tree/file", of_file, 0o660), ("tree", of_dir, 0o755)] {
        let ino = sides.buffer.attr(path).unwrap().ino;
        sides.buffer.fs.set_xattr(ino, ACCESS_ACL, &list(&entries), XattrMode::Any).unwrap();
        assert_eq!(sides.buffer.attr(path).unwrap().mode & 0o777, mode);
    }
    let out = sides.stage_out(ItemKind::Directory, "tree", "tree");
    let report = run(&out, &StageOptions::default()).unwrap();
    assert_eq!(report.warnings.len(), 2, "{:?}", report.warnings);
    for (path, mode) in [("tree/file", 0o600), ("tree", 0o700)] {
        let found = fs::metadata(sides.pfs.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{path} has mode {found:o}");
    }
    // A list that can be preserved is.
    let copy = sides.directory.path().join("preserved");
    let target = StageLocation::in_pfs(&LocalFileSystem::open(&[], None), copy.clone());
    let out = one(ItemKind::File, sides.inside("tree/file"), target);
    run(&out, &StageOptions::default()).unwrap();
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o660);
    let mut value = [0; 256];
    let name = std::str::from_utf8(ACCESS_ACL).unwrap();
    let length = rustix::fs::getxattr(&copy, name, &mut value[..]).unwrap();
    assert_eq!(value[..length], list(&of_file));
    drop(disk);
}

#[test]
fn each_file_is_synced_where_syncfs_does_not_suffice() {
    let sides = sides();
    let admin = Admin::connect(sides.daemon.address(), ClientOptions::default()).unwrap();
    let target = InstanceId(77);
    let spec = InstanceSpec {
        id: target,
        uid: 0,
        gid: 0,
        mode: 0o777,
        capacity: 1 << 30,
        inodes: 1000,
        placement: forebay_protocol::placement::Placement::single_node(),
    };
    admin.create_instance(spec).unwrap();
    let fs = Fs::attach(sides.daemon.address(), target, ClientOptions::default()).unwrap();
    let mount = mount(fs, &sides.pfs, &MountOptions::default()).unwrap();
    for (name, length) in [("empty", 0), ("small", 5000), ("large", 9 * MIB)] {
        sides.buffer.write(name, &noise(length, 3));
    }
    let (out, request) = sides.files_out(&["empty", "small", "large"]);
    for verify in [Verify::Off, Verify::ReadBack] {
        let syncs = || mount.report().operations["fsync"].count();
        let before = syncs();
        run(&request, &StageOptions { verify, ..StageOptions::default() }).unwrap();
        assert!(syncs() >= before + 3, "three files, {} syncs", syncs() - before);
    }
    assert!(fs::read(out.join("large")).unwrap() == noise(9 * MIB, 3));
    mount.unmount().unwrap();
}
