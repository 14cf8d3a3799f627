//! Operations that the kernel carries out on the file itself.

use crate::errno::set;
use crate::fork::share_files;
use crate::next::intercept;
use crate::table;
use forebay_protocol::Errno;
use libc::{c_char, c_int, c_ulong, c_void, loff_t, nfds_t, off_t, pollfd, size_t, ssize_t};

/// Requests of `ioctl` to terminals, without their lowest byte.
const TERMINAL_REQUESTS: c_ulong = libc::TCGETS as c_ulong & !0xff;

/// Makes the file with this descriptor one of the kernel, if it is one of an instance. The kernel
/// refuses the operation if that is not possible.
pub fn hand_over(fd: c_int) -> Option<()> {
    // EBADF follows.
    let _ = table::get(fd)?.move_to_kernel();
    Some(())
}

/// Passes the call on when the kernel has the file.
fn after_hand_over<T>(fds: &[c_int]) -> Option<T> {
    for fd in fds {
        hand_over(*fd);
    }
    None
}

fn before_poll<T>(fds: *const pollfd, count: nfds_t) -> Option<T> {
    if table::is_empty() || fds.is_null() {
        return None;
    }
    // SAFETY: the caller's array.
    for polled in unsafe { std::slice::from_raw_parts(fds, count as usize) } {
        hand_over(polled.fd);
    }
    None
}

fn before_select<T>(count: c_int, sets: [*const libc::fd_set; 3]) -> Option<T> {
    if table::is_empty() {
        return None;
    }
    for (fd, file) in table::all() {
        let is_in = |set: &*const libc::fd_set| {
            // SAFETY: the caller's set; `fd` is below its size.
            !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) }
        };
        if fd < count && (fd as usize) < libc::FD_SETSIZE && sets.iter().any(is_in) {
            let _ = file.move_to_kernel();
        }
    }
    None
}

/// Requests to terminals, with which programs find out whether a file is one, are refused here.
fn do_ioctl(fd: c_int, request: c_ulong) -> Option<c_int> {
    table::get(fd)?;
    if request & !0xff == TERMINAL_REQUESTS {
        set(Errno(libc::ENOTTY));
        return Some(-1);
    }
    after_hand_over(&[fd])
}

/// A file needs no advice on its use: the result is success.
fn without_effect(fd: c_int) -> Option<c_int> {
    table::get(fd).filter(|file| !file.is_moved()).map(|_| 0)
}

intercept! {
    fn mmap(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void =
        after_hand_over(&[fd]);
    fn mmap64(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void =
        after_hand_over(&[fd]);
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int = do_ioctl(fd, request);
    fn flock(fd: c_int, operation: c_int) -> c_int = after_hand_over(&[fd]);
    fn lockf(fd: c_int, command: c_int, length: off_t) -> c_int = after_hand_over(&[fd]);
    fn lockf64(fd: c_int, command: c_int, length: off_t) -> c_int = after_hand_over(&[fd]);
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t =
        after_hand_over(&[to, from]);
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t =
        after_hand_over(&[to, from]);
    fn splice(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, length: size_t, flags: libc::c_uint) -> ssize_t =
        after_hand_over(&[from, to]);
    fn copy_file_range(from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t, length: size_t, flags: libc::c_uint) -> ssize_t =
        after_hand_over(&[from, to]);
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int =
        after_hand_over(&[fd]);
    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int =
        after_hand_over(&[fd]);
    fn posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int = after_hand_over(&[fd]);
    fn posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int =
        after_hand_over(&[fd]);
    fn posix_fadvise(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int =
        without_effect(fd);
    fn posix_fadvise64(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int =
        without_effect(fd);
    fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t =
        without_effect(fd).map(|result| result as ssize_t);
    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: libc::c_uint) -> c_int =
        after_hand_over(&[fd]);
    fn syncfs(fd: c_int) -> c_int = after_hand_over(&[fd]);
    fn fstatfs(fd: c_int, into: *mut libc::statfs) -> c_int = after_hand_over(&[fd]);
    fn fstatfs64(fd: c_int, into: *mut libc::statfs) -> c_int = after_hand_over(&[fd]);
    fn fstatvfs(fd: c_int, into: *mut libc::statvfs) -> c_int = after_hand_over(&[fd]);
    fn fstatvfs64(fd: c_int, into: *mut libc::statvfs) -> c_int = after_hand_over(&[fd]);
    fn fpathconf(fd: c_int, name: c_int) -> libc::c_long = after_hand_over(&[fd]);
    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t =
        after_hand_over(&[fd]);
    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int =
        after_hand_over(&[fd]);
    fn flistxattr(fd: c_int, list: *mut c_char, size: size_t) -> ssize_t = after_hand_over(&[fd]);
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int = after_hand_over(&[fd]);
    fn fchdir(fd: c_int) -> c_int = after_hand_over(&[fd]);
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = before_poll(fds, count);
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, known: size_t) -> c_int =
        before_poll(fds, count);
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int =
        before_poll(fds, count);
    fn select(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set, timeout: *mut libc::timeval) -> c_int =
        before_select(count, [read, write, except]);
    fn pselect(count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int =
        before_select(count, [read, write, except]);
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int =
        after_hand_over(&[fd]);
    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t = {
        // SAFETY: the caller's message.
        if unsafe { message.as_ref() }.is_some_and(|message| message.msg_controllen > 0) {
            // It may pass descriptors to another process.
            share_files();
        }
        None
    };
    // On these systems a `va_list` argument is a pointer.
    #[cfg(target_arch = "x86_64")]
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int =
        after_hand_over(&[fd]);
    #[cfg(target_arch = "x86_64")]
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int =
        after_hand_over(&[fd]);
    fn isatty(fd: c_int) -> c_int = {
        table::get(fd)?;
        set(Errno(libc::ENOTTY));
        Some(0)
    };
}

/// Operations of `aio.h`, which the C library carries out in threads of its own.
macro_rules! asynchronous {
    ($($name:ident),*) => {
        intercept! {
            $(fn $name(request: *mut libc::aiocb) -> c_int = {
                // SAFETY: the caller's request.
                let fd = unsafe { request.as_ref() }.map(|request| request.aio_fildes);
                after_hand_over(fd.as_slice())
            };)*
        }
    };
}
asynchronous!(aio_read, aio_read64, aio_write, aio_write64);

intercept! {
    fn aio_fsync(operation: c_int, request: *mut libc::aiocb) -> c_int = {
        // SAFETY: the caller's request.
        let fd = unsafe { request.as_ref() }.map(|request| request.aio_fildes);
        after_hand_over(fd.as_slice())
    };
    fn lio_listio(mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut libc::sigevent) -> c_int = {
        let count = usize::try_from(count).unwrap_or(0);
        for index in 0..count {
            // SAFETY: the caller's array of `count` pointers, of which some may be null.
            if let Some(request) = unsafe { (*list.add(index)).as_ref() } {
                hand_over(request.aio_fildes);
            }
        }
        None
    };
}
