//! Files in a directory of the local file system.

use super::Storage;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, openat};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A directory.
#[derive(Clone, Debug)]
pub struct Disk {
    path: Arc<PathBuf>,
    dir: Arc<File>,
    open: Arc<Mutex<HashMap<String, Arc<File>>>>,
}

impl Disk {
    /// The directory at `path`, made if it is missing.
    pub fn open(path: &Path) -> io::Result<Disk> {
        std::fs::create_dir_all(path)?;
        let dir = Arc::new(File::open(path)?);
        Ok(Disk {
            path: Arc::new(path.to_owned()),
            dir,
            open: Arc::default(),
        })
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<String, Arc<File>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str) -> io::Result<Arc<File>> {
        if let Some(file) = self.opened().get(name) {
            return Ok(file.clone());
        }
        let fd = openat(
            &*self.dir,
            name,
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let file = Arc::new(File::from(fd));
        self.opened().insert(name.to_owned(), file.clone());
        Ok(file)
    }
}

fn reserve_space(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // A file system without the call: writes find out for themselves.
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

impl Storage for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&*self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.path.join(name))
    }

    fn create(&self, name: &str, reserve: u64) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = File::from(openat(&*self.dir, name, flags, Mode::RUSR | Mode::WUSR)?);
        if let Err(error) = reserve_space(&file, reserve) {
            let _ = std::fs::remove_file(self.path.join(name));
            return Err(error);
        }
        self.opened().insert(name.to_owned(), Arc::new(file));
        Ok(())
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, offset)
    }

    fn truncate(&self, name: &str, length: u64, reserve: u64) -> io::Result<()> {
        let file = self.file(name)?;
        file.set_len(length)?;
        reserve_space(&file, reserve)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))?;
        let mut opened = self.opened();
        if let Some(file) = opened.remove(from) {
            opened.insert(to.to_owned(), file);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.opened().remove(name);
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}
