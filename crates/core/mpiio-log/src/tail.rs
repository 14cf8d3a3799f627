//! The end of a log: bytes in memory that follow those in the file.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

/// Bytes from which on a part is written with the buffer instead of copied into it: the copy would
/// cost more than the system call.
const UNCOPIED: usize = 32 << 10;

/// A file and the bytes that are to be written at its end.
#[derive(Debug)]
pub(crate) struct Tail {
    file: File,
    buffer: Vec<u8>,
    /// Offset of the buffer's first byte in the file.
    start: u64,
    /// Bytes above which the buffer is written.
    limit: usize,
}

impl Tail {
    pub fn new(file: File, limit: usize) -> Tail {
        Tail { file, buffer: Vec::with_capacity(limit), start: 0, limit }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends bytes: small ones to the buffer, others with the buffer to the file. If writing
    /// fails, nothing is appended and the buffer stays.
    pub fn append(&mut self, parts: [&[u8]; 3]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        if length >= UNCOPIED.min(self.limit) {
            return self.write(parts);
        }
        if self.buffer.len() + length > self.limit {
            self.flush()?;
        }
        for part in parts {
            self.buffer.extend_from_slice(part);
        }
        Ok(())
    }

    /// Writes the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.write([&[]; 3]) }
    }

    /// Writes the buffer and the parts behind it.
    fn write(&mut self, parts: [&[u8]; 3]) -> io::Result<()> {
        let [first, second, third] = parts;
        let mut slices = [&*self.buffer, first, second, third].map(IoSlice::new);
        let mut slices = &mut slices[..];
        let mut at = self.start;
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match rustix::io::pwritev(&self.file, slices, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.start = at;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the buffer and continues at another offset.
    pub fn move_to(&mut self, offset: u64) -> io::Result<()> {
        self.flush()?;
        self.start = offset;
        Ok(())
    }

    /// Forgets the buffer.
    pub fn clear(&mut self) {
        self.buffer.clear();
    }

    /// Reads bytes, those of the buffer from there. A range may begin before it and end behind it,
    /// in another segment.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let from = self.start.clamp(offset, end);
        let to = (self.start + self.buffer.len() as u64).clamp(from, end);
        let (below, rest) = bytes.split_at_mut((from - offset) as usize);
        let (buffered, above) = rest.split_at_mut((to - from) as usize);
        if !buffered.is_empty() {
            let at = (from - self.start) as usize;
            buffered.copy_from_slice(&self.buffer[at..at + buffered.len()]);
        }
        for (part, at) in [(below, offset), (above, to)] {
            if !part.is_empty() {
                self.file.read_exact_at(part, at)?;
            }
        }
        Ok(())
    }
}
