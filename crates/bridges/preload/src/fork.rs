//! Other processes: children inherit descriptors of the kernel only, and no sessions.

use crate::{runtime, streams, table};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Registers for forks and for the end of the process; children inherit that.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the functions have the required types, and stay loaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            libc::atexit(at_exit);
            at_quick_exit(finish_all);
        }
    });
}

unsafe extern "C" {
    /// Of the C library.
    fn at_quick_exit(function: extern "C" fn()) -> libc::c_int;
}

/// Limit of the time for which a process that ends waits for storage nodes.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the storage nodes have all writes: the process ends without its exit functions. May be
/// called by a handler of a signal.
pub fn finish_writes() {
    let deadline = Instant::now() + END_TIMEOUT;
    table::for_each(|file| file.finish_writes_before(deadline));
}

extern "C" fn finish_all() {
    crate::inside::enter(|| {
        finish_writes();
        Some(())
    });
}

/// Files that another process shall share become files of the kernel.
pub fn share_files() {
    for (_, file) in table::all() {
        file.finish_writes();
        // A file that has no name any more, or forbids to be opened again, stays this process's own.
        let _ = file.move_to_kernel();
    }
}

extern "C" fn before_fork() {
    crate::inside::enter(|| {
        share_files();
        streams::lock();
        Some(())
    });
}

extern "C" fn in_parent() {
    streams::unlock();
}

extern "C" fn in_child() {
    let first = runtime::own_descriptors();
    table::forget();
    streams::unlock();
    runtime::forget();
    if first > 0 {
        // The parent's connections: its sessions end when it closes them.
        // SAFETY: closes descriptors that nobody in this process uses any more.
        unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    }
}

extern "C" fn at_exit() {
    // SAFETY: flushes all streams, of which some may be of files of an instance.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    crate::inside::enter(|| {
        // Functions that run later may still use them.
        share_files();
        for (fd, _) in table::all() {
            table::remove(fd);
        }
        runtime::end();
        Some(())
    });
}
