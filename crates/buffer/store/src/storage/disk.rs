//! [`Storage`] in a directory of the local file system.

use super::{Storage, is_out_of_space};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, openat};
use rustix::process::geteuid;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of zeros per write.
const ZEROS_PER_WRITE: usize = 256 << 10;
/// Unit of `st_blocks`, whatever the file system's block size is.
const STAT_BLOCK_BYTES: u64 = 512;

/// A directory.
#[derive(Clone, Debug)]
pub struct DiskStorage {
    path: Arc<PathBuf>,
    dir: Arc<File>,
    open_files: Arc<Mutex<HashMap<String, Arc<File>>>>,
}

impl DiskStorage {
    /// Open the directory at `path`; it is created if missing.
    pub fn open(path: &Path) -> io::Result<DiskStorage> {
        std::fs::create_dir_all(path)?;
        let dir = Arc::new(File::open(path)?);
        Ok(DiskStorage { path: Arc::new(path.to_owned()), dir, open_files: Arc::default() })
    }

    fn open_file(&self, name: &str) -> io::Result<Arc<File>> {
        if let Some(file) = self.open_files.lock().get(name) {
            return Ok(file.clone());
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = openat(&*self.dir, name, flags, Mode::empty())?;
        let file = Arc::new(File::from(fd));
        self.open_files.lock().insert(name.to_owned(), file.clone());
        Ok(file)
    }
}

/// Bytes available to a new file on the file system of `file`; `u64::MAX` if unknown.
fn available_bytes(file: &File) -> u64 {
    let Ok(state) = fstatvfs(file) else {
        return u64::MAX;
    };
    let blocks = if geteuid().is_root() { state.f_bfree } else { state.f_bavail };
    match state.f_blocks {
        0 => u64::MAX,
        _ => blocks.saturating_mul(state.f_frsize),
    }
}

fn allocated_bytes(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks().saturating_mul(STAT_BLOCK_BYTES))
}

/// Allocate blocks for the first `bytes` bytes of a file.
fn allocate_space(file: &File, bytes: u64) -> io::Result<()> {
    let missing = bytes.saturating_sub(allocated_bytes(file)?);
    if missing == 0 && file.metadata()?.len() >= bytes {
        return Ok(());
    }
    // A failing fallocate would briefly take the space from other writers.
    if missing > available_bytes(file) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            write_zeros(file, file.metadata()?.len()..bytes)?;
            // With delayed allocation, only the sync reports a lack of space.
            file.sync_data()
        }
        other => Ok(other?),
    }
}

/// Overwrite a range with zeros. Allocated blocks are reused.
fn write_zeros(file: &File, part: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; ZEROS_PER_WRITE];
    let mut at = part.start;
    while at < part.end {
        let remaining = usize::try_from(part.end - at).unwrap_or(ZEROS_PER_WRITE);
        let count = ZEROS_PER_WRITE.min(remaining);
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

    fn read_file_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.open_file(name)?.read_at(bytes, offset)
    }

    fn create_file(&self, name: &str, reserve: u64) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = File::from(openat(&*self.dir, name, flags, Mode::RUSR | Mode::WUSR)?);
        if let Err(error) = allocate_space(&file, reserve) {
            let _ = std::fs::remove_file(self.path.join(name));
            return Err(error);
        }
        self.open_files.lock().insert(name.into(), Arc::new(file));
        Ok(())
    }

    fn write_file(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.open_file(name)?.write_all_at(bytes, offset)
    }

    fn file_capacity(&self, name: &str) -> io::Result<u64> {
        Ok(self.open_file(name)?.metadata()?.len())
    }

    fn zero_tail(&self, name: &str, part: Range<u64>, reserve: u64) -> io::Result<u64> {
        assert!(part.start <= part.end);
        let file = self.open_file(name)?;
        write_zeros(&file, part)?;
        match allocate_space(&file, reserve) {
            Ok(()) => Ok(file.metadata()?.len()),
            Err(error) if is_out_of_space(&error) => {
                Ok(file.metadata()?.len().min(allocated_bytes(&file)?))
            }
            Err(error) => Err(error),
        }
    }

    fn truncate_file(&self, name: &str, length: u64) -> io::Result<()> {
        debug_assert!(self.file_capacity(name)? >= length, "a truncation frees space");
        self.open_file(name)?.set_len(length)
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.open_file(name)?.sync_data()
    }

    fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))?;
        let mut open_files = self.open_files.lock();
        if let Some(file) = open_files.remove(from) {
            open_files.insert(to.to_owned(), file);
        }
        Ok(())
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        self.open_files.lock().remove(name);
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}
