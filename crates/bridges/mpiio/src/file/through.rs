//! Reads and writes of the MPI library, at explicit offsets, while the log is empty.

use super::LoggedFile;
use super::transfer::{Direction, Participation};
use crate::mpi::communicator::check;
use crate::mpi::status::Status;
use crate::mpi::{Handle, MpiError, functions, library};
use std::ffi::{c_int, c_void};

impl LoggedFile {
    /// Whether reads and writes are those of the MPI library: in atomic mode, whose guarantees
    /// between ranks a log cannot give, and if data has another representation in the file.
    pub(super) fn is_through(&self) -> bool {
        self.atomic || !self.view.native
    }

    /// Reads or writes with the MPI library, from an offset in elementary types on. Returns the bytes
    /// that were transferred.
    ///
    /// # Safety
    /// The buffer is that of a call of MPI in this direction.
    pub(super) unsafe fn through(
        &mut self,
        direction: Direction,
        participation: Participation,
        offset: u64,
        buffer: *mut c_void,
        count: i64,
        datatype: Handle,
    ) -> Result<u64, MpiError> {
        let invalid = MpiError(library().error_argument);
        let offset = i64::try_from(offset).map_err(|_| invalid)?;
        let count = c_int::try_from(count).map_err(|_| invalid)?;
        let mut status = Status::new();
        let file = self.handle;
        // SAFETY: the caller answers for the buffer; the status is as large as that of any library.
        check(unsafe {
            let status = status.address();
            match (direction, participation) {
                (Direction::Read, Participation::Independent) => {
                    functions::file_read_at(file, offset, buffer, count, datatype, status)
                }
                (Direction::Read, Participation::Collective) => {
                    functions::file_read_at_all(file, offset, buffer, count, datatype, status)
                }
                (Direction::Write, Participation::Independent) => {
                    functions::file_write_at(file, offset, buffer, count, datatype, status)
                }
                (Direction::Write, Participation::Collective) => {
                    functions::file_write_at_all(file, offset, buffer, count, datatype, status)
                }
            }
        })?;
        self.counters.through_requests += 1;
        let bytes = status.bytes();
        if direction == Direction::Write {
            self.counters.through_bytes += bytes;
        }
        Ok(bytes)
    }
}
