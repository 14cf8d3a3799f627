//! Mounting an instance, and unmounting also what others have left mounted.

use std::fs;
use std::io;
use std::path::Path;

use forebay_client::{Fs, Mount, MountOptions, mount};
use forebay_job_script::AccessMode;

use forebay_control::messages::InstanceId;

/// Mounts an attached instance at `path`, which is made.
pub(super) fn mount_instance_at(
    attached: Fs,
    instance: InstanceId,
    mode: AccessMode,
    path: &Path,
) -> Result<Mount, String> {
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let options = MountOptions {
        name: format!("forebay-{}", instance.0),
        read_only: mode == AccessMode::LoadBalanced,
        ..MountOptions::default()
    };
    let mounted = mount(attached, path, &options).map_err(|e| e.to_string())?;
    tracing::info!(instance = instance.0, path = %path.display(), "mounted");
    Ok(mounted)
}

/// Unmounts now what is unused and later what is in use.
pub(super) fn detach(path: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    use rustix::mount::{UnmountFlags, unmount};
    match unmount(path, UnmountFlags::DETACH) {
        // Not mounted: what was wanted.
        Ok(()) | Err(Errno::INVAL) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    let quiet = std::process::Stdio::null;
    let status = std::process::Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(path)
        .stdout(quiet())
        .stderr(quiet())
        .status()?;
    // It fails too if nothing is mounted there; then the directory can be removed.
    if status.success() || fs::read_dir(path).is_ok() {
        Ok(())
    } else {
        Err(io::Error::other("fusermount3 cannot unmount it"))
    }
}

/// Takes away mounts whose process has ended.
pub(crate) fn unmount_stale(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with('i') && detach(&entry.path()).is_ok() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Breaks the connections of mounts below `directory`. A process that was killed while a thread of
/// its own waited for its own mount can end only then; whoever mounted it may do this.
pub(crate) fn abort_stale_mounts(directory: &Path) {
    let Ok(table) = fs::read_to_string("/proc/self/mountinfo") else {
        return;
    };
    for line in table.lines() {
        // Fields: number, parent, major:minor, root, mount point, …
        let mut fields = line.split(' ').skip(2);
        let (Some(device), Some(point)) = (fields.next(), fields.nth(1)) else {
            continue;
        };
        let Some((_, connection)) = device.split_once(':') else {
            continue;
        };
        if Path::new(point).starts_with(directory) {
            let abort = format!("/sys/fs/fuse/connections/{connection}/abort");
            if fs::write(abort, "1").is_err() {
                let force =
                    rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
                let _ = rustix::mount::unmount(point, force);
            }
        }
    }
}
