//! Streams of stdio over files of an instance. The C library calls the functions of this file for
//! them, which use the intercepted `read`, `write`, `lseek` and `close`.

use crate::table;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> isize,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> isize,
    seek: unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(
        cookie: *mut c_void,
        mode: *const c_char,
        functions: CookieFunctions,
    ) -> *mut libc::FILE;
}

/// Descriptors by stream: the C library does not know them.
static STREAMS: Mutex<Option<HashMap<usize, c_int>>> = Mutex::new(None);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The flags of `open` for a mode of `fopen`; `None` for modes that only the C library knows.
pub fn open_flags(mode: &CStr) -> Option<c_int> {
    let mode = mode.to_bytes();
    if mode.contains(&b',') {
        return None; // another character set
    }
    let both = mode.contains(&b'+');
    let access = |one: c_int| if both { libc::O_RDWR } else { one };
    let flags = match mode.first()? {
        b'r' => access(libc::O_RDONLY),
        b'w' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        b'a' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    let exclusive = if mode.contains(&b'x') { libc::O_EXCL } else { 0 };
    let close_on_exec = if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    Some(flags | exclusive | close_on_exec)
}

/// A stream over a descriptor of a file of an instance; null on failure.
pub fn open(fd: c_int, mode: &CStr) -> *mut libc::FILE {
    assert!(table::get(fd).is_some(), "the descriptor is one of a file of an instance");
    let functions = CookieFunctions { read, write, seek, close };
    let cookie = fd as usize as *mut c_void;
    // SAFETY: `mode` is a C string, and the functions have the required types.
    let stream = unsafe { fopencookie(cookie, mode.as_ptr(), functions) };
    if !stream.is_null() {
        STREAMS.lock().get_or_insert_default().insert(stream as usize, fd);
        COUNT.fetch_add(1, Ordering::AcqRel);
    }
    stream
}

/// The descriptor of a stream that was opened here.
pub fn descriptor(stream: *mut libc::FILE) -> Option<c_int> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    STREAMS.lock().as_ref()?.get(&(stream as usize)).copied()
}

/// Before a fork: no thread may change the streams until [`unlock`].
pub fn lock() {
    std::mem::forget(STREAMS.lock());
}

/// After a fork, in both processes. The child's streams have the same descriptors, which are of the
/// kernel now.
pub fn unlock() {
    // SAFETY: this thread holds the lock since `lock`.
    unsafe { STREAMS.force_unlock() };
}

fn fd_of(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

unsafe extern "C" fn read(cookie: *mut c_void, buffer: *mut c_char, size: usize) -> isize {
    // SAFETY: the C library passes a valid buffer.
    unsafe { crate::calls::transfer::read(fd_of(cookie), buffer.cast(), size) }
}

unsafe extern "C" fn write(cookie: *mut c_void, buffer: *const c_char, size: usize) -> isize {
    // SAFETY: as above.
    let written = unsafe { crate::calls::transfer::write(fd_of(cookie), buffer.cast(), size) };
    // A stream takes 0 for an error.
    written.max(0)
}

unsafe extern "C" fn seek(cookie: *mut c_void, offset: *mut i64, whence: c_int) -> c_int {
    // SAFETY: the C library passes a valid pointer.
    unsafe {
        let position = crate::calls::transfer::lseek(fd_of(cookie), *offset, whence);
        if position < 0 {
            return -1;
        }
        *offset = position;
    }
    0
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    let fd = fd_of(cookie);
    if let Some(streams) = STREAMS.lock().as_mut() {
        let before = streams.len();
        streams.retain(|_, descriptor| *descriptor != fd);
        COUNT.fetch_sub(before - streams.len(), Ordering::AcqRel);
    }
    // SAFETY: the stream owned the descriptor.
    unsafe { crate::calls::descriptors::close(fd) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_streams_become_flags_of_open() {
        let flags = |mode: &CStr| open_flags(mode);
        assert_eq!(flags(c"r"), Some(libc::O_RDONLY));
        assert_eq!(flags(c"rb+"), Some(libc::O_RDWR));
        assert_eq!(
            flags(c"wxe"),
            Some(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL | libc::O_CLOEXEC)
        );
        assert_eq!(flags(c"a"), Some(libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND));
        assert_eq!(flags(c"r,ccs=UTF-8"), None);
        assert_eq!(flags(c""), None);
    }
}
