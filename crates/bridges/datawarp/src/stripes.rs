//! Stripes of files, and functions for metadata servers and caches.

use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use forebay_protocol::staging::{PathKind, StagingCall, StagingReply};
use rustix::io::Errno;

use crate::paths::{given, instance_path};
use crate::{call, errno, result, set};

/// Size, width and first index of an open file's stripes.
fn stripes(fd: c_int) -> Result<(c_int, c_int, c_int), Errno> {
    // SAFETY: the call takes a number and touches no memory.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: it is open, and not closed during this call.
    let open = unsafe { BorrowedFd::borrow_raw(fd) };
    let inode = rustix::fs::fstat(open)?.st_ino;
    let path = fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|e| errno(&e))?;
    if !path.is_absolute() {
        // A pipe or a socket.
        return Err(Errno::INVAL);
    }
    let path = path.into_os_string().into_string();
    let path = path.map_err(|_| Errno::ILSEQ)?;
    let StagingReply::Stripes { size, width, start } =
        call(StagingCall::QueryStripes(path, inode))?
    else {
        return Err(Errno::PROTO);
    };
    let number = |number: u64| c_int::try_from(number).unwrap_or(c_int::MAX);
    Ok((number(size), number(width.into()), number(start.into())))
}

/// The stripes of an open file or directory.
///
/// # Safety
/// The pointers are null or to integers that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_get_stripe_configuration(
    fd: c_int,
    stripe_size: *mut c_int,
    stripe_width: *mut c_int,
    starting_index: *mut c_int,
) -> c_int {
    result(|| {
        let (size, width, start) = stripes(fd)?;
        for (to, value) in [(stripe_size, size), (stripe_width, width), (starting_index, start)] {
            // SAFETY: the caller guarantees the validity of the pointers.
            unsafe { set(to, value) };
        }
        Ok(())
    })
}

/// Sets the stripes of an open file; `OPNOTSUPP` unless they are those of the instance.
#[unsafe(no_mangle)]
pub extern "C" fn dw_set_stripe_configuration(
    fd: c_int,
    stripe_size: c_int,
    stripe_width: c_int,
) -> c_int {
    result(|| {
        if stripe_size <= 0 || stripe_width <= 0 {
            return Err(Errno::INVAL);
        }
        let (size, width, _) = stripes(fd)?;
        if (stripe_size, stripe_width) == (size, width) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    })
}

/// The path by which an instance's metadata server for `key` is reached. All servers of an
/// instance are reached by its one path. The caller frees it; null if it is no instance.
///
/// # Safety
/// `dw_root` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_get_mds_path(dw_root: *const c_char, _key: u64) -> *mut c_char {
    let path = std::panic::catch_unwind(|| {
        // SAFETY: the caller guarantees the validity of the string.
        let given = unsafe { given(dw_root)? };
        // Refused unless the path is in an instance of the job.
        let directory = instance_path(PathKind::Directory, given)?;
        let inode = fs::metadata(&directory).map_err(|e| errno(&e))?.ino();
        call(StagingCall::QueryStripes(directory, inode))?;
        CString::new(given.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
    });
    match path {
        // SAFETY: a C string, of which the C library makes a copy that C programs can free.
        Ok(Ok(path)) => unsafe { libc::strdup(path.as_ptr()) },
        _ => std::ptr::null_mut(),
    }
}

/// Waits until a cache has written a file back. `INVAL` for a scratch instance.
#[unsafe(no_mangle)]
pub extern "C" fn dw_wait_sync_complete(fd: c_int) -> c_int {
    result(|| {
        stripes(fd)?;
        Err(Errno::INVAL)
    })
}
