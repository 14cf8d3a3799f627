//! Programs that this one starts. `fork` is noticed by its handlers ([`crate::fork`]).

use crate::fork::{finish_writes, share_files};
use crate::next::intercept;
use libc::{c_char, c_int, pid_t};

/// Files become those of the kernel before another program inherits their descriptors.
fn before_start<T>() -> Option<T> {
    share_files();
    None
}

/// The process ends at once; its writes do not end with it.
fn before_end<T>() -> Option<T> {
    finish_writes();
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
    // These do not return.
    fn _exit(status: c_int) -> c_int = before_end();
    #[allow(non_snake_case, reason = "named after a function of the C library")]
    fn _Exit(status: c_int) -> c_int = before_end();
    fn abort() -> c_int = before_end();
    fn system(command: *const c_char) -> c_int = before_start();
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE = before_start();
}

/// Functions with a variable number of arguments, in which the C library uses descriptors itself. All
/// registers with arguments are kept.
#[cfg(all(target_arch = "x86_64", not(test)))]
macro_rules! intercept_variadic {
    ($($name:ident $before:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of the C library.")]
            ///
            /// # Safety
            /// As that of the C library.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    // With the return address these are 64 bytes: the stack stays aligned.
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "sub rsp, 128",
                    "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2",
                    "movups [rsp + 48], xmm3", "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5",
                    "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                    "call {before}",
                    "mov r11, rax",
                    "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]",
                    "movups xmm3, [rsp + 48]", "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]",
                    "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                    "add rsp, 128",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp r11",
                    before = sym $before,
                )
            }

            /// Makes files those of the kernel, and returns the address of the next function.
            #[allow(non_snake_case, reason = "named after a function of the C library")]
            extern "C" fn $before() -> *mut std::ffi::c_void {
                static NEXT: crate::next::Next =
                    crate::next::Next::new(concat!(stringify!($name), "\0"));
                crate::inside::enter(before_start::<()>);
                NEXT.address()
            }
        )*
    };
}

#[cfg(all(target_arch = "x86_64", not(test)))]
intercept_variadic! {
    dprintf before_dprintf
    __dprintf_chk before___dprintf_chk
    execl before_execl
    execlp before_execlp
    execle before_execle
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
