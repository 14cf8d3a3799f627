//! Paths on either side, opened without being led astray.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::end::{
    DirHandle, FileHandle, FileKind, FileSystem, Found, Identity, Namespace, make_within,
    open_folder, open_path, open_within,
};
use crate::error::{Problem, describe};

/// About paths of the parallel file system.
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
    Outside(Option<Arc<Identity>>),
    Replaced(Arc<dyn FileSystem>),
    Inside(Arc<Namespace>),
}

impl End {
    /// Opens a directory that is not in an instance.
    fn open_outside(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno> {
        match self {
            End::Outside(who) => open_folder(path, who),
            End::Replaced(outside) => outside.open_dir(path),
            End::Inside(_) => Err(Errno::INVAL),
        }
    }
}

impl StageLocation {
    /// A path of the parallel file system, symbolic links in it followed, reached with the rights
    /// of this process.
    pub fn pfs(path: impl Into<PathBuf>) -> StageLocation {
        StageLocation::pfs_as(path, None)
    }

    /// The same, with someone else's rights.
    pub fn pfs_as(path: impl Into<PathBuf>, who: Option<Arc<Identity>>) -> StageLocation {
        StageLocation {
            end: End::Outside(who),
            path: path.into(),
        }
    }

    /// A path of what takes the place of the parallel file system.
    pub fn on_file_system(
        outside: &Arc<dyn FileSystem>,
        path: impl Into<PathBuf>,
    ) -> StageLocation {
        StageLocation {
            end: End::Replaced(outside.clone()),
            path: path.into(),
        }
    }

    /// `path` in an instance's name space. Neither `..` nor a symbolic link leads out of it;
    /// missing directories are made when it is a target.
    pub fn in_instance(space: &Arc<Namespace>, path: impl Into<PathBuf>) -> StageLocation {
        StageLocation {
            end: End::Inside(space.clone()),
            path: path.into(),
        }
    }

    /// The whole path, for messages.
    pub fn display(&self) -> PathBuf {
        match &self.end {
            End::Inside(space) if self.path.as_os_str().is_empty() => space.shown().to_owned(),
            End::Inside(space) => space.shown().join(&self.path),
            End::Outside(_) | End::Replaced(_) => self.path.clone(),
        }
    }

    /// What is wrong with the place.
    pub(crate) fn problem(&self, reason: impl Into<String>, errno: Errno) -> Problem {
        Problem::new(self.display(), reason, errno)
    }

    fn cannot_open(&self, errno: Errno) -> Problem {
        let reason = match (errno, &self.end) {
            (Errno::XDEV, End::Inside(_)) => "leads out of the instance".to_owned(),
            (Errno::XDEV, End::Replaced(_)) => LEADS_OUT.to_owned(),
            (Errno::LOOP, End::Inside(_)) => "its symbolic links lead in circles".to_owned(),
            (Errno::NOENT, _) => "does not exist".to_owned(),
            _ => describe(errno),
        };
        self.problem(reason, errno)
    }

    /// Opens the directory that is there.
    pub(crate) fn open_dir(&self) -> Result<Box<dyn DirHandle>, Problem> {
        let opened = match &self.end {
            End::Outside(_) | End::Replaced(_) => self.end.open_outside(&self.path),
            End::Inside(space) => match open_within(space, &self.path) {
                Ok(Found::Folder(folder)) => Ok(folder),
                Ok(Found::Body(_)) => Err(Errno::NOTDIR),
                Err(errno) => Err(errno),
            },
        };
        opened.map_err(|errno| match errno {
            Errno::NOTDIR => self.problem("is no directory; stage it with type=file", errno),
            errno => self.cannot_open(errno),
        })
    }

    /// Opens the file that is there.
    pub(crate) fn open_file(&self) -> Result<Box<dyn FileHandle>, Problem> {
        let opened = match &self.end {
            End::Outside(who) => open_path(&self.path, who),
            End::Replaced(outside) => outside.open_file(&self.path),
            End::Inside(space) => match open_within(space, &self.path) {
                Ok(Found::Body(body)) => Ok(body),
                Ok(Found::Folder(_)) => {
                    let reason = "is a directory; stage it with type=directory";
                    return Err(self.problem(reason, Errno::ISDIR));
                }
                Err(errno) => Err(errno),
            },
        };
        opened.map_err(|errno| self.cannot_open(errno))
    }

    /// The contents of a file of at most `most` bytes.
    pub fn read(&self, most: u64) -> Result<Vec<u8>, Problem> {
        let file = self.open_file()?;
        let state = file.stat().map_err(|errno| self.cannot_open(errno))?;
        if state.kind != FileKind::File {
            return Err(self.problem("is not a file", Errno::INVAL));
        }
        if state.size > most {
            let reason = format!("is larger than {most} bytes");
            return Err(self.problem(reason, Errno::FBIG));
        }
        let mut bytes = vec![0; usize::try_from(state.size).unwrap_or(0)];
        let read = file.read_at(&mut bytes, 0);
        bytes.truncate(read.map_err(|errno| self.problem(describe(errno), errno))?);
        Ok(bytes)
    }

    /// The directory and the name in it of a file that is to be made.
    pub(crate) fn open_parent(&self) -> Result<(Box<dyn DirHandle>, OsString), Problem> {
        let name = self.path.file_name();
        let name = name.ok_or_else(|| self.problem("names no file", Errno::INVAL))?;
        let parent = self.path.parent().unwrap_or(Path::new(""));
        let place = StageLocation {
            end: self.end.clone(),
            path: parent.to_owned(),
        };
        let folder = match &self.end {
            End::Inside(_) => place.open_or_mkdir()?.0,
            End::Outside(_) | End::Replaced(_) => {
                let path = if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                };
                self.end.open_outside(path).map_err(|errno| {
                    let reason = match errno {
                        // Made by nobody but the user: else a file system that is not mounted
                        // would go unseen.
                        Errno::NOENT => {
                            "the directory does not exist; make it before staging out".to_owned()
                        }
                        Errno::XDEV => LEADS_OUT.to_owned(),
                        errno => describe(errno),
                    };
                    place.problem(reason, errno)
                })?
            }
        };
        Ok((folder, name.to_owned()))
    }

    /// Opens a directory that is to be a target, making it if need be (inside an instance with
    /// all above it), and says whether it was made.
    pub(crate) fn open_or_mkdir(&self) -> Result<(Box<dyn DirHandle>, bool), Problem> {
        match &self.end {
            End::Inside(space) => make_within(space, &self.path).map_err(|errno| {
                let reason = match errno {
                    Errno::XDEV => "leads out of the instance".to_owned(),
                    Errno::LOOP | Errno::NOTDIR => {
                        "a symbolic link or a file is where a directory is wanted".to_owned()
                    }
                    errno => describe(errno),
                };
                self.problem(reason, errno)
            }),
            End::Outside(_) | End::Replaced(_) => {
                let (parent, name) = self.open_parent()?;
                let made = parent.mkdir(&name);
                made.and_then(|made| Ok((self.end.open_outside(&self.path)?, made)))
                    .map_err(|errno| self.cannot_open(errno))
            }
        }
    }
}

/// Opens the directory `path` below `folder`, following no symbolic link.
pub(crate) fn descend(folder: &dyn DirHandle, path: &Path) -> Result<Box<dyn DirHandle>, Errno> {
    let mut components = path.components();
    let Some(first) = components.next() else {
        return folder.try_clone();
    };
    let mut here = folder.open_dir(first.as_os_str())?;
    for component in components {
        here = here.open_dir(component.as_os_str())?;
    }
    Ok(here)
}
