//! libnorns: asynchronous data transfers for C programs.
//!
//! The functions have the names, arguments and results of NORNS's library of the same name;
//! `../include/norns.h` describes each of them for C programs.
#![warn(missing_docs)]
#![allow(non_snake_case, reason = "names of the C interface")]

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
pub unsafe extern "C" fn norns_iotask_init(
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
pub unsafe extern "C" fn norns_submit(task: *mut Task) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { c::submit(Socket::Global, task) }
}

/// Waits until a task is over.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn norns_wait(task: *mut Task, timeout: *const libc::timespec) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { c::wait(Socket::Global, task, timeout) }
}

/// Cancels a task.
///
/// # Safety
/// `task` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn norns_cancel(task: *mut Task) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { c::cancel(Socket::Global, task) }
}

/// Reports the state of a task.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn norns_error(task: *mut Task, stats: *mut Stat) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { c::error(Socket::Global, task, stats) }
}

/// The text of a code.
#[unsafe(no_mangle)]
pub extern "C" fn norns_strerror(code: i32) -> *mut c_char {
    c::strerror(code)
}

/// Reads the configuration file again at the next call.
#[unsafe(no_mangle)]
pub extern "C" fn libnorns_reload_config_file() {
    client::forget_configuration();
}
