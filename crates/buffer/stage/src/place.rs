//! Opening directories and files on either side without being led astray.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

use crate::error::{Problem, describe};

/// A path on one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The instance's root; `None` on the parallel file system.
    root: Option<PathBuf>,
    path: PathBuf,
}

impl Place {
    /// A path of the parallel file system, symbolic links in it followed.
    pub fn outside(path: impl Into<PathBuf>) -> Place {
        Place {
            root: None,
            path: path.into(),
        }
    }

    /// `path` below an instance's root. Neither `..` nor a symbolic link leads out of the root;
    /// missing directories are made when it is a target.
    pub fn inside(root: impl Into<PathBuf>, path: impl Into<PathBuf>) -> Place {
        Place {
            root: Some(root.into()),
            path: path.into(),
        }
    }

    /// The whole path, for messages.
    pub fn display(&self) -> PathBuf {
        match &self.root {
            Some(root) if self.path.as_os_str().is_empty() => root.clone(),
            Some(root) => root.join(&self.path),
            None => self.path.clone(),
        }
    }

    fn problem(&self, reason: impl Into<String>) -> Problem {
        Problem {
            path: self.display(),
            reason: reason.into(),
        }
    }

    /// Opens what is there.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Problem> {
        let flags = flags | OFlags::CLOEXEC;
        let opened = match &self.root {
            None => openat(CWD, &self.path, flags, Mode::empty()),
            Some(root) => {
                let base = self.base(root)?;
                if self.path.as_os_str().is_empty() {
                    openat(&base, ".", flags, Mode::empty())
                } else {
                    beneath(&base, &self.path, flags)
                }
            }
        };
        opened.map_err(|errno| match errno {
            Errno::XDEV | Errno::LOOP if self.root.is_some() => {
                self.problem("a symbolic link leads out of the instance")
            }
            Errno::NOENT => self.problem("does not exist"),
            errno => self.problem(describe(errno)),
        })
    }

    fn base(&self, root: &Path) -> Result<OwnedFd, Problem> {
        openat(
            CWD,
            root,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| Problem {
            path: root.to_owned(),
            reason: format!("the instance cannot be opened: {}", describe(errno)),
        })
    }

    /// The directory and the name in it of a file that is to be made.
    pub(crate) fn open_parent(&self) -> Result<(OwnedFd, std::ffi::OsString), Problem> {
        let name = self
            .path
            .file_name()
            .ok_or_else(|| self.problem("names no file"))?
            .to_owned();
        let parent = self.path.parent().unwrap_or(Path::new(""));
        let place = Place {
            root: self.root.clone(),
            path: parent.to_owned(),
        };
        if place.root.is_some() {
            return Ok((place.make()?.0, name));
        }
        let path = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let opened = openat(
            CWD,
            path,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        opened.map(|fd| (fd, name)).map_err(|errno| {
            place.problem(match errno {
                // Made by nobody but the user: else a file system that is not mounted would go unseen.
                Errno::NOENT => {
                    "the directory does not exist; make it before staging out".to_owned()
                }
                errno => describe(errno),
            })
        })
    }

    /// Opens a directory that is to be a target, making it if need be (inside an instance with
    /// all above it), and says whether it was made.
    pub(crate) fn make(&self) -> Result<(OwnedFd, bool), Problem> {
        let Some(root) = &self.root else {
            let (parent, name) = self.open_parent()?;
            return make_in(&parent, Path::new(&name), true)
                .map_err(|errno| self.problem(describe(errno)));
        };
        let mut here = self.base(root)?;
        let mut made = false;
        for component in self.path.components() {
            let Component::Normal(name) = component else {
                return Err(self.problem("leads out of the instance"));
            };
            (here, made) = make_in(&here, Path::new(name), false).map_err(|errno| match errno {
                Errno::LOOP | Errno::NOTDIR => {
                    self.problem("a symbolic link or a file is where a directory is wanted")
                }
                errno => self.problem(describe(errno)),
            })?;
        }
        Ok((here, made))
    }
}

/// Opens the directory `name` in `parent`, making it if need be, and says whether it was made.
pub(crate) fn make_in(
    parent: &OwnedFd,
    name: &Path,
    follow: bool,
) -> Result<(OwnedFd, bool), Errno> {
    let made = match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno),
    };
    let follow = if follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let fd = openat(
        parent,
        name,
        OFlags::DIRECTORY | OFlags::CLOEXEC | follow,
        Mode::empty(),
    )?;
    Ok((fd, made))
}

/// Opens `path` below `base`; the kernel sees to it that nothing leads out.
fn beneath(base: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    match openat2(
        base,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    ) {
        // Kernels before 5.6, and filters that do not know the call: then no links at all.
        Err(Errno::NOSYS | Errno::PERM) => strictly_beneath(base, path, flags),
        outcome => outcome,
    }
}

/// Opens `path` below `base` component by component, following no symbolic link.
pub(crate) fn strictly_beneath(
    base: &OwnedFd,
    path: &Path,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let mut components = path.components().peekable();
    let mut here: Option<OwnedFd> = None;
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else {
            return Err(Errno::XDEV);
        };
        let flags = if components.peek().is_some() {
            OFlags::DIRECTORY | OFlags::PATH
        } else {
            flags
        };
        let from = here.as_ref().unwrap_or(base);
        let next = openat(
            from,
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        here = Some(next);
    }
    match here {
        Some(fd) => Ok(fd),
        None => openat(base, ".", flags | OFlags::CLOEXEC, Mode::empty()),
    }
}
