//! The contents of a memory region for the service.
//!
//! The library copies them into an anonymous file in memory, seals it and passes its descriptor:
//! the service never reads the memory of a process, which could belong to another program by then,
//! and the caller may use the region again as soon as the task is submitted.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use super::MemoryRegion;
use crate::code::Code;

/// Copies a region into a sealed file in memory, with the permissions of a new file of this process.
///
/// # Safety
/// The region is readable.
pub(super) unsafe fn seal(region: MemoryRegion) -> Result<OwnedFd, Code> {
    if region.b_addr.is_null() && region.b_size > 0 {
        return Err(Code::BADARGS);
    }
    let contents = match region.b_size {
        0 => &[],
        // SAFETY: the caller guarantees that these bytes are readable.
        size => unsafe { std::slice::from_raw_parts(region.b_addr.cast::<u8>(), size) },
    };
    let sealed = || -> Result<OwnedFd, Errno> {
        let file = memfd_create(c"norns-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(file);
        file.write_all(contents)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
        fchmod(file.as_fd(), Mode::from_raw_mode(0o666 & !umask()))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        Ok(file.into())
    };
    sealed().map_err(|_| Code::NOMEM)
}

/// The file mode creation mask; 0o077 if it is unknown.
fn umask() -> u32 {
    // It cannot be read without a change that other threads would see, except here.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o077)
}
