//! libdatawarp: the C library by which a program stages files while its job runs.
//!
//! The functions have the names, arguments and results of the library of the same name; the
//! signatures are known from its public callers (AXL, libhio, Ioss, SPARTA).
//! `include/datawarp.h` describes each of them for C programs; it was written for this library.
//! Every call is one request to the service of the job ([`forebay_protocol::staging`]): that of
//! `forebay run` on an embedded pool, or of the agent of the host on a distributed pool.
//!
//! Paths are resolved, and read and write permissions checked, in the process of the caller and with
//! its permissions.
#![warn(missing_docs)]

mod calls;
mod failed;
mod paths;
mod stripes;

pub use calls::*;
pub use failed::*;
pub use stripes::*;

use std::ffi::c_int;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_net::job_socket::call_service;
use forebay_protocol::staging::{
    JOB_VARIABLE, JobRequest, SOCKET_VARIABLE, StagingCall, StagingReply,
};
use rustix::io::Errno;

/// Delay before a refused call is repeated.
const BUSY_BACKOFF: Duration = Duration::from_millis(50);
/// Timeout of a call that the service refuses because too many are in flight.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a call to the service of the job.
fn call(call: StagingCall) -> Result<StagingReply, Errno> {
    // Not in a job, or in one without a burst buffer.
    let socket = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
    let socket = PathBuf::from(socket.ok_or(Errno::NODEV)?);
    let job = std::env::var(JOB_VARIABLE).map_err(|_| Errno::NODEV)?;
    let call = JobRequest { job, call };
    let started = Instant::now();
    loop {
        match call_service(&socket, &call).map_err(|error| connection_errno(&error))? {
            StagingReply::Refused(libc::EAGAIN, _) if started.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(BUSY_BACKOFF);
            }
            StagingReply::Refused(errno, _) => return Err(Errno::from_raw_os_error(errno)),
            reply => return Ok(reply),
        }
    }
}

/// As [`call`], for a call whose reply has no contents.
fn call_done(message: StagingCall) -> Result<(), Errno> {
    call(message).map(|_| ())
}

/// Sets an output argument, unless it is null.
///
/// # Safety
/// `output` is null or to a value that may be written.
unsafe fn set<T>(output: *mut T, value: T) {
    if !output.is_null() {
        // SAFETY: it is not null, and the caller guarantees the rest.
        unsafe { *output = value };
    }
}

/// The error number of a failed connection to the service.
fn connection_errno(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        // The job has ended, or the service with it.
        io::ErrorKind::NotFound
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Errno::NOTCONN,
        // A list that is too long for one call.
        io::ErrorKind::InvalidInput => Errno::TOOBIG,
        io::ErrorKind::InvalidData => Errno::PROTO,
        _ => errno(error),
    }
}

/// The error number of a system error.
fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The result of a C function: 0, or the negative error number. Panics do not unwind into C.
fn result(outcome: impl FnOnce() -> Result<(), Errno> + std::panic::UnwindSafe) -> c_int {
    number(|| outcome().map(|()| 0))
}

fn number(outcome: impl FnOnce() -> Result<c_int, Errno> + std::panic::UnwindSafe) -> c_int {
    match std::panic::catch_unwind(outcome) {
        Ok(Ok(number)) => number,
        Ok(Err(errno)) => -errno.raw_os_error(),
        Err(_) => -libc::EIO,
    }
}
