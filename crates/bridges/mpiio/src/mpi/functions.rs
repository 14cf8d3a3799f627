//! Functions of the MPI library that this library calls, by their PMPI names.

use super::Handle;
use super::symbols::Symbol;
use std::ffi::{c_char, c_int, c_void};

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(
            #[doc = concat!("`", $symbol, "`.")]
            ///
            /// # Safety
            /// As that of the MPI library.
            #[allow(clippy::too_many_arguments, reason = "the functions of MPI have that many")]
            pub unsafe fn $name($($argument: $type),*) -> c_int {
                static SYMBOL: Symbol = Symbol::new(concat!($symbol, "\0"));
                type Function = unsafe extern "C" fn($($type),*) -> c_int;
                // SAFETY: the function of this name in the MPI library has this type, and the caller
                // answers for the arguments.
                unsafe {
                    let function = std::mem::transmute::<*mut c_void, Function>(SYMBOL.address());
                    function($($argument),*)
                }
            }
        )*
    };
}

/// Callback of a generalized request that fills in its status.
pub type QueryFunction = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
/// Callback of a generalized request that frees its state.
pub type FreeFunction = unsafe extern "C" fn(*mut c_void) -> c_int;
/// Callback of a generalized request that is cancelled.
pub type CancelFunction = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

functions! {
    query_thread = "PMPI_Query_thread" (provided: *mut c_int);
    comm_rank = "PMPI_Comm_rank" (comm: Handle, rank: *mut c_int);
    comm_size = "PMPI_Comm_size" (comm: Handle, size: *mut c_int);
    comm_dup = "PMPI_Comm_dup" (comm: Handle, new: *mut Handle);
    comm_free = "PMPI_Comm_free" (comm: *mut Handle);
    comm_compare = "PMPI_Comm_compare" (one: Handle, other: Handle, result: *mut c_int);
    barrier = "PMPI_Barrier" (comm: Handle);
    bcast = "PMPI_Bcast" (buffer: *mut c_void, count: c_int, datatype: Handle, root: c_int, comm: Handle);
    allreduce = "PMPI_Allreduce" (send: *const c_void, receive: *mut c_void, count: c_int, datatype: Handle, operation: Handle, comm: Handle);
    allgather = "PMPI_Allgather" (send: *const c_void, send_count: c_int, send_type: Handle, receive: *mut c_void, receive_count: c_int, receive_type: Handle, comm: Handle);
    allgatherv = "PMPI_Allgatherv" (send: *const c_void, send_count: c_int, send_type: Handle, receive: *mut c_void, receive_counts: *const c_int, displacements: *const c_int, receive_type: Handle, comm: Handle);
    info_get = "PMPI_Info_get" (info: Handle, key: *const c_char, length: c_int, value: *mut c_char, flag: *mut c_int);
    info_set = "PMPI_Info_set" (info: Handle, key: *const c_char, value: *const c_char);
    status_set_elements_x = "PMPI_Status_set_elements_x" (status: *mut c_void, datatype: Handle, count: i64);
    status_set_cancelled = "PMPI_Status_set_cancelled" (status: *mut c_void, flag: c_int);
    grequest_start = "PMPI_Grequest_start" (query: QueryFunction, free: FreeFunction, cancel: CancelFunction, state: *mut c_void, request: *mut Handle);
    grequest_complete = "PMPI_Grequest_complete" (request: Handle);
    type_size_x = "PMPI_Type_size_x" (datatype: Handle, size: *mut i64);
    type_get_extent_x = "PMPI_Type_get_extent_x" (datatype: Handle, lower_bound: *mut i64, extent: *mut i64);
    type_get_name = "PMPI_Type_get_name" (datatype: Handle, name: *mut c_char, length: *mut c_int);
    type_get_envelope = "PMPI_Type_get_envelope" (datatype: Handle, integers: *mut c_int, addresses: *mut c_int, datatypes: *mut c_int, combiner: *mut c_int);
    type_get_contents = "PMPI_Type_get_contents" (datatype: Handle, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int, integers: *mut c_int, addresses: *mut isize, datatypes: *mut c_void);
    type_dup = "PMPI_Type_dup" (datatype: Handle, new: *mut Handle);
    type_free = "PMPI_Type_free" (datatype: *mut Handle);
    file_call_errhandler = "PMPI_File_call_errhandler" (file: Handle, code: c_int);
    get_elements_x = "PMPI_Get_elements_x" (status: *const c_void, datatype: Handle, count: *mut i64);
    file_open = "PMPI_File_open" (comm: Handle, path: *const c_char, mode: c_int, info: Handle, file: *mut c_void);
    file_delete = "PMPI_File_delete" (path: *const c_char, info: Handle);
    file_close = "PMPI_File_close" (file: *mut c_void);
    file_set_view = "PMPI_File_set_view" (file: Handle, displacement: i64, etype: Handle, filetype: Handle, representation: *const c_char, info: Handle);
    file_get_view = "PMPI_File_get_view" (file: Handle, displacement: *mut i64, etype: *mut Handle, filetype: *mut Handle, representation: *mut c_char);
    file_get_info = "PMPI_File_get_info" (file: Handle, info: *mut c_void);
    file_set_atomicity = "PMPI_File_set_atomicity" (file: Handle, flag: c_int);
    file_seek = "PMPI_File_seek" (file: Handle, offset: i64, whence: c_int);
    file_sync = "PMPI_File_sync" (file: Handle);
    file_read_at = "PMPI_File_read_at" (file: Handle, offset: i64, buffer: *mut c_void, count: c_int, datatype: Handle, status: *mut c_void);
    file_read_at_all = "PMPI_File_read_at_all" (file: Handle, offset: i64, buffer: *mut c_void, count: c_int, datatype: Handle, status: *mut c_void);
    file_write_at = "PMPI_File_write_at" (file: Handle, offset: i64, buffer: *const c_void, count: c_int, datatype: Handle, status: *mut c_void);
    file_write_at_all = "PMPI_File_write_at_all" (file: Handle, offset: i64, buffer: *const c_void, count: c_int, datatype: Handle, status: *mut c_void);
}
