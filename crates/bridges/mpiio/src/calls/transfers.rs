//! Reads and writes: each combination of direction, place, participation and completion.

#![allow(non_snake_case, reason = "names of MPI")]

use super::intercept;
use crate::file::transfer::{Completion, Direction, Participation, Place, Request};
use crate::files::{end_transfer, transfer};
use crate::mpi::Handle;
use std::ffi::{c_int, c_void};

intercept! {
    MPI_File_read_at PMPI_File_read_at (file: Handle, offset: i64, buffer: *mut c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Independent }, buffer, i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_read_at_all PMPI_File_read_at_all (file: Handle, offset: i64, buffer: *mut c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Collective }, buffer, i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_iread_at PMPI_File_iread_at (file: Handle, offset: i64, buffer: *mut c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Independent }, buffer, i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_iread_at_all PMPI_File_iread_at_all (file: Handle, offset: i64, buffer: *mut c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Collective }, buffer, i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_read_at_all_begin PMPI_File_read_at_all_begin (file: Handle, offset: i64, buffer: *mut c_void, count: c_int, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Collective }, buffer, i64::from(count), datatype, Completion::Split) };
    MPI_File_read PMPI_File_read (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Independent }, buffer, i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_read_all PMPI_File_read_all (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Collective }, buffer, i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_iread PMPI_File_iread (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Independent }, buffer, i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_iread_all PMPI_File_iread_all (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Collective }, buffer, i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_read_all_begin PMPI_File_read_all_begin (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Collective }, buffer, i64::from(count), datatype, Completion::Split) };
    MPI_File_read_shared PMPI_File_read_shared (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Shared, participation: Participation::Independent }, buffer, i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_iread_shared PMPI_File_iread_shared (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Shared, participation: Participation::Independent }, buffer, i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_read_ordered PMPI_File_read_ordered (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Ordered, participation: Participation::Collective }, buffer, i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_read_ordered_begin PMPI_File_read_ordered_begin (file: Handle, buffer: *mut c_void, count: c_int, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Ordered, participation: Participation::Collective }, buffer, i64::from(count), datatype, Completion::Split) };
    MPI_File_read_at_c PMPI_File_read_at_c (file: Handle, offset: i64, buffer: *mut c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Independent }, buffer, count, datatype, Completion::Status(status)) };
    MPI_File_read_at_all_c PMPI_File_read_at_all_c (file: Handle, offset: i64, buffer: *mut c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Collective }, buffer, count, datatype, Completion::Status(status)) };
    MPI_File_iread_at_c PMPI_File_iread_at_c (file: Handle, offset: i64, buffer: *mut c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Independent }, buffer, count, datatype, Completion::Request(request)) };
    MPI_File_iread_at_all_c PMPI_File_iread_at_all_c (file: Handle, offset: i64, buffer: *mut c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Collective }, buffer, count, datatype, Completion::Request(request)) };
    MPI_File_read_at_all_begin_c PMPI_File_read_at_all_begin_c (file: Handle, offset: i64, buffer: *mut c_void, count: i64, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Explicit(offset), participation: Participation::Collective }, buffer, count, datatype, Completion::Split) };
    MPI_File_read_c PMPI_File_read_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Independent }, buffer, count, datatype, Completion::Status(status)) };
    MPI_File_read_all_c PMPI_File_read_all_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Collective }, buffer, count, datatype, Completion::Status(status)) };
    MPI_File_iread_c PMPI_File_iread_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Independent }, buffer, count, datatype, Completion::Request(request)) };
    MPI_File_iread_all_c PMPI_File_iread_all_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Collective }, buffer, count, datatype, Completion::Request(request)) };
    MPI_File_read_all_begin_c PMPI_File_read_all_begin_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Individual, participation: Participation::Collective }, buffer, count, datatype, Completion::Split) };
    MPI_File_read_shared_c PMPI_File_read_shared_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Shared, participation: Participation::Independent }, buffer, count, datatype, Completion::Status(status)) };
    MPI_File_iread_shared_c PMPI_File_iread_shared_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Shared, participation: Participation::Independent }, buffer, count, datatype, Completion::Request(request)) };
    MPI_File_read_ordered_c PMPI_File_read_ordered_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Ordered, participation: Participation::Collective }, buffer, count, datatype, Completion::Status(status)) };
    MPI_File_read_ordered_begin_c PMPI_File_read_ordered_begin_c (file: Handle, buffer: *mut c_void, count: i64, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Read, place: Place::Ordered, participation: Participation::Collective }, buffer, count, datatype, Completion::Split) };
    MPI_File_read_at_all_end PMPI_File_read_at_all_end (file: Handle, buffer: *mut c_void, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { end_transfer(file, status) };
    MPI_File_read_all_end PMPI_File_read_all_end (file: Handle, buffer: *mut c_void, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { end_transfer(file, status) };
    MPI_File_read_ordered_end PMPI_File_read_ordered_end (file: Handle, buffer: *mut c_void, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { end_transfer(file, status) };
    MPI_File_write_at PMPI_File_write_at (file: Handle, offset: i64, buffer: *const c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Independent }, buffer.cast_mut(), i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_write_at_all PMPI_File_write_at_all (file: Handle, offset: i64, buffer: *const c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Collective }, buffer.cast_mut(), i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_iwrite_at PMPI_File_iwrite_at (file: Handle, offset: i64, buffer: *const c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Independent }, buffer.cast_mut(), i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_iwrite_at_all PMPI_File_iwrite_at_all (file: Handle, offset: i64, buffer: *const c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Collective }, buffer.cast_mut(), i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_write_at_all_begin PMPI_File_write_at_all_begin (file: Handle, offset: i64, buffer: *const c_void, count: c_int, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Collective }, buffer.cast_mut(), i64::from(count), datatype, Completion::Split) };
    MPI_File_write PMPI_File_write (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Independent }, buffer.cast_mut(), i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_write_all PMPI_File_write_all (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Collective }, buffer.cast_mut(), i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_iwrite PMPI_File_iwrite (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Independent }, buffer.cast_mut(), i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_iwrite_all PMPI_File_iwrite_all (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Collective }, buffer.cast_mut(), i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_write_all_begin PMPI_File_write_all_begin (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Collective }, buffer.cast_mut(), i64::from(count), datatype, Completion::Split) };
    MPI_File_write_shared PMPI_File_write_shared (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Shared, participation: Participation::Independent }, buffer.cast_mut(), i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_iwrite_shared PMPI_File_iwrite_shared (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Shared, participation: Participation::Independent }, buffer.cast_mut(), i64::from(count), datatype, Completion::Request(request)) };
    MPI_File_write_ordered PMPI_File_write_ordered (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Ordered, participation: Participation::Collective }, buffer.cast_mut(), i64::from(count), datatype, Completion::Status(status)) };
    MPI_File_write_ordered_begin PMPI_File_write_ordered_begin (file: Handle, buffer: *const c_void, count: c_int, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Ordered, participation: Participation::Collective }, buffer.cast_mut(), i64::from(count), datatype, Completion::Split) };
    MPI_File_write_at_c PMPI_File_write_at_c (file: Handle, offset: i64, buffer: *const c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Independent }, buffer.cast_mut(), count, datatype, Completion::Status(status)) };
    MPI_File_write_at_all_c PMPI_File_write_at_all_c (file: Handle, offset: i64, buffer: *const c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Collective }, buffer.cast_mut(), count, datatype, Completion::Status(status)) };
    MPI_File_iwrite_at_c PMPI_File_iwrite_at_c (file: Handle, offset: i64, buffer: *const c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Independent }, buffer.cast_mut(), count, datatype, Completion::Request(request)) };
    MPI_File_iwrite_at_all_c PMPI_File_iwrite_at_all_c (file: Handle, offset: i64, buffer: *const c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Collective }, buffer.cast_mut(), count, datatype, Completion::Request(request)) };
    MPI_File_write_at_all_begin_c PMPI_File_write_at_all_begin_c (file: Handle, offset: i64, buffer: *const c_void, count: i64, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Explicit(offset), participation: Participation::Collective }, buffer.cast_mut(), count, datatype, Completion::Split) };
    MPI_File_write_c PMPI_File_write_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Independent }, buffer.cast_mut(), count, datatype, Completion::Status(status)) };
    MPI_File_write_all_c PMPI_File_write_all_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Collective }, buffer.cast_mut(), count, datatype, Completion::Status(status)) };
    MPI_File_iwrite_c PMPI_File_iwrite_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Independent }, buffer.cast_mut(), count, datatype, Completion::Request(request)) };
    MPI_File_iwrite_all_c PMPI_File_iwrite_all_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Collective }, buffer.cast_mut(), count, datatype, Completion::Request(request)) };
    MPI_File_write_all_begin_c PMPI_File_write_all_begin_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Individual, participation: Participation::Collective }, buffer.cast_mut(), count, datatype, Completion::Split) };
    MPI_File_write_shared_c PMPI_File_write_shared_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Shared, participation: Participation::Independent }, buffer.cast_mut(), count, datatype, Completion::Status(status)) };
    MPI_File_iwrite_shared_c PMPI_File_iwrite_shared_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle, request: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Shared, participation: Participation::Independent }, buffer.cast_mut(), count, datatype, Completion::Request(request)) };
    MPI_File_write_ordered_c PMPI_File_write_ordered_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Ordered, participation: Participation::Collective }, buffer.cast_mut(), count, datatype, Completion::Status(status)) };
    MPI_File_write_ordered_begin_c PMPI_File_write_ordered_begin_c (file: Handle, buffer: *const c_void, count: i64, datatype: Handle) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { transfer(file, &Request { direction: Direction::Write, place: Place::Ordered, participation: Participation::Collective }, buffer.cast_mut(), count, datatype, Completion::Split) };
    MPI_File_write_at_all_end PMPI_File_write_at_all_end (file: Handle, buffer: *const c_void, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { end_transfer(file, status) };
    MPI_File_write_all_end PMPI_File_write_all_end (file: Handle, buffer: *const c_void, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { end_transfer(file, status) };
    MPI_File_write_ordered_end PMPI_File_write_ordered_end (file: Handle, buffer: *const c_void, status: *mut c_void) =
        // SAFETY: the arguments are those of the caller, as MPI requires them.
        unsafe { end_transfer(file, status) };
}
