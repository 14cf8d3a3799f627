//! The shared file pointer: a number in a hidden file, which is locked while it is changed.
//!
//! `MPI_File_set_view` and `MPI_File_seek_shared` set the pointer on all ranks. Each counts these
//! calls, and the number in the file is valid for the count that is stored with it; so they need no
//! messages.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A shared file pointer.
#[derive(Debug)]
pub struct SharedPointer {
    path: PathBuf,
    file: Option<File>,
    /// Number of calls that have set the pointer.
    generation: u64,
    /// The value that the last of them has set.
    base: u64,
}

impl SharedPointer {
    /// A pointer at `base`, in a file of this name that is made when it is used.
    pub fn new(path: PathBuf, base: u64) -> SharedPointer {
        SharedPointer { path, file: None, generation: 0, base }
    }

    /// Sets the pointer; all ranks do so together.
    pub fn set(&mut self, value: u64) {
        self.generation += 1;
        self.base = value;
    }

    /// Adds to the pointer and returns the value of before.
    pub fn fetch_add(&mut self, count: u64) -> io::Result<u64> {
        if self.file.is_none() {
            self.file = Some(open(&self.path)?);
        }
        let Some(file) = &self.file else { unreachable!("the file was opened") };
        lock(file, libc::LOCK_EX)?;
        let result = self.exchange(file, count);
        lock(file, libc::LOCK_UN)?;
        result
    }

    fn exchange(&self, file: &File, count: u64) -> io::Result<u64> {
        let mut bytes = [0; 16];
        let stored = match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {
                let (generation, value) = (word(&bytes, 0), word(&bytes, 8));
                (generation == self.generation).then_some(value)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        let value = stored.unwrap_or(self.base);
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..].copy_from_slice(&value.saturating_add(count).to_le_bytes());
        file.write_all_at(&bytes, 0)?;
        Ok(value)
    }

    /// Removes the file; one rank does so when none uses it any more.
    pub fn remove(&self) {
        // Most files are never accessed with the shared pointer and have none.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn word(bytes: &[u8; 16], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Opens a file that all processes use, or makes it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false);
    // Another user may have made a link of this name.
    file.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Locks or unlocks a file.
pub(super) fn lock(file: &File, operation: i32) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
