//! The functions that start, revoke, query, wait for and stop stages.

use std::ffi::{c_char, c_int, c_uint};

use forebay_protocol::staging::{PathKind, StageCounts, StageOutTime, StagingCall, StagingReply};
use rustix::io::Errno;

use crate::paths::{given, given_list, instance_path, pair_in, pair_out, stage_path};
use crate::{call, result};

/// Stage as soon as possible.
pub const DW_STAGE_IMMEDIATE: c_int = 0;
/// Stage when the job ends, however it ends.
pub const DW_STAGE_AT_JOB_END: c_int = 1;
/// Do not stage when the job ends.
pub const DW_REVOKE_STAGE_AT_JOB_END: c_int = 2;
/// Stage now what is deferred until the job ends.
pub const DW_ACTIVATE_DEFERRED_STAGE: c_int = 3;

/// Stages a file in.
///
/// # Safety
/// The arguments are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_stage_file_in(dw: *const c_char, pfs: *const c_char) -> c_int {
    // SAFETY: the caller guarantees the validity of the strings.
    result(|| unsafe { stage_in(PathKind::File, dw, pfs) })
}

/// Stages a directory in, with everything below it.
///
/// # Safety
/// The arguments are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_stage_directory_in(dw: *const c_char, pfs: *const c_char) -> c_int {
    // SAFETY: the caller guarantees the validity of the strings.
    result(|| unsafe { stage_in(PathKind::Directory, dw, pfs) })
}

unsafe fn stage_in(kind: PathKind, dw: *const c_char, pfs: *const c_char) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the validity of the strings.
    let (dw, pfs) = unsafe { (given(dw)?, given(pfs)?) };
    call(StagingCall::StageIn(kind, vec![pair_in(kind, dw, pfs)?])).map(|_| ())
}

/// Stages files into a directory, each under its own name.
///
/// # Safety
/// `dw_directory` is null or a C string, `pfs` null or an array of C strings that ends with a null
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_stage_list_in(
    dw_directory: *const c_char,
    pfs: *const *const c_char,
) -> c_int {
    result(|| {
        // SAFETY: the caller guarantees the validity of the strings.
        let (directory, files) = unsafe { (given(dw_directory)?, given_list(pfs)?) };
        let pair = |file: &std::path::Path| {
            let name = file.file_name().ok_or(Errno::INVAL)?;
            pair_in(PathKind::File, &directory.join(name), file)
        };
        let pairs: Result<Vec<_>, Errno> = files.into_iter().map(pair).collect();
        call(StagingCall::StageIn(PathKind::File, pairs?)).map(|_| ())
    })
}

/// Stages a file out, or revokes or activates that.
///
/// # Safety
/// The first two arguments are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_stage_file_out(
    dw: *const c_char,
    pfs: *const c_char,
    stage_type: c_int,
) -> c_int {
    // SAFETY: the caller guarantees the validity of the strings.
    result(|| unsafe { stage_out(PathKind::File, dw, pfs, stage_type) })
}

/// Stages a directory out with everything below it, or revokes or activates that.
///
/// # Safety
/// The first two arguments are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_stage_directory_out(
    dw: *const c_char,
    pfs: *const c_char,
    stage_type: c_int,
) -> c_int {
    // SAFETY: the caller guarantees the validity of the strings.
    result(|| unsafe { stage_out(PathKind::Directory, dw, pfs, stage_type) })
}

unsafe fn stage_out(
    kind: PathKind,
    dw: *const c_char,
    pfs: *const c_char,
    stage_type: c_int,
) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the validity of the string.
    let dw = unsafe { given(dw)? };
    let stage_out = |when| {
        // SAFETY: the caller guarantees the validity of the string.
        let pfs = unsafe { given(pfs)? };
        Ok(StagingCall::StageOut(kind, vec![pair_out(kind, dw, pfs)?], when))
    };
    let message = match stage_type {
        DW_STAGE_IMMEDIATE => stage_out(StageOutTime::Now)?,
        DW_STAGE_AT_JOB_END => stage_out(StageOutTime::JobEnd)?,
        DW_REVOKE_STAGE_AT_JOB_END => StagingCall::Revoke(kind, vec![instance_path(kind, dw)?]),
        DW_ACTIVATE_DEFERRED_STAGE => StagingCall::Activate(kind, vec![instance_path(kind, dw)?]),
        _ => return Err(Errno::INVAL),
    };
    call(message).map(|_| ())
}

/// Stages files out into a directory, each under its own name, or revokes or activates that.
///
/// # Safety
/// `dw` is null or an array of C strings that ends with a null pointer, `pfs_directory` null or a
/// C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_stage_list_out(
    dw: *const *const c_char,
    pfs_directory: *const c_char,
    stage_type: c_int,
) -> c_int {
    result(|| {
        // SAFETY: the caller guarantees the validity of the strings.
        let files = unsafe { given_list(dw)? };
        let stage_out = |when| {
            // SAFETY: the caller guarantees the validity of the string.
            let directory = unsafe { given(pfs_directory)? };
            let pair = |file: &&std::path::Path| {
                let name = file.file_name().ok_or(Errno::INVAL)?;
                pair_out(PathKind::File, file, &directory.join(name))
            };
            let pairs: Result<Vec<_>, Errno> = files.iter().map(pair).collect();
            Ok(StagingCall::StageOut(PathKind::File, pairs?, when))
        };
        let paths = || -> Result<Vec<_>, Errno> {
            let path = |file: &&std::path::Path| instance_path(PathKind::File, file);
            files.iter().map(path).collect()
        };
        let message = match stage_type {
            DW_STAGE_IMMEDIATE => stage_out(StageOutTime::Now)?,
            DW_STAGE_AT_JOB_END => stage_out(StageOutTime::JobEnd)?,
            DW_REVOKE_STAGE_AT_JOB_END => StagingCall::Revoke(PathKind::File, paths()?),
            DW_ACTIVATE_DEFERRED_STAGE => StagingCall::Activate(PathKind::File, paths()?),
            _ => return Err(Errno::INVAL),
        };
        call(message).map(|_| ())
    })
}

/// Limits the number of concurrent stages of an instance.
///
/// # Safety
/// `dw_instance` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_set_stage_concurrency(
    dw_instance: *const c_char,
    concurrent_stages: c_uint,
) -> c_int {
    result(|| {
        // SAFETY: the caller guarantees the validity of the string.
        let path = instance_path(PathKind::Directory, unsafe { given(dw_instance)? })?;
        call(StagingCall::SetConcurrency(path, concurrent_stages)).map(|_| ())
    })
}

/// The output arguments of a query; pointers may be null.
struct QueryOutputs(*mut c_int, *mut c_int, *mut c_int, *mut c_int);

impl QueryOutputs {
    /// # Safety
    /// The pointers are null or to integers that may be written.
    unsafe fn write_counts(&self, counts: &StageCounts) {
        let each = [
            (self.0, counts.complete),
            (self.1, counts.pending),
            (self.2, counts.deferred),
            (self.3, counts.failed),
        ];
        for (to, count) in each {
            if !to.is_null() {
                // SAFETY: it is not null, and the caller guarantees the rest.
                unsafe { *to = c_int::try_from(count).unwrap_or(c_int::MAX) };
            }
        }
    }
}

unsafe fn query(kind: PathKind, paths: Vec<String>, outputs: &QueryOutputs) -> Result<(), Errno> {
    match call(StagingCall::Query(kind, paths))? {
        StagingReply::Counts(counts) => {
            // SAFETY: the caller guarantees the validity of the pointers.
            unsafe { outputs.write_counts(&counts) };
            Ok(())
        }
        _ => Err(Errno::PROTO),
    }
}

/// Functions that take one path or a list of paths.
macro_rules! stage_functions {
    ($(#[$doc:meta])* $name:ident, $kind:expr, one, $message:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The argument is null or a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dw: *const c_char) -> c_int {
            result(|| {
                // SAFETY: the caller guarantees the validity of the string.
                let path = stage_path($kind, unsafe { given(dw)? })?;
                call(StagingCall::$message($kind, vec![path])).map(|_| ())
            })
        }
    };
    ($(#[$doc:meta])* $name:ident, $kind:expr, list, $message:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The argument is null or an array of C strings that ends with a null pointer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dw: *const *const c_char) -> c_int {
            result(|| {
                // SAFETY: the caller guarantees the validity of the strings.
                let paths = unsafe { staged_list(dw)? };
                call(StagingCall::$message($kind, paths)).map(|_| ())
            })
        }
    };
    ($(#[$doc:meta])* $name:ident, $kind:expr, query) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The first argument is null or a C string, the others null or pointers to integers.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            dw: *const c_char,
            complete: *mut c_int,
            pending: *mut c_int,
            deferred: *mut c_int,
            failed: *mut c_int,
        ) -> c_int {
            result(|| {
                // SAFETY: the caller guarantees the validity of the string.
                let path = stage_path($kind, unsafe { given(dw)? })?;
                let outputs = QueryOutputs(complete, pending, deferred, failed);
                // SAFETY: the caller guarantees the validity of the pointers.
                unsafe { query($kind, vec![path], &outputs) }
            })
        }
    };
}

/// # Safety
/// As for [`given_list`].
unsafe fn staged_list(dw: *const *const c_char) -> Result<Vec<String>, Errno> {
    // SAFETY: the caller guarantees the validity of the strings.
    let files = unsafe { given_list(dw)? };
    let path = |file: &std::path::Path| stage_path(PathKind::File, file);
    files.into_iter().map(path).collect()
}

stage_functions!(
    /// Counts a file's stages by their state.
    dw_query_file_stage, PathKind::File, query
);
stage_functions!(
    /// Counts the stages of a directory's files by their state.
    dw_query_directory_stage, PathKind::Directory, query
);
stage_functions!(
    /// Waits for a file's stage.
    dw_wait_file_stage, PathKind::File, one, Wait
);
stage_functions!(
    /// Waits for the stages of a directory.
    dw_wait_directory_stage, PathKind::Directory, one, Wait
);
stage_functions!(
    /// Waits for the stages of files.
    dw_wait_list_stage, PathKind::File, list, Wait
);
stage_functions!(
    /// Stops a file's stage.
    dw_terminate_file_stage, PathKind::File, one, Terminate
);
stage_functions!(
    /// Stops the stages of a directory.
    dw_terminate_directory_stage, PathKind::Directory, one, Terminate
);
stage_functions!(
    /// Stops the stages of files.
    dw_terminate_list_stage, PathKind::File, list, Terminate
);

/// Counts the stages of files by their state.
///
/// # Safety
/// The first argument is null or an array of C strings that ends with a null pointer, the others
/// null or pointers to integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_query_list_stage(
    dw: *const *const c_char,
    complete: *mut c_int,
    pending: *mut c_int,
    deferred: *mut c_int,
    failed: *mut c_int,
) -> c_int {
    result(|| {
        // SAFETY: the caller guarantees the validity of the strings.
        let paths = unsafe { staged_list(dw)? };
        let outputs = QueryOutputs(complete, pending, deferred, failed);
        // SAFETY: the caller guarantees the validity of the pointers.
        unsafe { query(PathKind::File, paths, &outputs) }
    })
}
