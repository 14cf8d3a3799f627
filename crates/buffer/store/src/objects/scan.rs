//! Reading an object for a scrub: from the device, past the page cache.

use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Alignment of memory, offsets and lengths, at least that of any device's logical blocks.
const ALIGNMENT: usize = 4096;

/// Reads a file in portions.
#[derive(Debug)]
pub struct ScanReader<'a> {
    file: &'a File,
    /// The file without the page cache, where the file system supports that. What is in the cache says
    /// nothing about the device, and a scrub must not displace what programs use.
    direct: Option<File>,
    buffer: Vec<u8>,
}

impl<'a> ScanReader<'a> {
    /// `portion`: bytes of a read, a multiple of 4,096. `past_cache`: read from the device.
    pub fn new(file: &'a File, portion: usize, past_cache: bool) -> ScanReader<'a> {
        assert!(portion.is_multiple_of(ALIGNMENT) && portion > 0);
        let direct = past_cache.then(|| open_direct(file)).flatten();
        ScanReader { file, direct, buffer: vec![0; portion + ALIGNMENT] }
    }

    /// Read at most a portion at `offset`, and not beyond `end`. Empty: the file ends there.
    pub fn read(&mut self, offset: u64, end: u64) -> io::Result<&[u8]> {
        assert!(offset < end);
        // The address of a vector's memory changes only with its capacity.
        let start = self.buffer.as_ptr().align_offset(ALIGNMENT);
        let portion = self.buffer.len() - ALIGNMENT;
        let wanted = portion.min((end - offset) as usize);
        let aligned = wanted.next_multiple_of(ALIGNMENT);
        let into = self.buffer.get_mut(start..start + aligned);
        let into = into.ok_or(io::ErrorKind::OutOfMemory)?;
        assert!(into.len() >= wanted);
        let count = loop {
            let result = match &self.direct {
                Some(direct) => direct.read_at(into, offset),
                None => self.file.read_at(&mut into[..wanted], offset),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The file system or the offset has another alignment.
                Err(error) if self.direct.is_some() && is_invalid(&error) => self.direct = None,
                other => break other?,
            }
        };
        Ok(&into[..count.min(wanted)])
    }
}

fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// Open a file again for reads past the page cache; `None` if its file system has none.
fn open_direct(file: impl AsFd) -> Option<File> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
    opened.ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_as_it_was_written_with_and_without_the_page_cache() {
        let data: Vec<u8> = (0..100_001u32).map(|at| (at % 251) as u8).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&data, 0).unwrap();
        for past_cache in [false, true] {
            let mut reader = ScanReader::new(&file, 16 << 10, past_cache);
            let mut read = Vec::new();
            while read.len() < data.len() {
                let at = read.len() as u64;
                let portion = reader.read(at, data.len() as u64).unwrap();
                assert!(!portion.is_empty());
                read.extend_from_slice(portion);
            }
            assert_eq!(read, data);
            // Neither an odd offset nor the end of the file is an error.
            assert_eq!(reader.read(1001, 2000).unwrap(), &data[1001..2000]);
            assert_eq!(reader.read(data.len() as u64 + 5000, u64::MAX).unwrap(), b"");
        }
    }
}
