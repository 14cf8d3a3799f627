//! Statuses and requests of operations that this library has carried out.

use super::communicator::check;
use super::{MpiError, SUCCESS, functions, library};
use std::ffi::{c_int, c_void};

/// Sets the number of bytes in a status, unless it is `MPI_STATUS_IGNORE`.
///
/// # Safety
/// `status` is `MPI_STATUS_IGNORE` or points to a status of the MPI library.
pub unsafe fn set(status: *mut c_void, bytes: u64) {
    let library = library();
    if status.is_null() || status as usize == library.status_ignore {
        return;
    }
    // SAFETY: the status is valid by the contract of this function.
    unsafe {
        functions::status_set_elements_x(status, library.byte, bytes as i64);
        functions::status_set_cancelled(status, 0);
    }
}

/// Makes a request that is complete and has transferred `bytes`.
///
/// # Safety
/// `request` points to a request of the MPI library.
pub unsafe fn completed_request(request: *mut c_void, bytes: u64) -> Result<(), MpiError> {
    let state = Box::into_raw(Box::new(bytes));
    let mut handle = 0;
    // SAFETY: the callbacks have the types of MPI; the state lives until `free` is called.
    check(unsafe { functions::grequest_start(query, free, cancel, state.cast(), &mut handle) })?;
    let width = library().flavour.width();
    // SAFETY: the program's request has the width of a handle, whose bytes come first.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const handle).cast(), request.cast::<u8>(), width)
    };
    // SAFETY: the request was started above.
    check(unsafe { functions::grequest_complete(handle) })
}

unsafe extern "C" fn query(state: *mut c_void, status: *mut c_void) -> c_int {
    // SAFETY: the state is that of `completed_request`, and the status is one of MPI.
    unsafe { set(status, *state.cast::<u64>()) };
    SUCCESS
}

unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: the state is that of `completed_request`, and is freed once.
    drop(unsafe { Box::from_raw(state.cast::<u64>()) });
    SUCCESS
}

/// A complete operation cannot be cancelled, which is no error.
unsafe extern "C" fn cancel(_state: *mut c_void, _complete: c_int) -> c_int {
    SUCCESS
}

/// A status of the MPI library, whatever its layout.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Status([u8; 64]);

impl Status {
    /// A status for a call to fill in.
    pub fn new() -> Status {
        Status([0; 64])
    }

    /// Its address.
    pub fn address(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    /// Bytes that were transferred.
    pub fn bytes(&self) -> u64 {
        let mut count = 0;
        // SAFETY: the status was filled in by the MPI library.
        let code = unsafe {
            functions::get_elements_x((&raw const self.0).cast(), library().byte, &mut count)
        };
        if code == SUCCESS { u64::try_from(count).unwrap_or(0) } else { 0 }
    }
}
