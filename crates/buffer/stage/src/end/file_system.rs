//! The parallel file system as mounted on this host, all of it or below some directories.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::local::{OpenFile, User, enter};
use super::{DirHandle, FileHandle, FileSystem, Identity};

/// Maximum number of lookups of a path of which a part is renamed meanwhile.
const MAX_LOOKUPS: usize = 32;

/// The parallel file system as mounted on this host, accessed with the permissions of a user.
#[derive(Debug)]
pub struct LocalFileSystem {
    /// If there are any, no path and no symbolic link leads out of these directories. Each has the
    /// result of opening it.
    roots: Vec<(PathBuf, Result<OwnedFd, Errno>)>,
    user: User,
}

impl LocalFileSystem {
    /// The file system below `directories`, or all of it if there are none, with the permissions of
    /// `user`, or of this process. If a directory cannot be opened, accesses below it fail.
    pub fn open(directories: &[PathBuf], user: Option<Arc<Identity>>) -> Arc<dyn FileSystem> {
        let open = |path: &PathBuf| {
            let _entered = enter(&user)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(CWD, path, flags, Mode::empty())
        };
        let roots = directories.iter();
        let roots = roots.map(|path| (path.clone(), open(path))).collect();
        Arc::new(LocalFileSystem { roots, user })
    }

    /// Opens what a path leads to, as long as that is below the root that the path starts with, or
    /// below another root. `XDEV` if it is not.
    fn open_path(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let _entered = enter(&self.user)?;
        let flags = flags | OFlags::CLOEXEC;
        if self.roots.is_empty() {
            return openat(CWD, path, flags, Mode::empty());
        }
        let prefixes = self.roots.iter().filter(|(root, _)| path.starts_with(root));
        let nearest = prefixes.max_by_key(|(root, _)| root.as_os_str().len());
        let (root, directory) = nearest.ok_or(Errno::XDEV)?;
        let directory = directory.as_ref().map_err(|errno| *errno)?;
        let rest = path.strip_prefix(root).map_err(|_| Errno::XDEV)?;
        match open_below(directory, rest, flags, ResolveFlags::empty()) {
            // For instance an absolute symbolic link. It is resolved first, and the result opened
            // without following any link.
            Err(Errno::XDEV) => self.open_resolved(path, flags),
            outcome => outcome,
        }
    }

    fn open_resolved(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let resolved = real_path(&found)?;
        for (_, directory) in &self.roots {
            let Ok(directory) = directory else { continue };
            if let Ok(rest) = resolved.strip_prefix(real_path(directory)?) {
                return open_below(directory, rest, flags, ResolveFlags::NO_SYMLINKS);
            }
        }
        Err(Errno::XDEV)
    }
}

fn open_below(
    directory: &OwnedFd,
    rest: &Path,
    flags: OFlags,
    more: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    assert!(rest.is_relative());
    let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
    for _ in 1..MAX_LOOKUPS {
        match openat2(directory, rest, flags, Mode::empty(), how) {
            // A part of the path was renamed: the kernel cannot tell whether it led out.
            Err(Errno::AGAIN | Errno::INTR) => {}
            outcome => return outcome,
        }
    }
    openat2(directory, rest, flags, Mode::empty(), how)
}

/// The path of an open file without symbolic links.
fn real_path(open: &OwnedFd) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", open.as_raw_fd());
    std::fs::read_link(link).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

impl FileSystem for LocalFileSystem {
    fn open_dir(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno> {
        let fd = self.open_path(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Box::new(OpenFile::new(fd, &self.user)))
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn FileHandle>, Errno> {
        // Opening a pipe must not block until a process writes to it.
        let fd = self.open_path(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Box::new(OpenFile::new(fd, &self.user)))
    }
}
