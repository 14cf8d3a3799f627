//! Functions on files other than reads and writes.

#![allow(non_snake_case, reason = "names of MPI")]

use super::intercept;
use crate::files;
use crate::mpi::Handle;
use std::ffi::{c_char, c_int, c_void};

intercept! {
    MPI_File_open PMPI_File_open (comm: Handle, path: *const c_char, mode: c_int, info: Handle, file: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { files::open(comm, path, mode, info, file) };
    MPI_File_close PMPI_File_close (file: *mut c_void) =
        // SAFETY: as above.
        unsafe { files::close(file) };
    MPI_File_delete PMPI_File_delete (path: *const c_char, info: Handle) =
        // SAFETY: as above.
        unsafe { files::delete(path, info) };
    MPI_File_set_view PMPI_File_set_view (file: Handle, displacement: i64, etype: Handle, filetype: Handle, representation: *const c_char, info: Handle) =
        // SAFETY: as above.
        unsafe { files::set_view(file, displacement, etype, filetype, representation, info) };
    MPI_File_get_view PMPI_File_get_view (file: Handle, displacement: *mut i64, etype: *mut c_void, filetype: *mut c_void, representation: *mut c_char) =
        // SAFETY: as above.
        unsafe { files::get_view(file, displacement, etype, filetype, representation) };
    MPI_File_get_byte_offset PMPI_File_get_byte_offset (file: Handle, offset: i64, displacement: *mut i64) =
        // SAFETY: as above.
        unsafe { files::get_byte_offset(file, offset, displacement) };
    MPI_File_set_size PMPI_File_set_size (file: Handle, size: i64) = files::set_size(file, size);
    MPI_File_preallocate PMPI_File_preallocate (file: Handle, size: i64) =
        files::preallocate(file, size);
    MPI_File_get_size PMPI_File_get_size (file: Handle, size: *mut i64) =
        // SAFETY: as above.
        unsafe { files::get_size(file, size) };
    MPI_File_get_info PMPI_File_get_info (file: Handle, info: *mut c_void) =
        // SAFETY: as above.
        unsafe { files::get_info(file, info) };
    MPI_File_set_atomicity PMPI_File_set_atomicity (file: Handle, flag: c_int) =
        files::set_atomicity(file, flag);
    MPI_File_sync PMPI_File_sync (file: Handle) = files::sync(file);
    MPI_File_seek PMPI_File_seek (file: Handle, offset: i64, whence: c_int) =
        files::seek(file, offset, whence);
    MPI_File_seek_shared PMPI_File_seek_shared (file: Handle, offset: i64, whence: c_int) =
        files::seek_shared(file, offset, whence);
    MPI_File_get_position PMPI_File_get_position (file: Handle, offset: *mut i64) =
        // SAFETY: as above.
        unsafe { files::get_position(file, offset) };
    MPI_File_get_position_shared PMPI_File_get_position_shared (file: Handle, offset: *mut i64) =
        // SAFETY: as above.
        unsafe { files::get_position_shared(file, offset) };
}
