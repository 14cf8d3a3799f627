//! Files in a directory of the local file system.

use super::Storage;
use crate::log::spare_segment::is_out_of_space;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, openat};
use rustix::process::geteuid;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A directory.
#[derive(Clone, Debug)]
pub struct DiskStorage {
    path: Arc<PathBuf>,
    dir: Arc<File>,
    open: Arc<Mutex<HashMap<String, Arc<File>>>>,
}

impl DiskStorage {
    /// The directory at `path`, made if it is missing.
    pub fn open(path: &Path) -> io::Result<DiskStorage> {
        std::fs::create_dir_all(path)?;
        let dir = Arc::new(File::open(path)?);
        Ok(DiskStorage {
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

/// As many zeros as are written at once.
const ZEROS: usize = 256 << 10;

/// Bytes that a new file can have on the file system of `file`; as many as one likes where it does
/// not say.
fn free_space(file: &File) -> u64 {
    let Ok(state) = fstatvfs(file) else {
        return u64::MAX;
    };
    let blocks = match geteuid().is_root() {
        true => state.f_bfree,
        false => state.f_bavail,
    };
    match state.f_blocks {
        0 => u64::MAX,
        _ => blocks.saturating_mul(state.f_frsize),
    }
}

/// Bytes that a file takes on the disk.
fn taken(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks().saturating_mul(512))
}

/// Have blocks for the first `bytes` bytes of a file.
fn reserve_space(file: &File, bytes: u64) -> io::Result<()> {
    let missing = bytes.saturating_sub(taken(file)?);
    if missing == 0 && file.metadata()?.len() >= bytes {
        return Ok(());
    }
    // Trying would take from others for a moment what they could use.
    if missing > free_space(file) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // A file system without the call.
        Err(rustix::io::Errno::OPNOTSUPP) => {
            write_zeros(file, file.metadata()?.len()..bytes)?;
            // Whether there is space for them some file systems say only now.
            file.sync_data()
        }
        other => Ok(other?),
    }
}

/// Overwrite with zeros. Blocks that are there are written again, which takes no others.
fn write_zeros(file: &File, part: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; ZEROS];
    let mut at = part.start;
    while at < part.end {
        let count = ZEROS.min(usize::try_from(part.end - at).unwrap_or(ZEROS));
        file.write_all_at(&zeros[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

impl Storage for DiskStorage {
    fn list_files(&self) -> io::Result<Vec<String>> {
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

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.path.join(name))
    }

    fn create_file(&self, name: &str, reserve: u64) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = File::from(openat(&*self.dir, name, flags, Mode::RUSR | Mode::WUSR)?);
        if let Err(error) = reserve_space(&file, reserve) {
            let _ = std::fs::remove_file(self.path.join(name));
            return Err(error);
        }
        self.opened().insert(name.to_owned(), Arc::new(file));
        Ok(())
    }

    fn write_file(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, offset)
    }

    fn file_capacity(&self, name: &str) -> io::Result<u64> {
        Ok(self.file(name)?.metadata()?.len())
    }

    fn zero_tail(&self, name: &str, part: Range<u64>, reserve: u64) -> io::Result<u64> {
        let file = self.file(name)?;
        write_zeros(&file, part)?;
        match reserve_space(&file, reserve) {
            Ok(()) => Ok(file.metadata()?.len()),
            Err(error) if is_out_of_space(&error) => Ok(file.metadata()?.len().min(taken(&file)?)),
            Err(error) => Err(error),
        }
    }

    fn truncate_file(&self, name: &str, length: u64) -> io::Result<()> {
        self.file(name)?.set_len(length)
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))?;
        let mut opened = self.opened();
        if let Some(file) = opened.remove(from) {
            opened.insert(to.to_owned(), file);
        }
        Ok(())
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        self.opened().remove(name);
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}
