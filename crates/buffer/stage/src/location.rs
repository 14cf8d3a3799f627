//! Paths on either side, and opening them safely.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::end::{
    DirHandle, FileHandle, FileKind, FileSystem, Found, Namespace, mkdir_within, open_within,
};
use crate::error::{Problem, describe};

/// The reason why a path of the parallel file system is refused.
const LEADS_OUT: &str =
    "leads out of the directories from and to which this pool stages (`staging.below`)";

/// A path on one side.
#[derive(Clone, Debug)]
pub struct StageLocation {
    end: End,
    path: PathBuf,
}

#[derive(Clone, Debug)]
enum End {
    Pfs(Arc<dyn FileSystem>),
    Instance(Arc<Namespace>),
}

impl StageLocation {
    /// A path on a parallel file system. Symbolic links in it are followed.
    pub fn in_pfs(pfs: &Arc<dyn FileSystem>, path: impl Into<PathBuf>) -> StageLocation {
        StageLocation { end: End::Pfs(pfs.clone()), path: path.into() }
    }

    /// `path` in a namespace of an instance. Neither `..` nor a symbolic link leads out of it. The
    /// missing directories of a target are created.
    pub fn in_instance(namespace: &Arc<Namespace>, path: impl Into<PathBuf>) -> StageLocation {
        StageLocation { end: End::Instance(namespace.clone()), path: path.into() }
    }

    /// The whole path, for messages.
    pub fn display(&self) -> PathBuf {
        match &self.end {
            End::Instance(namespace) if self.path.as_os_str().is_empty() => {
                namespace.display_path().to_owned()
            }
            End::Instance(namespace) => namespace.display_path().join(&self.path),
            End::Pfs(_) => self.path.clone(),
        }
    }

    /// Whether it is on a parallel file system, where users rename what is on its path.
    pub(crate) fn is_in_pfs(&self) -> bool {
        matches!(self.end, End::Pfs(_))
    }

    /// Another path on the same side.
    pub(crate) fn sibling(&self, path: &Path) -> StageLocation {
        StageLocation { end: self.end.clone(), path: path.to_owned() }
    }

    /// The last component of its path.
    pub(crate) fn file_name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }

    /// Another entry of the same directory.
    pub(crate) fn with_file_name(&self, name: &OsStr) -> StageLocation {
        self.sibling(&self.path.with_file_name(name))
    }

    /// A problem with this location.
    pub(crate) fn problem(&self, reason: impl Into<String>, errno: Errno) -> Problem {
        Problem::new(self.display(), reason, errno)
    }

    fn cannot_open(&self, errno: Errno) -> Problem {
        let reason = match (errno, &self.end) {
            (Errno::XDEV, End::Instance(_)) => "leads out of the instance".to_owned(),
            (Errno::XDEV, End::Pfs(_)) => LEADS_OUT.to_owned(),
            (Errno::LOOP, End::Instance(_)) => "its symbolic links lead in circles".to_owned(),
            (Errno::NOENT, End::Instance(_)) => {
                "does not exist: nothing was written there".to_owned()
            }
            (Errno::NOENT, End::Pfs(_)) => "does not exist".to_owned(),
            _ => describe(errno),
        };
        self.problem(reason, errno)
    }

    /// Opens the directory at this location.
    pub(crate) fn open_dir(&self) -> Result<Box<dyn DirHandle>, Problem> {
        let opened = match &self.end {
            End::Pfs(pfs) => pfs.open_dir(&self.path),
            End::Instance(namespace) => match open_within(namespace, &self.path) {
                Ok(Found::Dir(dir)) => Ok(dir),
                Ok(Found::File(_)) => Err(Errno::NOTDIR),
                Err(errno) => Err(errno),
            },
        };
        opened.map_err(|errno| match errno {
            Errno::NOTDIR => self.problem("is not a directory; stage it with type=file", errno),
            errno => self.cannot_open(errno),
        })
    }

    /// Opens the file at this location.
    pub(crate) fn open_file(&self) -> Result<Box<dyn FileHandle>, Problem> {
        let opened = match &self.end {
            End::Pfs(pfs) => pfs.open_file(&self.path),
            End::Instance(namespace) => match open_within(namespace, &self.path) {
                Ok(Found::File(file)) => Ok(file),
                Ok(Found::Dir(_)) => {
                    let reason = "is a directory; stage it with type=directory";
                    return Err(self.problem(reason, Errno::ISDIR));
                }
                Err(errno) => Err(errno),
            },
        };
        opened.map_err(|errno| self.cannot_open(errno))
    }

    /// The contents of a file of at most `max_bytes` bytes.
    pub fn read(&self, max_bytes: u64) -> Result<Vec<u8>, Problem> {
        let file = self.open_file()?;
        let stat = file.stat().map_err(|errno| self.cannot_open(errno))?;
        if stat.kind != FileKind::File {
            return Err(self.problem("is not a file", Errno::INVAL));
        }
        if stat.size > max_bytes {
            let reason = format!("is larger than {max_bytes} bytes");
            return Err(self.problem(reason, Errno::FBIG));
        }
        let mut bytes = vec![0; usize::try_from(stat.size).unwrap_or(0)];
        let read = file.read_at(&mut bytes, 0);
        bytes.truncate(read.map_err(|errno| self.problem(describe(errno), errno))?);
        Ok(bytes)
    }

    /// Opens the parent directory of a file to be created; returns it with the name of the file.
    pub(crate) fn open_parent(&self) -> Result<(Box<dyn DirHandle>, OsString), Problem> {
        let name = self.path.file_name();
        let name = name.ok_or_else(|| self.problem("names no file", Errno::INVAL))?;
        let parent = self.path.parent().unwrap_or(Path::new(""));
        let parent_location = StageLocation { end: self.end.clone(), path: parent.to_owned() };
        let dir = match &self.end {
            End::Instance(_) => parent_location.open_or_mkdir()?.0,
            End::Pfs(pfs) => {
                let path = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                pfs.open_dir(path).map_err(|errno| {
                    let reason = match errno {
                        // It is not created here: the reason may be a file system that is not
                        // mounted.
                        Errno::NOENT => {
                            "the directory does not exist; create it before staging out".to_owned()
                        }
                        Errno::XDEV => LEADS_OUT.to_owned(),
                        errno => describe(errno),
                    };
                    parent_location.problem(reason, errno)
                })?
            }
        };
        Ok((dir, name.to_owned()))
    }

    /// Fails unless the directory at this location is `held`, if it is on a parallel file system.
    pub(crate) fn check_is_dir(&self, held: &dyn DirHandle) -> Result<(), Problem> {
        let End::Pfs(pfs) = &self.end else {
            return Ok(());
        };
        let inode = |dir: &dyn DirHandle| dir.stat().map(|stat| stat.inode);
        let found = pfs.open_dir(&self.path).and_then(|dir| inode(&*dir));
        match (found, inode(held)) {
            (Ok(found), Ok(held)) if found == held => Ok(()),
            (Err(Errno::NOENT | Errno::NOTDIR) | Ok(_), Ok(_)) => Err(self.moved()),
            (Err(errno), _) | (_, Err(errno)) => Err(self.cannot_open(errno)),
        }
    }

    /// Fails unless there is a file at this location. The source may have changed since it was copied, so
    /// the size is not compared.
    pub(crate) fn check_is_file(&self) -> Result<(), Problem> {
        let (parent, name) = self.open_parent()?;
        match parent.lstat(&name) {
            Ok(found) if found.kind == FileKind::File => Ok(()),
            Ok(_) | Err(Errno::NOENT) => Err(self.moved()),
            Err(errno) => Err(self.cannot_open(errno)),
        }
    }

    /// Another entry, or none, is at the location to which was copied.
    fn moved(&self) -> Problem {
        let reason = "was renamed, removed or replaced while it was staged: the copies are not there; \
                      stage again";
        self.problem(reason, Errno::STALE)
    }

    /// Opens a target directory, and creates it if necessary (in an instance with all parents).
    /// Returns whether it was created.
    pub(crate) fn open_or_mkdir(&self) -> Result<(Box<dyn DirHandle>, bool), Problem> {
        match &self.end {
            End::Instance(namespace) => mkdir_within(namespace, &self.path).map_err(|errno| {
                let reason = match errno {
                    Errno::XDEV => "leads out of the instance".to_owned(),
                    Errno::LOOP | Errno::NOTDIR => {
                        "a symbolic link or a file is in the place of a directory".to_owned()
                    }
                    errno => describe(errno),
                };
                self.problem(reason, errno)
            }),
            End::Pfs(pfs) => {
                // The directory may be one of those below which paths are allowed.
                if let Ok(dir) = pfs.open_dir(&self.path) {
                    return Ok((dir, false));
                }
                let (parent, name) = self.open_parent()?;
                let created = parent.mkdir(&name);
                created
                    .and_then(|created| Ok((pfs.open_dir(&self.path)?, created)))
                    .map_err(|errno| self.cannot_open(errno))
            }
        }
    }
}

/// Opens the directory `path` below `dir`, without following symbolic links.
pub(crate) fn open_dir_below(
    dir: &dyn DirHandle,
    path: &Path,
) -> Result<Box<dyn DirHandle>, Errno> {
    assert!(path.is_relative());
    let mut components = path.components();
    let Some(first) = components.next() else {
        return dir.try_clone();
    };
    let mut here = dir.open_dir(first.as_os_str())?;
    for component in components {
        here = here.open_dir(component.as_os_str())?;
    }
    Ok(here)
}
