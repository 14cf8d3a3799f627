//! Parallel file systems with limits for users, and those whose `syncfs` does not make files durable.
//! Needs root, and a mount of FUSE.

use crate::support;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use forebay_client::{Admin, ClientOptions, Fs, MountOptions, mount};
use forebay_protocol::InstanceId;
use forebay_protocol::message::InstanceSpec;
use forebay_stage::end::LocalFileSystem;
use forebay_stage::{Identity, ItemKind, StageLocation, StageOptions, Verify};
use support::{noise, one, run, sides};

const USER: u32 = 12_345;
const MIB: usize = 1 << 20;

/// A small ext4, half of whose blocks are reserved for root.
struct ReservedBlocks(PathBuf);

impl ReservedBlocks {
    /// `None` where there are no loop devices, and need not be.
    fn mount(image: &Path, at: &Path) -> Option<ReservedBlocks> {
        assert!(rustix::process::geteuid().is_root(), "this test mounts file systems: run as root");
        fs::File::create(image).unwrap().set_len(32 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "50"]).arg(image).status();
        assert!(made.unwrap().success(), "mkfs.ext4 fails");
        let mounted = Command::new("mount").args(["-o", "loop"]).arg(image).arg(at).status();
        if !mounted.unwrap().success() {
            support::expect_no_loop_devices("a limit of blocks");
            return None;
        }
        Some(ReservedBlocks(at.to_owned()))
    }
}

impl Drop for ReservedBlocks {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "umount fails");
    }
}

#[test]
fn stage_out_of_a_user_is_bound_by_limits_that_root_may_exceed() {
    let sides = sides();
    fs::set_permissions(
        sides.directory.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let Some(disk) = ReservedBlocks::mount(&sides.directory.path().join("image"), &sides.pfs)
    else {
        return;
    };
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
