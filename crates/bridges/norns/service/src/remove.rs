//! Removal of files and directories; for a move, of those only that have been copied.

use std::ffi::{OsStr, OsString};

use forebay_stage::end::{DirHandle, FileKind, FileStat};
use rustix::io::Errno;

use crate::measure::MAX_DEPTH;
use crate::place::{Place, is_directory};

/// Entries of a directory that are removed before it is read again.
const BATCH: usize = 4096;

/// Removes what is at a place and returns the bytes of the removed files. With `copy`, entries are
/// removed only if the copy has them with the same length and modification time: `BUSY` if one has
/// changed since it was copied. `stop` ends the removal.
pub(crate) fn remove(
    place: &Place,
    copy: Option<&Place>,
    stop: &dyn Fn() -> bool,
) -> Result<u64, Errno> {
    let Some((parent, name)) = place.parent()? else {
        // The mount point stays.
        let copied = copy.map(Place::open_dir).transpose()?;
        return Removal { stop, bytes: 0 }.contents(
            &*place.open_dir()?,
            copied.as_deref(),
            MAX_DEPTH,
        );
    };
    let mut removal = Removal { stop, bytes: 0 };
    let seen = parent.lstat(&name)?;
    if is_directory(seen.kind) {
        let copied = copy.map(Place::open_dir).transpose()?;
        let dir = parent.open_dir(&name)?;
        removal.contents(&*dir, copied.as_deref(), MAX_DEPTH)?;
        drop(dir);
        parent.rmdir(&name)?;
    } else {
        let copied = copy.map(Place::parent).transpose()?.flatten();
        let copied = copied.as_ref().map(|(dir, name)| (&**dir, name.as_os_str()));
        removal.file(&*parent, &name, &seen, copied)?;
    }
    parent.syncfs()?;
    Ok(removal.bytes)
}

struct Removal<'a> {
    stop: &'a dyn Fn() -> bool,
    bytes: u64,
}

impl Removal<'_> {
    fn file(
        &mut self,
        dir: &dyn DirHandle,
        name: &OsStr,
        seen: &FileStat,
        copied: Option<(&dyn DirHandle, &OsStr)>,
    ) -> Result<(), Errno> {
        if let Some((copied, copied_name)) = copied {
            let copy = copied.lstat(copied_name).map_err(|_| Errno::BUSY)?;
            let is_same = match seen.kind {
                FileKind::File => {
                    let now = dir.lstat(name)?;
                    // The copy may be the same file, reached another way: devices differ between nodes.
                    let is_copy = (now.inode.1, now.changed) != (copy.inode.1, copy.changed);
                    is_copy && (now.size, now.modified) == (copy.size, copy.modified)
                }
                FileKind::Symlink => true,
                FileKind::Directory | FileKind::Other => false,
            };
            if !is_same {
                return Err(Errno::BUSY);
            }
        }
        match dir.unlink(name) {
            Ok(()) => self.bytes += if seen.kind == FileKind::File { seen.size } else { 0 },
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    fn contents(
        &mut self,
        dir: &dyn DirHandle,
        copied: Option<&dyn DirHandle>,
        depth: usize,
    ) -> Result<u64, Errno> {
        let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
        loop {
            let mut batch: Vec<(OsString, Result<FileStat, Errno>)> = Vec::new();
            dir.read_dir(&mut |name, stat| {
                batch.push((name.to_owned(), stat));
                batch.len() < BATCH
            })?;
            if batch.is_empty() {
                return Ok(self.bytes);
            }
            for (name, stat) in batch {
                if (self.stop)() {
                    return Err(Errno::CANCELED);
                }
                match stat {
                    Ok(seen) => self.entry(dir, &name, &seen, copied, depth)?,
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
    }

    fn entry(
        &mut self,
        dir: &dyn DirHandle,
        name: &OsStr,
        seen: &FileStat,
        copied: Option<&dyn DirHandle>,
        depth: usize,
    ) -> Result<(), Errno> {
        if !is_directory(seen.kind) {
            return self.file(dir, name, seen, copied.map(|copied| (copied, name)));
        }
        let inner = copied.map(|copied| copied.open_dir(name)).transpose();
        let inner = inner.map_err(|_| Errno::BUSY)?;
        let below = dir.open_dir(name)?;
        self.contents(&*below, inner.as_deref(), depth)?;
        drop(below);
        dir.rmdir(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn place(mount: &Path, path: &str) -> Place {
        Place::local(mount, path.as_bytes(), None).unwrap()
    }

    #[test]
    fn tree_is_removed_with_its_links_but_not_what_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("tree/deep/er")).unwrap();
        fs::write(dir.path().join("tree/deep/a"), "12345").unwrap();
        fs::write(dir.path().join("kept"), "1").unwrap();
        std::os::unix::fs::symlink("../kept", dir.path().join("tree/link")).unwrap();
        assert_eq!(remove(&place(dir.path(), "tree"), None, &|| false), Ok(5));
        assert!(!dir.path().join("tree").exists());
        assert!(dir.path().join("kept").exists());
        assert_eq!(remove(&place(dir.path(), "tree"), None, &|| false), Err(Errno::NOENT));
        assert_eq!(remove(&place(dir.path(), "/"), None, &|| false), Ok(1));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the mount point is empty");
    }

    #[test]
    fn moved_file_that_has_changed_or_is_new_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        for tree in ["from", "to"] {
            fs::create_dir(dir.path().join(tree)).unwrap();
            fs::write(dir.path().join(tree).join("a"), "same").unwrap();
        }
        let (from, to) = (place(dir.path(), "from"), place(dir.path(), "to"));
        let time = fs::metadata(dir.path().join("from/a")).unwrap().modified().unwrap();
        let copy = fs::File::options().append(true).open(dir.path().join("to/a")).unwrap();
        copy.set_modified(time).unwrap();
        fs::write(dir.path().join("from/new"), "").unwrap();
        assert_eq!(remove(&from, Some(&to), &|| false), Err(Errno::BUSY));
        assert!(dir.path().join("from/new").exists());
        fs::remove_file(dir.path().join("from/new")).unwrap();
        fs::write(dir.path().join("from/a"), "changed").unwrap();
        assert_eq!(remove(&from, Some(&to), &|| false), Err(Errno::BUSY));
        assert!(dir.path().join("from/a").exists());
    }
}
