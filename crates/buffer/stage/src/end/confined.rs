//! The parallel file system below some directories: no path and no symbolic link leads out of
//! them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::local::{Who, enter, opened};
use super::{DirHandle, FileHandle, FileSystem, Identity};

/// How often a path is looked up again that was renamed meanwhile.
const TRIES: usize = 32;

/// Directories of the parallel file system, and whose rights reach them.
#[derive(Debug)]
pub struct ConfinedFileSystem {
    /// Each with what opening it has brought.
    roots: Vec<(PathBuf, Result<OwnedFd, Errno>)>,
    who: Who,
}

impl ConfinedFileSystem {
    /// What is below `directories`, reached with someone else's rights if there is someone. A
    /// directory that cannot be opened is told when something below it is wanted.
    pub fn open(directories: &[PathBuf], who: Option<Arc<Identity>>) -> Arc<dyn FileSystem> {
        let open = |path: &PathBuf| {
            let _as = enter(&who)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(CWD, path, flags, Mode::empty())
        };
        let roots = directories.iter();
        let roots = roots.map(|path| (path.clone(), open(path))).collect();
        Arc::new(ConfinedFileSystem { roots, who })
    }

    /// Opens what a path leads to, as long as it stays below the directory that it begins with, or
    /// leads to below another one. `XDEV`: it leads out.
    fn open_path(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let _as = enter(&self.who)?;
        let flags = flags | OFlags::CLOEXEC;
        let within = self.roots.iter().filter(|(root, _)| path.starts_with(root));
        let nearest = within.max_by_key(|(root, _)| root.as_os_str().len());
        let (root, directory) = nearest.ok_or(Errno::XDEV)?;
        let directory = directory.as_ref().map_err(|errno| *errno)?;
        let rest = path.strip_prefix(root).map_err(|_| Errno::XDEV)?;
        match below(directory, rest, flags, ResolveFlags::empty()) {
            // An absolute symbolic link, for instance. Where it leads is settled without it: then
            // no link is followed any more.
            Err(Errno::XDEV) => self.open_goal(path, flags),
            outcome => outcome,
        }
    }

    fn open_goal(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let goal = real_path(&found)?;
        for (_, directory) in &self.roots {
            let Ok(directory) = directory else { continue };
            if let Ok(rest) = goal.strip_prefix(real_path(directory)?) {
                return below(directory, rest, flags, ResolveFlags::NO_SYMLINKS);
            }
        }
        Err(Errno::XDEV)
    }
}

fn below(
    directory: &OwnedFd,
    rest: &Path,
    flags: OFlags,
    more: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let rest = match rest.as_os_str().is_empty() {
        true => Path::new("."),
        false => rest,
    };
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
    for _ in 1..TRIES {
        match openat2(directory, rest, flags, Mode::empty(), how) {
            // Something on the way was renamed: the kernel cannot tell whether that led out.
            Err(Errno::AGAIN | Errno::INTR) => {}
            outcome => return outcome,
        }
    }
    openat2(directory, rest, flags, Mode::empty(), how)
}

/// Where something open is, without any symbolic links.
fn real_path(open: &OwnedFd) -> Result<PathBuf, Errno> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", open.as_raw_fd());
    std::fs::read_link(link).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

impl FileSystem for ConfinedFileSystem {
    fn open_dir(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno> {
        let fd = self.open_path(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Box::new(opened(fd, &self.who)))
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn FileHandle>, Errno> {
        // A pipe must not keep us waiting for someone who writes to it.
        let fd = self.open_path(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Box::new(opened(fd, &self.who)))
    }
}
