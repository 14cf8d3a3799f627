//! The contents of a memory region for the service.
//!
//! The library copies them into an anonymous file in memory, seals it and passes its descriptor:
//! the service never reads the memory of a process, which could belong to another program by then,
//! and the caller may use the region again as soon as the task is submitted. The file of a region that
//! is not readable is shorter than the region, by which the service knows that the task has failed.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use super::MemoryRegion;
use crate::code::Code;

/// Copies a region into a sealed file in memory, with the permissions of a new file of this process.
/// The kernel reads the region, so that one that is not readable is an error and not a crash.
pub(super) fn seal(region: MemoryRegion) -> Result<OwnedFd, Code> {
    let sealed = || -> Result<OwnedFd, Errno> {
        let file = memfd_create(c"norns-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        write_region(&file, region)?;
        fchmod(file.as_fd(), Mode::from_raw_mode(0o666 & !umask()))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        Ok(file)
    };
    sealed().map_err(|_| Code::NOMEM)
}

/// Writes a region to a file, up to the first address that is not readable.
fn write_region(file: &OwnedFd, region: MemoryRegion) -> Result<(), Errno> {
    let mut written = 0;
    while written < region.b_size {
        let from = region.b_addr.wrapping_byte_add(written);
        // SAFETY: only the kernel reads the bytes, and reports an address that is not readable.
        let count = unsafe { libc::write(file.as_raw_fd(), from, region.b_size - written) };
        match usize::try_from(count) {
            Ok(0) => return Err(Errno::NOMEM),
            Ok(count) => written += count,
            Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::INTR) => {}
                Some(Errno::FAULT) => return Ok(()),
                other => return Err(other.unwrap_or(Errno::NOMEM)),
            },
        }
    }
    assert_eq!(written, region.b_size);
    Ok(())
}

/// The file mode creation mask; 0o077 if it is unknown.
fn umask() -> u32 {
    // It cannot be read without a change that other threads would see, except here.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o077)
}
