//! libnornsctl: administration of the data transfer service for C programs.
//!
//! The functions have the names, arguments and results of NORNS's library of the same name;
//! `../include/nornsctl.h` describes each of them for C programs.
#![warn(missing_docs)]
#![allow(non_snake_case, reason = "names of the C interface")]

mod control;

pub use control::*;

use std::ffi::{c_char, c_uint, c_void};

use forebay_norns_api::c::{self, Resource, Stat, Task};
use forebay_norns_api::client::{self, Socket};

/// A region of this process's memory.
#[unsafe(no_mangle)]
pub extern "C" fn NORNS_MEMORY_REGION(addr: *mut c_void, size: usize) -> Resource {
    Resource::memory(addr, size)
}

/// A path in a dataspace of this node.
#[unsafe(no_mangle)]
pub extern "C" fn NORNS_LOCAL_PATH(nsid: *const c_char, path: *const c_char) -> Resource {
    Resource::local(nsid, path)
}

/// A path in a dataspace of another node.
#[unsafe(no_mangle)]
pub extern "C" fn NORNS_REMOTE_PATH(
    nsid: *const c_char,
    host: *const c_char,
    path: *const c_char,
) -> Resource {
    Resource::remote(nsid, host, path)
}

/// A path in a dataspace that all nodes share.
#[unsafe(no_mangle)]
pub extern "C" fn NORNS_SHARED_PATH(nsid: *const c_char, path: *const c_char) -> Resource {
    Resource::shared(nsid, path)
}

/// Initializes a task.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_iotask_init(
    task: *mut Task,
    operation: c_uint,
    source: *mut Resource,
    destination: *mut Resource,
) {
    // SAFETY: the caller guarantees it.
    unsafe { c::init_task(task, operation, source, destination) }
}

/// Submits a task.
///
/// # Safety
/// `task` is null or valid, with readable texts and regions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_submit(task: *mut Task) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { c::submit(Socket::Control, task) }
}

/// Waits until a task is over.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_wait(task: *mut Task, timeout: *const libc::timespec) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { c::wait(Socket::Control, task, timeout) }
}

/// Cancels a task.
///
/// # Safety
/// `task` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_cancel(task: *mut Task) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { c::cancel(Socket::Control, task) }
}

/// Reports the state of a task.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_error(task: *mut Task, stats: *mut Stat) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { c::error(Socket::Control, task, stats) }
}

/// The text of a code.
#[unsafe(no_mangle)]
pub extern "C" fn nornsctl_strerror(code: i32) -> *mut c_char {
    c::strerror(code)
}

/// Reads the configuration file again at the next call.
#[unsafe(no_mangle)]
pub extern "C" fn libnornsctl_reload_config_file() {
    client::forget_configuration();
}
