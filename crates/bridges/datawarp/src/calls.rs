//! The functions that start, revoke, query, wait for and stop stages.

use std::ffi::{c_char, c_int, c_uint};
use std::path::Path;

use forebay_protocol::staging::{PathKind, PathPair, StageOutTime, StagingCall, StagingReply};
use rustix::io::Errno;

use crate::paths::{given, given_list, instance_path, pair_in, pair_out, stage_path};
use crate::{call, call_done, result, set};

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
    call_done(StagingCall::StageIn(kind, vec![pair_in(kind, dw, pfs)?]))
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
        let pair = |file: &Path| {
            let name = file.file_name().ok_or(Errno::INVAL)?;
            pair_in(PathKind::File, &directory.join(name), file)
        };
        let pairs: Result<Vec<_>, Errno> = files.into_iter().map(pair).collect();
        call_done(StagingCall::StageIn(PathKind::File, pairs?))
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
    // SAFETY: as above.
    let pair = || pair_out(kind, dw, unsafe { given(pfs)? });
    change_stage_out(kind, stage_type, || Ok(vec![pair()?]), || Ok(vec![instance_path(kind, dw)?]))
}

/// Stages `pairs` out, or revokes or activates that for `paths`.
fn change_stage_out(
    kind: PathKind,
    stage_type: c_int,
    pairs: impl FnOnce() -> Result<Vec<PathPair>, Errno>,
    paths: impl FnOnce() -> Result<Vec<String>, Errno>,
) -> Result<(), Errno> {
    call_done(match stage_type {
        DW_STAGE_IMMEDIATE => StagingCall::StageOut(kind, pairs()?, StageOutTime::Now),
        DW_STAGE_AT_JOB_END => StagingCall::StageOut(kind, pairs()?, StageOutTime::JobEnd),
        DW_REVOKE_STAGE_AT_JOB_END => StagingCall::Revoke(kind, paths()?),
        DW_ACTIVATE_DEFERRED_STAGE => StagingCall::Activate(kind, paths()?),
        _ => return Err(Errno::INVAL),
    })
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
        let pairs = || {
            // SAFETY: the caller guarantees the validity of the string.
            let directory = unsafe { given(pfs_directory)? };
            let pair = |file: &&Path| {
                let name = file.file_name().ok_or(Errno::INVAL)?;
                pair_out(PathKind::File, file, &directory.join(name))
            };
            files.iter().map(pair).collect()
        };
        let path = |file: &&Path| instance_path(PathKind::File, file);
        let paths = || files.iter().map(path).collect();
        change_stage_out(PathKind::File, stage_type, pairs, paths)
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
        call_done(StagingCall::SetConcurrency(path, concurrent_stages))
    })
}

/// An argument that names one path or several.
trait PathArgument {
    /// The paths of stages.
    ///
    /// # Safety
    /// As for [`given`] and [`given_list`].
    unsafe fn stage_paths(self, kind: PathKind) -> Result<Vec<String>, Errno>;
}

/// A path.
type OnePath = *const c_char;
/// An array of paths that ends with a null pointer.
type PathList = *const *const c_char;

impl PathArgument for OnePath {
    unsafe fn stage_paths(self, kind: PathKind) -> Result<Vec<String>, Errno> {
        // SAFETY: the caller guarantees the validity of the string.
        Ok(vec![stage_path(kind, unsafe { given(self)? })?])
    }
}

impl PathArgument for PathList {
    unsafe fn stage_paths(self, kind: PathKind) -> Result<Vec<String>, Errno> {
        // SAFETY: the caller guarantees the validity of the strings.
        let files = unsafe { given_list(self)? };
        files.into_iter().map(|file| stage_path(kind, file)).collect()
    }
}

/// Functions that take one path or a list of paths.
macro_rules! stage_functions {
    ($($(#[$doc:meta])* $name:ident($argument:ty), $kind:ident, $message:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The argument is null, or a C string or an array of them that ends with a null pointer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(dw: $argument) -> c_int {
            result(|| {
                // SAFETY: the caller guarantees the validity of the strings.
                let paths = unsafe { dw.stage_paths(PathKind::$kind)? };
                call_done(StagingCall::$message(PathKind::$kind, paths))
            })
        }
    )*};
}

stage_functions! {
    /// Waits for a file's stage.
    dw_wait_file_stage(OnePath), File, Wait;
    /// Waits for the stages of a directory.
    dw_wait_directory_stage(OnePath), Directory, Wait;
    /// Waits for the stages of files.
    dw_wait_list_stage(PathList), File, Wait;
    /// Stops a file's stage.
    dw_terminate_file_stage(OnePath), File, Terminate;
    /// Stops the stages of a directory.
    dw_terminate_directory_stage(OnePath), Directory, Terminate;
    /// Stops the stages of files.
    dw_terminate_list_stage(PathList), File, Terminate;
}

/// Functions that count the stages of one path or of a list of paths.
macro_rules! query_functions {
    ($($(#[$doc:meta])* $name:ident($argument:ty), $kind:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The first argument is null, or a C string or an array of them that ends with a null
        /// pointer; the others are null or pointers to integers.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            dw: $argument,
            complete: *mut c_int,
            pending: *mut c_int,
            deferred: *mut c_int,
            failed: *mut c_int,
        ) -> c_int {
            result(|| {
                // SAFETY: the caller guarantees the validity of the strings.
                let paths = unsafe { dw.stage_paths(PathKind::$kind)? };
                let StagingReply::Counts(counts) = call(StagingCall::Query(PathKind::$kind, paths))?
                else {
                    return Err(Errno::PROTO);
                };
                let outputs = [
                    (complete, counts.complete),
                    (pending, counts.pending),
                    (deferred, counts.deferred),
                    (failed, counts.failed),
                ];
                for (output, count) in outputs {
                    // SAFETY: the caller guarantees the validity of the pointers.
                    unsafe { set(output, c_int::try_from(count).unwrap_or(c_int::MAX)) };
                }
                Ok(())
            })
        }
    )*};
}

query_functions! {
    /// Counts a file's stages by their state.
    dw_query_file_stage(OnePath), File;
    /// Counts the stages of a directory's files by their state.
    dw_query_directory_stage(OnePath), Directory;
    /// Counts the stages of files by their state.
    dw_query_list_stage(PathList), File;
}
