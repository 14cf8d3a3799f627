//! Log files that are read.

use crate::entry::Place;
use crate::plan::DataSource;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An open log file: of this host, or one in an instance that a mover reads.
pub trait LogFile: fmt::Debug + Send + Sync {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The file cannot be accessed.
    fn length(&self) -> io::Result<u64>;

    /// Reads `bytes.len()` bytes from `offset` on.
    ///
    /// # Errors
    /// The file cannot be read; `UnexpectedEof` if it ends before.
    fn read_range(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl LogFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_range(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}

impl LogFile for Box<dyn LogFile> {
    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn read_range(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_range(bytes, offset)
    }
}

/// Access to the data of one or more log files; the number of a file is its place in the order of
/// [`LogReader::add`].
#[derive(Debug, Default)]
pub struct LogReader {
    files: Vec<Box<dyn LogFile>>,
}

impl LogReader {
    /// No logs.
    pub fn new() -> LogReader {
        LogReader::default()
    }

    /// Adds a log file and returns its number.
    pub fn add(&mut self, file: impl LogFile + 'static) -> u32 {
        self.files.push(Box::new(file));
        self.files.len() as u32 - 1
    }

    /// A log file.
    pub(crate) fn file(&self, log: u32) -> io::Result<&dyn LogFile> {
        Ok(&**self.files.get(log as usize).ok_or(io::ErrorKind::NotFound)?)
    }

    /// Takes over the files of another reader; the first one gets the number that is returned.
    pub(crate) fn append(&mut self, other: LogReader) -> u32 {
        let first = self.files.len() as u32;
        self.files.extend(other.files);
        first
    }
}

impl DataSource for LogReader {
    fn read_at(&self, place: Place, buffer: &mut [u8]) -> io::Result<()> {
        match self.files.get(place.log as usize) {
            Some(file) => file.read_range(buffer, place.offset),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
