//! The end of a log: bytes in memory that follow those in the file.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

/// A file and the bytes that are to be written at its end.
#[derive(Debug)]
pub(crate) struct Tail {
    file: File,
    buffer: Vec<u8>,
    /// Offset of the buffer's first byte in the file.
    start: u64,
    /// Most bytes of the buffer. Writes end at multiples of it, so that the file gets few large
    /// requests, each page of it is written once, and the kernel can use large pages.
    limit: usize,
}

impl Tail {
    pub fn new(file: File, limit: usize) -> Tail {
        Tail { file, buffer: Vec::with_capacity(limit), start: 0, limit }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends bytes: those up to the last boundary to the file, with the buffer and without a copy
    /// of them, the rest to the buffer. If writing fails, nothing is appended and the buffer stays.
    pub fn append(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let total = self.buffer.len() + length;
        let written = total - self.rest_behind_boundary(total);
        let mut skipped = written.saturating_sub(self.buffer.len());
        if written > 0 {
            self.write(written, parts)?;
            self.start += written as u64;
            self.buffer.clear();
        }
        for part in parts {
            let from = skipped.min(part.len());
            skipped -= from;
            self.buffer.extend_from_slice(&part[from..]);
        }
        assert!(self.buffer.len() <= self.limit, "the buffer keeps its limit");
        Ok(())
    }

    /// Of `total` bytes from the start of the buffer on, those behind the last multiple of the limit
    /// in the file; all if there is none.
    fn rest_behind_boundary(&self, total: usize) -> usize {
        match (self.start + total as u64).checked_rem(self.limit as u64) {
            Some(behind) => total.min(behind as usize),
            None => 0,
        }
    }

    /// Writes the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        let length = self.buffer.len();
        self.write(length, &[])?;
        self.start += length as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the first `length` bytes of the buffer and the parts behind it.
    fn write(&self, length: usize, parts: &[&[u8]]) -> io::Result<()> {
        let mut rest = length;
        let all = std::iter::once(&*self.buffer).chain(parts.iter().copied());
        let kept = all.map(|slice| {
            let slice = &slice[..slice.len().min(rest)];
            rest -= slice.len();
            IoSlice::new(slice)
        });
        let mut slices: Vec<IoSlice> = kept.filter(|slice| !slice.is_empty()).collect();
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
    use super::Tail;
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
            tail.append(&[&parts[0], &parts[1], &parts[2]]).unwrap();
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
    fn writes_end_at_multiples_of_the_limit() {
        let file = tempfile::tempfile().unwrap();
        let mut tail = Tail::new(file.try_clone().unwrap(), 1000);
        tail.move_to(300).unwrap();
        for (length, written) in [(699, 0), (1, 1000), (999, 1000), (2, 2000), (3500, 5000)] {
            tail.append(&[&vec![1; length]]).unwrap();
            assert_eq!(file.metadata().unwrap().len(), written, "after {length} bytes");
        }
        tail.flush().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5501);
    }

    #[test]
    fn appended_bytes_are_read_from_buffer_and_file_whatever_their_lengths() {
        let lengths = [0, 1, 500, 33_000, 8, 300_000, 64_000, 65_480, 31_000, 40_000, 1, 262_144];
        for limit in [0, 100, 50_000, 64 << 10, 128 << 10, 1 << 20] {
            for start in [0, 8192, 12_345] {
                check(limit, start, &lengths.repeat(3));
                check(limit, start, &[700; 400]);
            }
        }
    }
}
