//! Reading what a file's storage has, and not what this host remembers of it.

use std::cell::Cell;
use std::os::fd::BorrowedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, pread};

use crate::end::Body;

/// Offsets, lengths and addresses of reads past the page cache are multiples of this many bytes,
/// which is enough for all devices there are.
const BLOCK: usize = 4096;

/// Memory for reads past the page cache.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Where the first block begins.
    first: usize,
}

impl Buffer {
    /// For so many bytes at a time.
    pub fn new(length: usize) -> Buffer {
        let bytes = vec![0; length.next_multiple_of(BLOCK) + BLOCK];
        let first = bytes.as_ptr().align_offset(BLOCK);
        Buffer { bytes, first }
    }

    /// The first `length` bytes; `None` if there are fewer.
    fn take(&mut self, length: usize) -> Option<&mut [u8]> {
        let end = self.first.checked_add(length)?;
        self.bytes.get_mut(self.first..end)
    }
}

/// A file of which parts are read.
pub(crate) struct Stored<'b> {
    body: &'b dyn Body,
    /// What it is read through past the page cache, as long as that can be.
    direct: Cell<Option<BorrowedFd<'b>>>,
}

impl<'b> Stored<'b> {
    /// A file that is read past the page cache if that is wanted and possible.
    pub fn new(body: &'b dyn Body, past: bool) -> Stored<'b> {
        let own = body.descriptor();
        let own = own.filter(|_| past && body.is_opened_here());
        let direct = own.filter(|descriptor| past_cache(*descriptor, true).is_ok());
        let direct = Cell::new(direct);
        Stored { body, direct }
    }

    /// The `length` bytes at `offset`, in `buffer`; fewer only at the end.
    pub fn read<'a>(
        &self,
        buffer: &'a mut Buffer,
        offset: u64,
        length: usize,
    ) -> Result<&'a [u8], Errno> {
        let have = self.past_cache(buffer, offset, length)?;
        let into = buffer.take(length).ok_or(Errno::INVAL)?;
        let have = match have {
            Some(have) => have.min(length),
            None => self.body.read(into, offset)?,
        };
        Ok(into.get(..have).unwrap_or_default())
    }

    /// As [`Stored::read`], with what is left of the last block; `None` if it has to be read through
    /// the page cache.
    fn past_cache(
        &self,
        buffer: &mut Buffer,
        offset: u64,
        length: usize,
    ) -> Result<Option<usize>, Errno> {
        let Some(descriptor) = self.direct.get() else {
            return Ok(None);
        };
        let into = buffer.take(length.next_multiple_of(BLOCK));
        let into = into.ok_or(Errno::INVAL)?;
        let mut have = 0;
        let failed = loop {
            let Some(rest) = into.get_mut(have..).filter(|rest| !rest.is_empty()) else {
                return Ok(Some(have));
            };
            match pread(descriptor, rest, offset + have as u64) {
                Ok(read) if read > 0 && read.is_multiple_of(BLOCK) => have += read,
                // The end.
                Ok(read) => return Ok(Some(have + read)),
                Err(Errno::INTR) => {}
                Err(errno) => break errno,
            }
        };
        match failed {
            // Not at this offset, or the file system cannot do it.
            Errno::INVAL | Errno::OPNOTSUPP => {
                self.direct.set(None);
                past_cache(descriptor, false)?;
                Ok(None)
            }
            errno => Err(errno),
        }
    }
}

/// Whether what is open is read past the page cache from now on.
fn past_cache(descriptor: BorrowedFd<'_>, past: bool) -> Result<(), Errno> {
    let mut flags = fcntl_getfl(descriptor)?;
    flags.set(OFlags::DIRECT, past);
    fcntl_setfl(descriptor, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::end::open_path;
    use std::io::Write;

    /// What is read of a file of 3 blocks and a bit, at these offsets and lengths.
    fn check(directory: &std::path::Path) {
        let bytes: Vec<u8> = (0..3 * BLOCK + 77).map(|i| (i / 7) as u8).collect();
        let mut file = tempfile::NamedTempFile::new_in(directory).unwrap();
        file.write_all(&bytes).unwrap();
        let mut buffer = Buffer::new(8 * BLOCK);
        for past in [true, false] {
            let body = open_path(file.path(), &None).unwrap();
            let stored = Stored::new(&*body, past);
            // The fourth is at no block's beginning: on most file systems that and what follows is
            // read another way.
            for (offset, length) in [
                (0, 2 * BLOCK),
                (2 * BLOCK, BLOCK + 77),
                (BLOCK, 5 * BLOCK),
                (10, 100),
                (0, bytes.len()),
            ] {
                let found = stored.read(&mut buffer, offset as u64, length).unwrap();
                let end = bytes.len().min(offset + length);
                assert!(found == &bytes[offset..end], "{offset} {length}");
            }
            assert!(past || stored.direct.get().is_none());
        }
    }

    #[test]
    fn all_ways_of_reading_find_the_same() {
        check(&std::env::temp_dir());
        check(std::path::Path::new("/dev/shm"));
    }

    #[test]
    fn more_than_the_buffer_holds_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let body = open_path(file.path(), &None).unwrap();
        let mut buffer = Buffer::new(BLOCK);
        for past in [true, false] {
            let stored = Stored::new(&*body, past);
            let refused = stored.read(&mut buffer, 0, 3 * BLOCK).err();
            assert_eq!(refused, Some(Errno::INVAL));
        }
    }
}
