//! Results of the C library.

use forebay_protocol::Errno;

/// Sets `errno`.
pub fn set(errno: Errno) {
    // SAFETY: points to the thread's `errno`.
    unsafe { *libc::__errno_location() = errno.0 };
}

/// The error of the last call.
pub fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// -1 for an error, which becomes `errno`.
pub fn result<T: From<i8>>(outcome: Result<T, Errno>) -> T {
    outcome.unwrap_or_else(|errno| {
        set(errno);
        T::from(-1)
    })
}

/// 0, or -1 for an error, which becomes `errno`.
pub fn status(outcome: Result<(), Errno>) -> i32 {
    result(outcome.map(|()| 0))
}
