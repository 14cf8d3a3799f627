//! The controller's state in a file that is always whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use forebay_net::lock_file;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A file with one value in JSON, replaced as a whole. A lock excludes other processes.
pub struct StateFile {
    path: PathBuf,
    directory: File,
    _lock: File,
}

impl StateFile {
    /// Opens the state in a directory, which is created if missing, and reads it.
    pub fn open<T: DeserializeOwned + Default>(directory: &Path) -> io::Result<(StateFile, T)> {
        fs::create_dir_all(directory)?;
        let lock = lock_file::lock_directory(directory)?.ok_or_else(|| {
            io::Error::new(ErrorKind::AddrInUse, "another controller of workflows uses it")
        })?;
        let path = directory.join("state.json");
        let state = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => T::default(),
            Err(error) => return Err(error),
        };
        let file = StateFile { path, directory: File::open(directory)?, _lock: lock };
        Ok((file, state))
    }

    /// Replaces the state: after a crash the file has the old one or the new one.
    pub fn write(&self, state: &impl Serialize) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.directory.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_and_a_half_written_successor_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let (file, state) = StateFile::open::<Vec<u32>>(directory.path()).unwrap();
        assert!(state.is_empty());
        file.write(&vec![1, 2]).unwrap();
        let second = StateFile::open::<Vec<u32>>(directory.path());
        assert_eq!(second.err().map(|error| error.kind()), Some(ErrorKind::AddrInUse));
        drop(file);
        fs::write(directory.path().join("state.new"), "[3,").unwrap();
        let (_, state) = StateFile::open::<Vec<u32>>(directory.path()).unwrap();
        assert_eq!(state, [1, 2]);
    }
}
