//! Descriptors: closing, duplicating, flags.

use crate::errno::set;
use crate::next::intercept;
use crate::{inside, runtime, table};
use forebay_protocol::Errno;
use libc::{c_int, c_uint};
use std::os::fd::RawFd;

/// A descriptor of this library does not exist for the program.
fn is_foreign(fd: RawFd) -> bool {
    runtime::is_own_descriptor(fd)
}

fn bad_descriptor() -> Option<c_int> {
    set(Errno::EBADF);
    Some(-1)
}

fn do_close(fd: c_int) -> Option<c_int> {
    if is_foreign(fd) {
        return bad_descriptor();
    }
    let removed = table::remove(fd)?;
    let flushed = removed.flush();
    // SAFETY: the program closes its descriptor.
    let closed = unsafe { libc::close(fd) };
    drop(removed);
    if let Err(errno) = flushed {
        set(errno);
        return Some(-1);
    }
    Some(closed)
}

/// After `new` has become a duplicate of `old`.
fn duplicated(old: c_int, new: c_int) -> c_int {
    if new < 0 {
        return new;
    }
    let replaced = match table::get(old) {
        Some(file) if old != new => {
            let replaced = table::remove(new);
            table::insert(new, file.clone());
            if new <= libc::STDERR_FILENO {
                // The C library's own functions write to these. Otherwise they get EBADF.
                let _ = file.move_to_kernel();
            }
            replaced
        }
        Some(_) => None,
        None => table::remove(new),
    };
    drop(replaced);
    new
}

fn do_dup(fd: c_int) -> Option<c_int> {
    table::get(fd)?;
    // SAFETY: the program's descriptor.
    Some(duplicated(fd, unsafe { libc::dup(fd) }))
}

fn do_dup2(old: c_int, new: c_int, flags: Option<c_int>) -> Option<c_int> {
    if is_foreign(old) || is_foreign(new) {
        return bad_descriptor();
    }
    if table::get(old).is_none() && table::get(new).is_none() {
        return None;
    }
    // SAFETY: the program's descriptors.
    let result = unsafe {
        match flags {
            None => libc::dup2(old, new),
            Some(flags) => libc::dup3(old, new, flags),
        }
    };
    Some(duplicated(old, result))
}

fn do_fcntl(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    let file = table::get(fd)?;
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: the program's descriptor.
            let new = unsafe { libc::fcntl(fd, command, argument) };
            Some(duplicated(fd, new))
        }
        libc::F_GETFD | libc::F_SETFD => None,
        libc::F_GETFL if !file.is_moved() => Some(file.flags()),
        libc::F_SETFL if !file.is_moved() => {
            file.set_flags(argument as c_int);
            Some(0)
        }
        _ => {
            super::kernel::hand_over(fd);
            None
        }
    }
}

/// Closes a range of descriptors, except those of this library.
fn do_close_range(first: c_uint, last: c_uint, flags: c_int) -> Option<c_int> {
    let floor = runtime::own_descriptors() as c_uint;
    if floor == 0 || flags & !(libc::CLOSE_RANGE_CLOEXEC as c_int) != 0 || first > last {
        return None;
    }
    let last = last.min(floor - 1);
    if first > last {
        return Some(0);
    }
    let mut removed = Vec::new();
    if flags == 0 {
        let within = |fd: &RawFd| (first..=last).contains(&(*fd as c_uint));
        let fds = table::all().into_iter().map(|(fd, _)| fd).filter(within);
        removed.extend(fds.map(table::remove));
    }
    // SAFETY: the program closes its descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } as c_int;
    drop(removed);
    Some(closed)
}

intercept! {
    fn close(fd: c_int) -> c_int = do_close(fd);
    fn dup(fd: c_int) -> c_int = do_dup(fd);
    fn dup2(old: c_int, new: c_int) -> c_int = do_dup2(old, new, None);
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int = do_dup2(old, new, Some(flags));
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = do_fcntl(fd, command, argument);
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int =
        do_fcntl(fd, command, argument);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int =
        do_close_range(first, last, flags);
}

/// `closefrom` of the C library, which has no result.
///
/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn closefrom(first: c_int) {
    assert!(!inside::is_inside(), "the library closes what it has opened");
    // SAFETY: the program closes its descriptors.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}
