//! Paths in dataspaces, accessed with the permissions of a task's user.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use forebay_stage::end::{DirHandle, FileKind, FileSystem, LocalFileSystem};
use forebay_stage::{Identity, ItemKind, StageLocation};
use rustix::io::Errno;

/// A path below the mount point of a dataspace. Neither `..` nor a symbolic link leads out of it.
pub(crate) struct Place {
    pub fs: Arc<dyn FileSystem>,
    mount: PathBuf,
    path: PathBuf,
    /// It is on this node.
    is_local: bool,
}

/// A directory and a name in it.
pub(crate) type Entry = (Box<dyn DirHandle>, OsString);

/// A path in words of the interface, below a mount point: `NOENT` if it leads out.
fn below(mount: &Path, path: &[u8]) -> Result<PathBuf, Errno> {
    let mut found = Vec::new();
    for component in Path::new(OsStr::from_bytes(path)).components() {
        match component {
            Component::Normal(name) => found.push(name),
            Component::ParentDir => drop(found.pop().ok_or(Errno::NOENT)?),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(mount.join(found.iter().collect::<PathBuf>()))
}

/// A symbolic link that leads out looks like one to nothing.
pub(crate) fn as_missing(errno: Errno) -> Errno {
    if errno == Errno::XDEV { Errno::NOENT } else { errno }
}

impl Place {
    /// `path` in the dataspace at `mount` on this node.
    pub fn local(
        mount: &Path,
        path: &[u8],
        identity: Option<Arc<Identity>>,
    ) -> Result<Place, Errno> {
        let fs = LocalFileSystem::open(&[mount.to_owned()], identity);
        Ok(Place { fs, mount: mount.to_owned(), path: below(mount, path)?, is_local: true })
    }

    /// `path` in a dataspace of another node.
    pub fn remote(fs: Arc<dyn FileSystem>, path: &[u8]) -> Result<Place, Errno> {
        let mount = PathBuf::from("/");
        Ok(Place { fs, path: below(&mount, path)?, mount, is_local: false })
    }

    /// A file that this process has open.
    pub fn descriptor(number: i32) -> Place {
        let path = PathBuf::from(format!("/proc/self/fd/{number}"));
        Place { fs: LocalFileSystem::open(&[], None), mount: PathBuf::new(), path, is_local: true }
    }

    /// The path as a source or target of a stage.
    pub fn location(&self) -> StageLocation {
        StageLocation::in_pfs(&self.fs, &self.path)
    }

    /// Whether a file or a directory is there; `NOENT` if there is nothing.
    pub fn kind(&self) -> Result<ItemKind, Errno> {
        match self.fs.open_dir(&self.path) {
            Ok(_) => Ok(ItemKind::Directory),
            Err(Errno::NOTDIR) => self.fs.open_file(&self.path).map(|_| ItemKind::File),
            Err(errno) => Err(errno),
        }
        .map_err(as_missing)
    }

    /// Whether this place, as far as it exists, is the directory `dir` of this node or inside it, also through
    /// symbolic links and other dataspaces.
    pub fn is_in(&self, dir: &Place) -> Result<bool, Errno> {
        if !self.is_local || !dir.is_local {
            return Ok(false);
        }
        let inode = dir.open_dir()?.stat()?.inode;
        let existing = self.path.ancestors().find_map(|path| path.canonicalize().ok());
        let is_dir =
            |path: &Path| path.metadata().is_ok_and(|stat| (stat.dev(), stat.ino()) == inode);
        Ok(existing.is_some_and(|existing| existing.ancestors().any(is_dir)))
    }

    /// The directory at this place.
    pub fn open_dir(&self) -> Result<Box<dyn DirHandle>, Errno> {
        self.fs.open_dir(&self.path).map_err(as_missing)
    }

    /// The length of the file at this place.
    pub fn file_size(&self) -> Result<u64, Errno> {
        let file = self.fs.open_file(&self.path).map_err(as_missing)?;
        Ok(file.stat()?.size)
    }

    /// The parent directory and the name in it; `None` for the mount point itself.
    pub fn parent(&self) -> Result<Option<Entry>, Errno> {
        if self.path == self.mount {
            return Ok(None);
        }
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(Errno::INVAL);
        };
        Ok(Some((self.fs.open_dir(parent).map_err(as_missing)?, name.to_owned())))
    }

    /// Creates the missing directories above this place.
    pub fn create_parents(&self) -> Result<(), Errno> {
        if self.path == self.mount {
            return Ok(());
        }
        let mut missing = Vec::new();
        let mut here = self.path.parent().ok_or(Errno::INVAL)?;
        let mut dir = loop {
            match self.fs.open_dir(here) {
                Ok(dir) => break dir,
                Err(Errno::NOENT) if here != self.mount => {
                    missing.push(here.file_name().ok_or(Errno::INVAL)?);
                    here = here.parent().ok_or(Errno::INVAL)?;
                }
                Err(errno) => return Err(as_missing(errno)),
            }
        };
        for name in missing.into_iter().rev() {
            dir.mkdir(name)?;
            dir = dir.open_dir(name)?;
        }
        Ok(())
    }
}

/// Whether a directory entry of this type is a directory.
pub(crate) fn is_directory(kind: FileKind) -> bool {
    match kind {
        FileKind::Directory => true,
        FileKind::File | FileKind::Symlink | FileKind::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_stays_below_the_mount_point() {
        let at = |path: &str| below(Path::new("/mnt"), path.as_bytes());
        assert_eq!(at("/a/b"), Ok("/mnt/a/b".into()));
        assert_eq!(at("a//./b/"), Ok("/mnt/a/b".into()));
        assert_eq!(at("a/../b"), Ok("/mnt/b".into()));
        assert_eq!(at("/"), Ok("/mnt/".into()));
        assert_eq!(at("../etc/passwd"), Err(Errno::NOENT));
        assert_eq!(at("a/../../etc"), Err(Errno::NOENT));
    }

    #[test]
    fn places_inside_a_directory_are_found_through_links_and_other_dataspaces() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("t/sub")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink("t/sub", dir.path().join("link")).unwrap();
        let place = |path: &str| Place::local(dir.path(), path.as_bytes(), None).unwrap();
        let inner = Place::local(&dir.path().join("t/sub"), b"new", None).unwrap();
        let source = place("t");
        for target in [place("t"), place("t/sub"), place("t/new/er"), place("link/new"), inner] {
            assert_eq!(target.is_in(&source), Ok(true), "{:?}", target.path);
        }
        for target in [place("other"), place("tt"), place("/")] {
            assert_eq!(target.is_in(&source), Ok(false), "{:?}", target.path);
        }
    }

    #[test]
    fn link_out_of_the_dataspace_is_missing_and_parents_are_created() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        let mount = dir.path().join("mnt");
        std::fs::create_dir(&mount).unwrap();
        std::os::unix::fs::symlink("../secret", mount.join("out")).unwrap();
        let place = |path: &str| Place::local(&mount, path.as_bytes(), None).unwrap();
        assert_eq!(place("out").kind().err(), Some(Errno::NOENT));
        assert_eq!(place("none").kind().err(), Some(Errno::NOENT));
        place("a/b/c").create_parents().unwrap();
        assert!(mount.join("a/b").is_dir() && !mount.join("a/b/c").exists());
        assert_eq!(place("a").kind(), Ok(ItemKind::Directory));
        assert!(place("/").parent().unwrap().is_none());
    }
}
