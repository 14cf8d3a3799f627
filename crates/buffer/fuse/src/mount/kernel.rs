//! The system call that mounts, for root.
//!
//! With the type `fuse`, `mount -o remount` would take the source for the name of a program, and run
//! it. With a type such as `fuse.forebay` it runs `mount.fuse.forebay`.

use super::{MountOptions, mount_table};
use crate::device;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Time between the removal of an idle mount from the table and the end of its connection.
const END_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A mount that this process has made. Dropping it unmounts.
#[derive(Debug)]
pub struct KernelMount {
    path: PathBuf,
    /// The file system, to recognise it.
    file_system: FileSystem,
    /// Its connection.
    device: OwnedFd,
}

impl KernelMount {
    /// Mounts at `path`. Returns the FUSE device to be served, too.
    pub fn new(path: &Path, options: &MountOptions) -> io::Result<(OwnedFd, KernelMount)> {
        let path = path.canonicalize()?;
        let device = device::open()?;
        let data = mount_data(&device, fs::metadata(&path)?.mode(), options);
        let data = CString::new(data).map_err(|_| io::ErrorKind::InvalidInput)?;
        let source =
            CString::new(options.source.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let kind = format!("fuse.{}", options.subtype);
        let target = CString::new(path.as_os_str().as_bytes())?;
        mount(&source, &target, kind, mount_flags(options), Some(data.as_c_str()))?;
        let file_system = file_system_at(&path)?.ok_or(io::ErrorKind::NotFound)?;
        let own = device.try_clone()?;
        Ok((device, KernelMount { path, file_system, device: own }))
    }

    /// Unmounts, unless another process has done so. `EBUSY`: files are in use, or the file system is
    /// covered by another mount, or still reached by open files or another mount of it.
    pub fn unmount(&self) -> io::Result<()> {
        self.unmount_own()?;
        if has_ended(&self.device, END_TIMEOUT)? { Ok(()) } else { Err(Errno::BUSY.into()) }
    }

    /// Unmounts what is at the path if that is this mount: something else may be mounted there by now.
    /// Until its connection ends, no other file system has its number.
    fn unmount_own(&self) -> io::Result<()> {
        if !has_ended(&self.device, Timespec::default())?
            && file_system_at(&self.path)?.as_ref() == Some(&self.file_system)
        {
            unmount(&self.path, UnmountFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount_own() {
            tracing::warn!(path = %self.path.display(), %error, "cannot unmount");
        }
    }
}

/// Whether the kernel has ended the connection of a FUSE device, or does so before the timeout.
pub fn has_ended(device: &OwnedFd, timeout: Timespec) -> io::Result<bool> {
    loop {
        // Errors are always reported.
        let mut state = [PollFd::new(device, PollFlags::empty())];
        match poll(&mut state, Some(&timeout)) {
            Ok(_) => return Ok(state[0].revents().contains(PollFlags::ERR)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn mount_flags(options: &MountOptions) -> MountFlags {
    let read_only = if options.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    MountFlags::NODEV | MountFlags::NOSUID | read_only
}

/// The options for the kernel's FUSE. `mode` is that of the mount point.
fn mount_data(device: impl AsFd, mode: u32, options: &MountOptions) -> String {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let device = device.as_fd().as_raw_fd();
    let mut data =
        format!("fd={device},rootmode={mode:o},user_id={},group_id={}", uid.as_raw(), gid.as_raw());
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    data
}

/// Device number and type of a file system. The kernel uses numbers again.
type FileSystem = ((u32, u32), OsString);

/// The file system that is mounted at `path`.
fn file_system_at(path: &Path) -> io::Result<Option<FileSystem>> {
    let found = mount_table()?.into_iter().rfind(|entry| entry.point == path);
    Ok(found.map(|entry| (entry.device, entry.kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_path() {
        let found = file_system_at(Path::new("/proc")).unwrap();
        assert_eq!(found.unwrap().1, "proc");
        assert_eq!(file_system_at(Path::new("/proc/self")).unwrap(), None);
    }

    /// The kernel gives the device number of the first mount to the second one.
    #[test]
    fn end_of_an_unmounted_mount_leaves_the_next_mount_at_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let options = MountOptions {
            source: "test".into(),
            subtype: "test".into(),
            ..MountOptions::default()
        };
        let (_, first) = KernelMount::new(directory.path(), &options).unwrap();
        unmount(&first.path, UnmountFlags::empty()).unwrap();
        let (_, second) = KernelMount::new(directory.path(), &options).unwrap();
        drop(first);
        assert_eq!(file_system_at(&second.path).unwrap().as_ref(), Some(&second.file_system));
        second.unmount_own().unwrap();
        assert_eq!(file_system_at(&second.path).unwrap(), None);
    }
}
