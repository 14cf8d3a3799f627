//! The run directory: the inputs and results of a run, complete or not at all.
//!
//! Files are written into a hidden sibling, `.NAME.partial-PID`, which gets its final name only
//! when complete. An existing directory is never written to.

use crate::interrupt;
use forebay_console::Failure;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

/// A run directory under construction. Dropped without [`RunDir::finish`], it is removed.
#[derive(Debug)]
pub struct RunDir {
    place: RunDirPath,
    partial: PathBuf,
    finished: bool,
}

/// The path of a run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunDirPath {
    /// Exactly here; must not exist.
    Exactly(PathBuf),
    /// `runs/STEM-N` with the first N that is free.
    Numbered(String),
}

impl RunDirPath {
    fn candidate(&self, number: u32) -> PathBuf {
        match self {
            RunDirPath::Exactly(path) => path.clone(),
            RunDirPath::Numbered(stem) => Path::new("runs").join(format!("{stem}-{number}")),
        }
    }
}

fn exists_already(path: &Path) -> Failure {
    Failure::Input(format!(
        "{} exists already and is left as it is; give --out a directory that does not exist",
        path.display()
    ))
}

impl RunDir {
    /// Prepares a run directory: refuses an existing one, and checks before the simulation
    /// that it can be written.
    pub fn create(place: RunDirPath) -> Result<RunDir, Failure> {
        let target = place.candidate(1);
        if let RunDirPath::Exactly(path) = &place
            && path.symlink_metadata().is_ok()
        {
            return Err(exists_already(path));
        }
        let name = match target.file_name() {
            Some(name) => name.to_string_lossy().into_owned(),
            None => {
                return Err(Failure::Input(format!(
                    "{} does not name a directory that could be created",
                    target.display()
                )));
            }
        };
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let mut made = None;
        if let RunDirPath::Numbered(_) = place {
            if !parent.is_dir() {
                made = Some(parent.as_path());
            }
            fs::create_dir_all(&parent).map_err(|e| Failure::io("create", &parent, e))?;
        } else if !parent.is_dir() {
            return Err(Failure::Input(format!(
                "{} cannot be created: {} is not a directory; create it first",
                target.display(),
                parent.display()
            )));
        }
        let partial = parent.join(format!(".{name}.partial-{}", std::process::id()));
        interrupt::register_unfinished(&partial, made);
        fs::create_dir(&partial).map_err(|e| {
            interrupt::discard_unfinished(&partial);
            Failure::io("create", &partial, e)
        })?;
        Ok(RunDir { place, partial, finished: false })
    }

    /// Adds a file, in a folder of the run directory or, if `folder` is empty, at its top.
    pub fn write(
        &self,
        folder: &str,
        name: &str,
        content: impl AsRef<[u8]>,
    ) -> Result<(), Failure> {
        let mut place = self.partial.clone();
        if !folder.is_empty() {
            place.push(folder);
            match fs::create_dir(&place) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(Failure::io("create", &place, e));
                }
                _ => {}
            }
        }
        let path = place.join(name);
        fs::write(&path, content).map_err(|e| Failure::io("write", &path, e))
    }

    /// Renames the directory to its final path, and returns it.
    pub fn finish(mut self) -> Result<PathBuf, Failure> {
        let mut number = 1;
        loop {
            let target = self.place.candidate(number);
            match interrupt::commit_unfinished(&self.partial, || rename(&self.partial, &target)) {
                Ok(()) => {
                    self.finished = true;
                    return Ok(target);
                }
                Err(Errno::EXIST | Errno::NOTEMPTY) => match self.place {
                    RunDirPath::Exactly(_) => return Err(exists_already(&target)),
                    RunDirPath::Numbered(_) => number += 1,
                },
                Err(e) => return Err(Failure::io("create", &target, e.into())),
            }
        }
    }
}

/// Renames without replacing. On file systems without `RENAME_NOREPLACE` it checks first.
fn rename(from: &Path, to: &Path) -> Result<(), Errno> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            if to.symlink_metadata().is_ok() {
                return Err(Errno::EXIST);
            }
            rustix::fs::rename(from, to)
        }
        other => other,
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.finished {
            interrupt::discard_unfinished(&self.partial);
        }
    }
}

/// Writes a file completely or not at all, replacing an older one. A symbolic link is followed;
/// devices, pipes and sockets are written to directly.
pub fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    let failed = |e| Failure::io("write", path, e);
    let Some(target) = replaceable(path)? else {
        return fs::write(path, content).map_err(failed);
    };
    let partial = partial_of(&target)?;
    interrupt::register_unfinished(&partial, None);
    let result = fs::write(&partial, content)
        .and_then(|()| interrupt::commit_unfinished(&partial, || fs::rename(&partial, &target)));
    result.map_err(|e| {
        interrupt::discard_unfinished(&partial);
        failed(e)
    })
}

/// Checks that [`write_file`] can write to `path`, without changing an existing file.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    let Some(target) = replaceable(path)? else {
        return Ok(());
    };
    let partial = partial_of(&target)?;
    interrupt::register_unfinished(&partial, None);
    let result = fs::write(&partial, "").map_err(|e| Failure::io("write", path, e));
    interrupt::discard_unfinished(&partial);
    result
}

/// The file that a file written to `path` replaces: `path` or its link target; `None` for devices,
/// pipes and sockets.
fn replaceable(path: &Path) -> Result<Option<PathBuf>, Failure> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(Failure::Input(format!(
            "{} is a directory, not a file that could be written",
            path.display()
        ))),
        Ok(there) if !there.is_file() => Ok(None),
        Ok(_) => fs::canonicalize(path).map(Some).map_err(|e| Failure::io("write", path, e)),
        Err(_) => Ok(Some(path.to_path_buf())),
    }
}

/// The hidden file in the same directory that is renamed to `path`.
fn partial_of(path: &Path) -> Result<PathBuf, Failure> {
    let Some(name) = path.file_name() else {
        return Err(Failure::Input(format!("{} does not name a file", path.display())));
    };
    let name = name.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.partial-{}", std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn run_directory_appears_complete_or_not_at_all() {
        let tmp = tempfile::tempdir().unwrap();
        let target = tmp.path().join("run");
        let dir = RunDir::create(RunDirPath::Exactly(target.clone())).unwrap();
        dir.write("", "table.txt", "x").unwrap();
        assert!(!target.exists());
        drop(dir);
        assert!(names(tmp.path()).is_empty());

        let dir = RunDir::create(RunDirPath::Exactly(target.clone())).unwrap();
        dir.write("", "table.txt", "x").unwrap();
        assert_eq!(dir.finish().unwrap(), target);
        assert_eq!(names(tmp.path()), ["run"]);
        assert_eq!(names(&target), ["table.txt"]);
    }

    #[test]
    fn existing_directory_is_refused_at_start_and_at_finish() {
        let tmp = tempfile::tempdir().unwrap();
        let target = tmp.path().join("run");
        let dir = RunDir::create(RunDirPath::Exactly(target.clone())).unwrap();
        fs::create_dir(&target).unwrap();
        let error = dir.finish().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(names(&target).is_empty());
        let error = RunDir::create(RunDirPath::Exactly(target.clone())).unwrap_err();
        assert!(error.to_string().contains("exists already"));
        assert_eq!(names(tmp.path()), ["run"]);
    }

    #[test]
    fn missing_parent_is_named() {
        let tmp = tempfile::tempdir().unwrap();
        let error = RunDir::create(RunDirPath::Exactly(tmp.path().join("no/run"))).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("is not a directory"));
    }

    #[test]
    fn written_file_replaces_an_older_one_without_leftovers() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("a.json");
        write_file(&path, "1").unwrap();
        write_file(&path, "2").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
        check_writable(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
        assert_eq!(names(tmp.path()), ["a.json"]);
        assert!(check_writable(&tmp.path().join("no/a.json")).is_err());
        assert_eq!(check_writable(tmp.path()).unwrap_err().exit_code(), 2);
        assert_eq!(write_file(&tmp.path().join("no/a.json"), "1").unwrap_err().exit_code(), 1);
    }

    #[test]
    fn pipe_is_written_to_and_symlink_stays_a_symlink() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let tmp = tempfile::tempdir().unwrap();
        // A named pipe, because root could replace a device.
        let pipe = tmp.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        check_writable(&pipe).unwrap();
        let read = {
            let pipe = pipe.clone();
            std::thread::spawn(move || fs::read_to_string(pipe).unwrap())
        };
        write_file(&pipe, "text").unwrap();
        assert_eq!(read.join().unwrap(), "text");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());

        let (file, link) = (tmp.path().join("file"), tmp.path().join("link"));
        fs::write(&file, "1").unwrap();
        symlink("file", &link).unwrap();
        write_file(&link, "2").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "2");
        assert_eq!(names(tmp.path()), ["file", "link", "pipe"]);
    }
}
