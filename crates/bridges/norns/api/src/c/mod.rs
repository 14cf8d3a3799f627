//! The types of C programs, as `norns.h` and `nornsctl.h` declare them, and the calls that both
//! libraries have.

mod calls;
mod region;
mod resource;
mod task;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

pub use libc::timespec;
pub use task::{cancel, error, init_task, strerror, submit, wait};

use crate::code::Code;
use crate::message::MAX_TEXT_BYTES;

/// `NORNS_PROCESS_MEMORY`
pub const PROCESS_MEMORY: u32 = 0x010_0000;
/// `NORNS_POSIX_PATH`
pub const POSIX_PATH: u32 = 0x020_0000;
/// `NORNS_NULL_RESOURCE`
pub const NULL_RESOURCE: u32 = 0x100_0000;
/// `R_LOCAL`
pub const LOCAL: u32 = 0x10;
/// `R_REMOTE`
pub const REMOTE: u32 = 0x20;
/// `R_SHARED`
pub const SHARED: u32 = 0x40;

/// `norns_memory_region_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryRegion {
    /// Address.
    pub b_addr: *mut c_void,
    /// Length in bytes.
    pub b_size: usize,
}

/// `norns_posix_path_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PosixPath {
    /// Dataspace.
    pub p_nsid: *const c_char,
    /// Node, or null.
    pub p_host: *const c_char,
    /// Path below the mount point.
    pub p_path: *const c_char,
}

/// The union in `norns_resource_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub union ResourceData {
    /// For [`PROCESS_MEMORY`].
    pub r_buffer: MemoryRegion,
    /// For [`POSIX_PATH`].
    pub r_posix_path: PosixPath,
}

/// `norns_resource_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Resource {
    /// Type and access.
    pub r_flags: u32,
    /// Contents by type.
    pub data: ResourceData,
}

/// `norns_stat_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State.
    pub st_status: i32,
    /// Result.
    pub st_task_error: i32,
    /// Error number of a system error.
    pub st_sys_errno: c_int,
    /// Bytes not transferred yet.
    pub st_pending: usize,
    /// All bytes.
    pub st_total: usize,
}

/// `norns_iotask_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Task {
    /// Number; 0 before the task is submitted.
    pub t_id: u32,
    /// Operation.
    pub t_op: c_uint,
    /// Source.
    pub t_src: Resource,
    /// Destination.
    pub t_dst: Resource,
    /// The state, once the task is over.
    pub status: Stat,
}

/// The text at `text`: `BADARGS` if it is null, not UTF-8 or too long.
///
/// # Safety
/// `text` is null or a string that ends with a null byte.
pub unsafe fn text(text: *const c_char) -> Result<String, Code> {
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { bytes(text) }?;
    String::from_utf8(bytes).map_err(|_| Code::BADARGS)
}

/// As [`text`], in any encoding.
///
/// # Safety
/// As for [`text`].
pub unsafe fn bytes(text: *const c_char) -> Result<Vec<u8>, Code> {
    if text.is_null() {
        return Err(Code::BADARGS);
    }
    // SAFETY: it is not null, and the caller guarantees the rest.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(Code::BADARGS);
    }
    Ok(bytes.to_vec())
}

/// The result of a C function. Panics do not unwind into C.
pub fn result(outcome: impl FnOnce() -> Result<(), Code> + std::panic::UnwindSafe) -> i32 {
    match std::panic::catch_unwind(outcome) {
        Ok(Ok(())) => Code::SUCCESS.0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::SNAFU.0,
    }
}
