//! Programs that this one starts. `fork` is noticed by its handlers ([`crate::fork`]).

use crate::fork::share_files;
use crate::next::intercept;
use libc::{c_char, c_int, pid_t};

/// Files become those of the kernel before another program inherits their descriptors.
fn before_start<T>() -> Option<T> {
    share_files();
    None
}

type Strings = *const *const c_char;

intercept! {
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int =
        before_start();
    fn execv(path: *const c_char, arguments: Strings) -> c_int = before_start();
    fn execvp(file: *const c_char, arguments: Strings) -> c_int = before_start();
    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int =
        before_start();
    fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int = before_start();
    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char,
        actions: *const libc::posix_spawn_file_actions_t, attributes: *const libc::posix_spawnattr_t,
        arguments: Strings, environment: Strings
    ) -> c_int = before_start();
    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char,
        actions: *const libc::posix_spawn_file_actions_t, attributes: *const libc::posix_spawnattr_t,
        arguments: Strings, environment: Strings
    ) -> c_int = before_start();
    fn system(command: *const c_char) -> c_int = before_start();
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE = before_start();
}

/// `vfork` of the C library. A function that returns twice cannot be wrapped; `fork` has the same
/// results.
///
/// # Safety
/// As that of the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: as for the caller.
    unsafe { libc::fork() }
}
