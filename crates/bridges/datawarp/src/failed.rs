//! Iterating over the files that could not be staged.

use std::ffi::{c_char, c_int};

use forebay_protocol::staging::{PathKind, StagingCall, StagingReply};
use rustix::io::Errno;

use crate::paths::{given, instance_path};
use crate::{call, number, result, set};

/// The failures, and the next one to be read.
#[allow(non_camel_case_types, reason = "the name that C programs use")]
pub struct dw_failed_stage_t {
    failures: Vec<(String, i32)>,
    next: usize,
}

/// Finds the files at and below a directory that could not be staged.
///
/// # Safety
/// `dw_instance` is null or a C string, `handle` null or to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_open_failed_stage(
    dw_instance: *const c_char,
    handle: *mut *mut dw_failed_stage_t,
) -> c_int {
    result(|| {
        if handle.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller guarantees the validity of the string.
        let path = instance_path(PathKind::Directory, unsafe { given(dw_instance)? })?;
        let StagingReply::Failures(failures) = call(StagingCall::QueryFailures(path))? else {
            return Err(Errno::PROTO);
        };
        let found = Box::new(dw_failed_stage_t { failures, next: 0 });
        // SAFETY: it is not null, and the caller guarantees the validity of the rest.
        unsafe { *handle = Box::into_raw(found) };
        Ok(())
    })
}

/// Reads the path and error of the next file. Returns the length of the path, or 0 at the end.
/// `RANGE` if the path with its terminating zero is longer than `path_size`; the next call reads the
/// same file.
///
/// # Safety
/// `handle` is null or from [`dw_open_failed_stage`] and not closed; `path` null or to `path_size`
/// bytes that may be written, `errno` null or to an integer that may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_read_failed_stage(
    handle: *mut dw_failed_stage_t,
    path: *mut c_char,
    path_size: c_int,
    errno: *mut c_int,
) -> c_int {
    number(|| {
        // SAFETY: it is null or what `dw_open_failed_stage` made.
        let found = unsafe { handle.as_mut() }.ok_or(Errno::INVAL)?;
        if path.is_null() {
            return Err(Errno::INVAL);
        }
        let Some((name, why)) = found.failures.get(found.next) else {
            return Ok(0);
        };
        let capacity = usize::try_from(path_size).map_err(|_| Errno::INVAL)?;
        if name.len() >= capacity {
            return Err(Errno::RANGE);
        }
        let length = c_int::try_from(name.len()).map_err(|_| Errno::RANGE)?;
        // SAFETY: the buffer has space for the name and a zero.
        unsafe {
            std::ptr::copy_nonoverlapping(name.as_ptr().cast(), path, name.len());
            *path.add(name.len()) = 0;
        }
        // SAFETY: the caller guarantees the validity of the pointer.
        unsafe { set(errno, -*why) };
        found.next += 1;
        Ok(length)
    })
}

/// Ends the iteration.
///
/// # Safety
/// `handle` is null or from [`dw_open_failed_stage`], and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_close_failed_stage(handle: *mut dw_failed_stage_t) -> c_int {
    result(|| {
        if handle.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: `dw_open_failed_stage` made it by `Box::into_raw`, and it is closed once.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    })
}
