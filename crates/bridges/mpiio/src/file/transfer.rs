//! One read or write of a program.

use super::LoggedFile;
use super::memory::Memory;
use crate::mpi::{Handle, MpiError, library};
use std::ffi::c_void;
use std::ops::Range;

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// Place in the file's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An offset in elementary types.
    Explicit(i64),
    /// The file pointer of the process.
    Individual,
    /// The shared file pointer.
    Shared,
    /// The shared file pointer, in the order of ranks.
    Ordered,
}

/// The processes that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Participation {
    /// This one.
    Independent,
    /// All that opened the file.
    Collective,
}

/// Kind of a read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Direction of the data.
    pub direction: Direction,
    /// Place in the file's view.
    pub place: Place,
    /// The processes that take part.
    pub participation: Participation,
}

/// The way in which the program gets the result.
#[derive(Clone, Copy, Debug)]
pub enum Completion {
    /// A status when the call returns.
    Status(*mut c_void),
    /// A request.
    Request(*mut c_void),
    /// A status from the second call of a split collective operation.
    Split,
}

impl LoggedFile {
    /// Carries out a read or write. Returns the bytes that were transferred.
    ///
    /// # Safety
    /// The buffer is that of the call of MPI.
    pub unsafe fn transfer(
        &mut self,
        request: &Request,
        buffer: *mut c_void,
        count: i64,
        datatype: Handle,
        completion: &Completion,
    ) -> Result<u64, MpiError> {
        let memory = Memory::new(buffer, count, datatype)?;
        let collective = request.participation == Participation::Collective;
        if collective {
            self.advance();
        }
        let offset = self.place(request.place, memory.size.div_ceil(self.view.etype))?;
        // A nonblocking call must not wait for other ranks.
        let participation = match completion {
            Completion::Status(_) | Completion::Split => request.participation,
            Completion::Request(_) => Participation::Independent,
        };
        let bytes = if self.is_through() {
            // SAFETY: as above.
            unsafe {
                self.through(request.direction, participation, offset, buffer, count, datatype)?
            }
        } else {
            let position = self.view.stream_position(offset)?;
            match request.direction {
                Direction::Write => {
                    if participation == Participation::Collective {
                        self.make_space_together()?;
                    }
                    // SAFETY: as above; the call reads the buffer.
                    self.write(position, &unsafe { memory.data() })?;
                    memory.size
                }
                Direction::Read => {
                    if participation == Participation::Collective {
                        self.before_collective_read(self.hull(position, memory.size)?)?;
                    }
                    self.counters.read_requests += 1;
                    let length = self.readable_bytes(position, memory.size)?;
                    // SAFETY: as above; the call writes the buffer.
                    unsafe { memory.fill(length, |data| self.read(position, data)) }?;
                    length
                }
            }
        };
        if collective {
            self.advance();
        }
        Ok(bytes)
    }

    /// Keeps the result of a split collective operation for its second call.
    pub fn begin_split(&mut self, bytes: u64) {
        self.split = Some(bytes);
    }

    /// The result of the split collective operation that was begun.
    pub fn end_split(&mut self) -> Result<u64, MpiError> {
        self.split.take().ok_or(MpiError(library().error_argument))
    }

    /// The range of the file that contains a part of the view's stream.
    fn hull(&self, position: u64, length: u64) -> Result<Range<u64>, MpiError> {
        let view = &self.view.view;
        if !view.contains(position, length) {
            return Err(MpiError(library().error_argument));
        }
        Ok(view.hull(position, length))
    }
}
