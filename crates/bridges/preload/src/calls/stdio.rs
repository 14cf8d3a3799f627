//! Streams of stdio.

use super::open::open_file;
use crate::next::intercept;
use crate::{streams, table};
use libc::{FILE, c_char, c_int};
use std::ffi::CStr;

/// Permissions of a file that `fopen` creates, before the mask.
const MODE: libc::mode_t = 0o666;

fn do_open(path: *const c_char, mode: *const c_char) -> Option<*mut FILE> {
    if mode.is_null() {
        return None;
    }
    // SAFETY: the caller's string.
    let mode = unsafe { CStr::from_ptr(mode) };
    let fd = open_file(libc::AT_FDCWD, path, streams::open_flags(mode)?, MODE)?;
    if fd < 0 {
        return Some(std::ptr::null_mut());
    }
    let stream = streams::open(fd, mode);
    if stream.is_null() {
        drop(table::remove(fd));
        // SAFETY: nobody else has the descriptor.
        unsafe { libc::close(fd) };
    }
    Some(stream)
}

fn do_open_descriptor(fd: c_int, mode: *const c_char) -> Option<*mut FILE> {
    table::get(fd)?;
    // SAFETY: the caller's string.
    let mode = unsafe { CStr::from_ptr(mode) };
    streams::open_flags(mode)?;
    Some(streams::open(fd, mode))
}

intercept! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = do_open(path, mode);
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE = do_open(path, mode);
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = do_open_descriptor(fd, mode);
    fn fileno(stream: *mut FILE) -> c_int = streams::descriptor(stream);
    fn fileno_unlocked(stream: *mut FILE) -> c_int = streams::descriptor(stream);
}
