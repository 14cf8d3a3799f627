//! The MPI library of the process: Open MPI or MPICH, found when the first call is made.
//!
//! Handles of MPI are pointers in Open MPI and integers in MPICH. Here each is a machine word,
//! which is passed on as it came: on 64-bit processors the calling convention passes an integer in
//! the low half of a register or of a stack slot whose high half is not defined. Only comparisons
//! and values read from memory depend on the library ([`Flavour::width`]).

pub mod communicator;
pub mod constructor;
pub mod datatype;
pub mod environment;
pub mod functions;
pub mod info;
pub mod status;
pub mod symbols;

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("handles of MPI are passed as machine words of 64 bits, low half first");

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

/// A handle of MPI: a pointer, or an integer whose high half is not defined.
pub type Handle = usize;

/// `MPI_SUCCESS` of all MPI libraries.
pub const SUCCESS: c_int = 0;
/// Access modes of `MPI_File_open`, which are the same in both libraries.
pub const MODE_RDONLY: c_int = 2;
/// `MPI_MODE_WRONLY`.
pub const MODE_WRONLY: c_int = 4;
/// `MPI_MODE_DELETE_ON_CLOSE`.
pub const MODE_DELETE_ON_CLOSE: c_int = 16;
/// `MPI_MODE_APPEND`.
pub const MODE_APPEND: c_int = 128;
/// `MPI_MODE_SEQUENTIAL`.
pub const MODE_SEQUENTIAL: c_int = 256;
/// `MPI_SEEK_SET`.
pub const SEEK_SET: c_int = 600;
/// `MPI_SEEK_CUR`.
pub const SEEK_CUR: c_int = 602;
/// `MPI_SEEK_END`.
pub const SEEK_END: c_int = 604;

/// An error code or class of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiError(pub c_int);

/// The MPI library of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Open MPI, or a library with its binary interface.
    OpenMpi,
    /// MPICH, or a library with its binary interface.
    Mpich,
}

/// Predefined handles and numbers of the MPI library of the process.
#[derive(Debug)]
pub struct Library {
    /// Its binary interface.
    pub flavour: Flavour,
    /// `MPI_COMM_WORLD`.
    pub comm_world: Handle,
    /// `MPI_BYTE`.
    pub byte: Handle,
    /// `MPI_UINT64_T`.
    pub uint64: Handle,
    /// `MPI_MAX`.
    pub max: Handle,
    /// `MPI_INFO_NULL`.
    pub info_null: Handle,
    /// `MPI_STATUS_IGNORE`.
    pub status_ignore: usize,
    /// Error class `MPI_ERR_IO`.
    pub error_io: c_int,
    /// Error class `MPI_ERR_ARG`.
    pub error_argument: c_int,
}

impl Flavour {
    /// Bytes of a handle in memory.
    pub fn width(self) -> usize {
        match self {
            Flavour::OpenMpi => 8,
            Flavour::Mpich => 4,
        }
    }

    /// A handle without undefined bits, which can be compared.
    pub fn exact(self, handle: Handle) -> Handle {
        match self {
            Flavour::OpenMpi => handle,
            Flavour::Mpich => handle & 0xffff_ffff,
        }
    }
}

/// The MPI library of this process.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        symbols::find_object(c"ompi_mpi_comm_world")
            .map_or_else(mpich, |world| open_mpi(world as usize))
    })
}

fn open_mpi(comm_world: Handle) -> Library {
    let object = |name: &CStr| symbols::find_object(name).map_or(0, |address| address as usize);
    Library {
        flavour: Flavour::OpenMpi,
        comm_world,
        byte: object(c"ompi_mpi_byte"),
        uint64: object(c"ompi_mpi_uint64_t"),
        max: object(c"ompi_mpi_op_max"),
        info_null: object(c"ompi_mpi_info_null"),
        status_ignore: 0,
        error_io: 35,
        error_argument: 13,
    }
}

/// The numbers are those of MPICH's ABI, which other libraries share.
fn mpich() -> Library {
    Library {
        flavour: Flavour::Mpich,
        comm_world: 0x4400_0000,
        byte: 0x4c00_010d,
        uint64: 0x4c00_083e,
        max: 0x5800_0001,
        info_null: 0x1c00_0000,
        status_ignore: 1,
        error_io: 32,
        error_argument: 12,
    }
}
