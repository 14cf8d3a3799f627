//! A copy as its storage has it, and not as the memory does from which it was written.

use std::num::NonZeroU64;

use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise, fdatasync, openat};
use rustix::io::{Errno, pread};

use crate::copy::{CHUNK, Pieces, digest};
use crate::end::{Body, SMALL};
use crate::error::Failure;
use crate::progress::Progress;
use std::os::fd::{AsRawFd, OwnedFd};

/// What reads past the page cache begin at multiples of, in files and in memory: no device has
/// larger blocks. Where one has, the page cache is used.
const BLOCK: usize = 4096;

/// Memory of [`CHUNK`] bytes that devices can write to.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Default for Buffer {
    fn default() -> Buffer {
        let memory = vec![0; CHUNK + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        Buffer { memory, start }
    }
}

impl Buffer {
    /// All of it.
    pub fn all(&mut self) -> &mut [u8] {
        let whole = self.start..self.start + CHUNK;
        self.memory.get_mut(whole).unwrap_or_default()
    }
}

/// Puts what was written of a copy on stable storage.
pub(crate) fn store(copy: &dyn Body) -> Result<(), Errno> {
    match copy.descriptor() {
        Some(descriptor) => fdatasync(descriptor),
        None => copy.flush(),
    }
}

/// The checksum of these pieces of a copy, which are on stable storage, as they are there.
pub(crate) fn digest_stored(
    copy: &dyn Body,
    pieces: &Pieces,
    progress: &Progress,
    buffer: &mut [u8],
) -> Result<String, Failure> {
    if begin_at_blocks(pieces)
        && let Some(file) = past_the_cache(copy)
    {
        let read = |into: &mut [u8], at| read_blocks(&file, into, at);
        match digest(read, BLOCK, pieces, progress, buffer) {
            // It does not do that after all.
            Err(Failure::File(_, Errno::INVAL)) => {}
            found => return found,
        }
    }
    forget(copy);
    digest_cached(copy, pieces, progress, buffer)
}

/// The same as the page cache has it, which reads from storage what it has been made to
/// [`forget`].
pub(crate) fn digest_cached(
    copy: &dyn Body,
    pieces: &Pieces,
    progress: &Progress,
    buffer: &mut [u8],
) -> Result<String, Failure> {
    digest(|into, at| copy.read(into, at), 1, pieces, progress, buffer)
}

/// Has the kernel forget what it knows of a file, so that it is read from its storage.
pub(crate) fn forget(copy: &dyn Body) {
    if let Some(descriptor) = copy.descriptor() {
        let _ = fadvise(descriptor, 0, None, Advice::DontNeed);
    }
}

/// Has the kernel read a small file without being waited for; `false`: it is not small.
pub(crate) fn begin_to_read(copy: &dyn Body, pieces: &Pieces) -> bool {
    let Pieces::All(0, to @ ..=SMALL) = pieces else {
        return false;
    };
    if let (Some(descriptor), Some(length)) = (copy.descriptor(), NonZeroU64::new(*to)) {
        let _ = fadvise(descriptor, 0, Some(length), Advice::WillNeed);
    }
    true
}

fn begin_at_blocks(pieces: &Pieces) -> bool {
    let at_block = |offset: &u64| offset.is_multiple_of(BLOCK as u64);
    match pieces {
        Pieces::All(from, _) => at_block(from),
        Pieces::Some(some) => some.iter().all(|(offset, _)| at_block(offset)),
    }
}

/// The copy's file, opened once more: a descriptor that a storage daemon has passed is the
/// daemon's as well, which goes on using the page cache. `None`: it cannot be, or not like that.
fn past_the_cache(copy: &dyn Body) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", copy.descriptor()?.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).ok()
}

/// Reads whole blocks; what is read ends within one only at the end of the file.
fn read_blocks(file: &OwnedFd, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut have: usize = 0;
    while have.is_multiple_of(BLOCK)
        && let Some(rest) = into.get_mut(have..).filter(|rest| !rest.is_empty())
    {
        match pread(file, rest, at + have as u64) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(have)
}
