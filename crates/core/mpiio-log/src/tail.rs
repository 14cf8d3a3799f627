//! The end of a log: bytes in memory that follow those in the file.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

/// Bytes from which on a part is written with the buffer instead of copied into it: the copy would
/// cost more than the system call.
pub(crate) const UNCOPIED: usize = 32 << 10;
/// Writes end at multiples of this offset if the buffer can hold the rest, so that each page of the
/// file is written once, and the kernel can use large ones.
pub(crate) const ALIGNED: usize = 64 << 10;

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
        let mut written = 0;
        if length >= UNCOPIED || self.buffer.len() + length > self.limit {
            let total = self.buffer.len() + length;
            written = total - self.rest_behind_boundary(total);
            self.write(written, parts)?;
        }
        let mut skipped = written.saturating_sub(self.buffer.len());
        self.start += written as u64;
        self.buffer.drain(..written.min(self.buffer.len()));
        for part in parts {
            let from = skipped.min(part.len());
            skipped -= from;
            self.buffer.extend_from_slice(&part[from..]);
        }
        Ok(())
    }

    /// Of so many bytes from the start of the buffer on, those behind the last boundary of
    /// [`ALIGNED`] bytes, which stay in the buffer; 0 if it is too small for them.
    fn rest_behind_boundary(&self, total: usize) -> usize {
        if self.limit < 2 * ALIGNED {
            return 0;
        }
        let end = self.start + total as u64;
        total.min((end % ALIGNED as u64) as usize)
    }

    /// Writes the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        let length = self.buffer.len();
        self.write(length, [&[]; 3])?;
        self.start += length as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the first `length` bytes of the buffer and the parts behind it.
    fn write(&self, length: usize, parts: [&[u8]; 3]) -> io::Result<()> {
        let [first, second, third] = parts;
        let mut rest = length;
        let mut slices = [&*self.buffer, first, second, third].map(|slice| {
            let slice = &slice[..slice.len().min(rest)];
            rest -= slice.len();
            IoSlice::new(slice)
        });
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{ALIGNED, Tail};
    use std::os::unix::fs::FileExt;

    /// Appends parts of these lengths and compares what is read with what was appended.
    fn check(limit: usize, start: u64, lengths: &[usize]) {
        let file = tempfile::tempfile().unwrap();
        let mut tail = Tail::new(file.try_clone().unwrap(), limit);
        tail.move_to(start).unwrap();
        let mut all: Vec<u8> = Vec::new();
        for (index, length) in lengths.iter().enumerate() {
            let parts: [Vec<u8>; 3] = [56, *length, length % 8]
                .map(|length| (0..length).map(|at| ((all.len() + at) * 7 + index) as u8).collect());
            tail.append([&parts[0], &parts[1], &parts[2]]).unwrap();
            all.extend(parts.concat());
            assert!(tail.buffer.len() <= limit, "{} bytes in the buffer", tail.buffer.len());
            let mut found = vec![0; all.len()];
            tail.read_at(start, &mut found).unwrap();
            assert!(found == all, "limit {limit}, part {index}");
        }
        tail.flush().unwrap();
        let mut found = vec![0; all.len()];
        file.read_exact_at(&mut found, start).unwrap();
        assert!(found == all, "limit {limit}, in the file");
    }

    #[test]
    fn appended_bytes_are_read_from_buffer_and_file_whatever_their_lengths() {
        let lengths = [0, 1, 500, 33_000, 8, 300_000, 64_000, 65_480, 31_000, 40_000, 1, 262_144];
        for limit in [0, 100, 50_000, ALIGNED, 2 * ALIGNED, 1 << 20] {
            for start in [0, 8192, 12_345] {
                check(limit, start, &lengths.repeat(3));
                check(limit, start, &[700; 400]);
            }
        }
    }
}
