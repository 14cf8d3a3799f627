//! Mounting instances with FUSE, and removing mounts that other processes left.

use std::fs;
use std::io;
use std::path::Path;

use forebay_client::{Fs, Mount, MountOptions, mount};
use forebay_fuse::mount::mount_table;
use forebay_job_script::AccessMode;

use forebay_control::messages::InstanceId;
use forebay_protocol::Ino;

/// Mounts an instance at `path`, which is created.
pub(super) fn mount_instance_at(
    session: Fs,
    instance: InstanceId,
    mode: AccessMode,
    path: &Path,
) -> Result<Mount, String> {
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let options = MountOptions {
        name: format!("forebay-{}", instance.0),
        kernel_permissions: needs_kernel_permissions(&session),
        read_only: mode == AccessMode::LoadBalanced,
        ..MountOptions::default()
    };
    let mounted = mount(session, path, &options).map_err(|e| e.to_string())?;
    tracing::info!(%instance, path = %path.display(), "mounted");
    Ok(mounted)
}

/// Whether the kernel checks permissions of a job's mount. Names in directories that not everybody may
/// search are cached only then, and only then do the modes of pipes apply. But on several storage nodes
/// it costs requests, which an instance that no other user can enter does not need.
fn needs_kernel_permissions(session: &Fs) -> bool {
    let root = session.get_attr(Ino::ROOT);
    let is_private = root.is_ok_and(|root| root.mode & 0o077 == 0);
    !is_private || session.storage_nodes() == 1
}

/// Unmounts at once, or if it is in use when it no longer is.
pub(super) fn detach(path: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    use rustix::mount::{UnmountFlags, unmount};
    match unmount(path, UnmountFlags::DETACH) {
        // EINVAL: nothing is mounted there.
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

/// Removes what an earlier process left: its mounts below `directory`, and the links to them in the
/// directories of jobs below `mount_root`. The controller may never ask to unmount these: it learns
/// from the first heartbeat that they are gone.
pub fn remove_stale_mounts(directory: &Path, mount_root: &Path) {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries(directory) {
        if entry.file_name().to_string_lossy().starts_with('i') && detach(&entry.path()).is_ok() {
            let _ = fs::remove_dir(entry.path());
        }
    }
    let is_stale = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(directory));
    for job in entries(mount_root).filter(|job| job.file_type().is_ok_and(|kind| kind.is_dir())) {
        for link in entries(&job.path()).map(|entry| entry.path()).filter(|link| is_stale(link)) {
            let _ = fs::remove_file(link);
            // Fails while the job has other links.
            let _ = fs::remove_dir(job.path());
        }
    }
}

/// Aborts the FUSE connections of mounts below `directory`. A process that is killed while one of
/// its threads waits for its own mount cannot exit before that. Needs the rights of the user who
/// mounted.
pub(crate) fn abort_stale_mounts(directory: &Path) {
    let Ok(table) = mount_table() else {
        return;
    };
    for mounted in table.iter().filter(|entry| entry.point.starts_with(directory)) {
        let (_, connection) = mounted.device;
        let abort = format!("/sys/fs/fuse/connections/{connection}/abort");
        if fs::write(abort, "1").is_err() {
            let force = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(&mounted.point, force);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_to_mounts_of_an_earlier_process_are_removed_and_others_stay() {
        let home = tempfile::tempdir().unwrap();
        let (mounts, jobs) = (home.path().join("mounts"), home.path().join("jobs"));
        for directory in ["i7/striped", "../jobs/1", "../jobs/2", "../other"] {
            fs::create_dir_all(mounts.join(directory)).unwrap();
        }
        for link in ["1/ss", "1/private.new", "2/ss"] {
            symlink(mounts.join("i7/striped"), jobs.join(link)).unwrap();
        }
        symlink(home.path().join("other"), jobs.join("2/other")).unwrap();
        remove_stale_mounts(&mounts, &jobs);
        assert!(!jobs.join("1").exists() && !jobs.join("2/ss").is_symlink());
        assert!(jobs.join("2/other").is_symlink());
    }
}
