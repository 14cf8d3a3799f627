//! The part of `slurm/spank.h` that the plugin uses.

use std::ffi::{c_char, c_int, c_void};

/// Slurm 22.05.8, as `SLURM_VERSION_NUMBER`. Slurm loads plugins of its own major version only.
pub const SLURM_VERSION: u32 = (22 << 16) | (5 << 8) | 8;

/// `ESPANK_SUCCESS`.
pub const ESPANK_SUCCESS: c_int = 0;

/// `spank_t`.
pub type Handle = *mut c_void;

/// `enum spank_context`.
pub enum Context {
    /// `S_CTX_REMOTE`: `slurmstepd`.
    Remote = 2,
}

/// `enum spank_item`.
pub enum Item {
    /// `S_JOB_ID`, a `uint32_t`.
    JobId = 2,
}

/// `struct spank_option`.
#[repr(C)]
pub struct Option {
    pub name: *const c_char,
    pub arginfo: *const c_char,
    pub usage: *const c_char,
    pub has_arg: c_int,
    pub val: c_int,
    pub cb: std::option::Option<extern "C" fn(c_int, *const c_char, c_int) -> c_int>,
}

/// Options in static memory.
pub struct OptionTable<const N: usize>(pub [Option; N]);

// SAFETY: the pointers lead to string literals, and nothing is modified.
unsafe impl<const N: usize> Sync for OptionTable<N> {}

unsafe extern "C" {
    pub fn spank_context() -> c_int;
    pub fn spank_option_register(spank: Handle, option: *const Option) -> c_int;
    pub fn spank_get_item(spank: Handle, item: c_int, ...) -> c_int;
    pub fn spank_setenv(
        spank: Handle,
        name: *const c_char,
        value: *const c_char,
        overwrite: c_int,
    ) -> c_int;
    pub fn slurm_error(format: *const c_char, ...);
}
