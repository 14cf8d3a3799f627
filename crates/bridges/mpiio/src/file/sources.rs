//! The logs of all ranks of a file.

use forebay_mpiio_log::{DataSource, LogWriter, Place};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The logs of all ranks, opened when they are read.
#[derive(Debug)]
pub struct Logs {
    /// Paths, by rank.
    paths: Vec<PathBuf>,
    open: Mutex<Vec<Option<std::sync::Arc<File>>>>,
}

impl Logs {
    /// Logs at these paths, by rank.
    pub fn new(paths: Vec<PathBuf>) -> Logs {
        let open = Mutex::new(vec![None; paths.len()]);
        Logs { paths, open }
    }

    /// Paths of the logs, by rank.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The log of a rank.
    fn file(&self, rank: u32) -> io::Result<std::sync::Arc<File>> {
        let mut open = self.open.lock();
        let slot = open.get_mut(rank as usize).ok_or(io::ErrorKind::NotFound)?;
        if let Some(file) = slot {
            return Ok(file.clone());
        }
        let path = &self.paths[rank as usize];
        let file = File::open(path).map_err(|error| {
            io::Error::new(error.kind(), format!("log {}: {error}", path.display()))
        })?;
        Ok(slot.insert(file.into()).clone())
    }
}

impl DataSource for Logs {
    fn read_at(&self, place: Place, buffer: &mut [u8]) -> io::Result<()> {
        self.file(place.log)?.read_exact_at(buffer, place.offset)
    }
}

/// The logs of all ranks, of which that of this process has data in memory.
#[derive(Debug)]
pub struct Sources<'a> {
    /// Rank of this process.
    pub rank: u32,
    /// Its log.
    pub writer: &'a LogWriter,
    /// All logs.
    pub logs: &'a Logs,
}

impl DataSource for Sources<'_> {
    fn read_at(&self, place: Place, buffer: &mut [u8]) -> io::Result<()> {
        if place.log == self.rank {
            self.writer.read_at(place, buffer)
        } else {
            self.logs.read_at(place, buffer)
        }
    }
}
