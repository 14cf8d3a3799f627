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
    /// Whether a read or write waits for messages of other processes.
    pub fn waits_for_others(&self, request: &Request, completion: &Completion) -> bool {
        let is_collective = match completion {
            Completion::Status(_) | Completion::Split => {
                request.participation == Participation::Collective
            }
            Completion::Request(_) => false,
        };
        let is_logged_write = request.direction == Direction::Write
            && request.place != Place::Ordered
            && !self.is_through();
        is_collective && (!is_logged_write || self.agrees_next())
    }

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
        let collective = request.participation == Participation::Collective;
        if collective {
            self.advance();
        }
        // SAFETY: by the contract of this function.
        let bytes = unsafe { self.carry_out(request, buffer, count, datatype, completion) };
        // The other ranks count the call also if it failed here.
        if collective {
            self.advance();
        }
        bytes
    }

    /// Carries out a read or write, whose call is counted.
    ///
    /// # Safety
    /// As [`LoggedFile::transfer`].
    unsafe fn carry_out(
        &mut self,
        request: &Request,
        buffer: *mut c_void,
        count: i64,
        datatype: Handle,
        completion: &Completion,
    ) -> Result<u64, MpiError> {
        // A rank whose arguments are wrong takes part in the messages of the call.
        let memory = Memory::new(buffer, count, datatype);
        let size = memory.as_ref().map_or(0, |memory| memory.size);
        let offset = self.place(request.place, size.div_ceil(self.view.etype));
        // A nonblocking call must not wait for other ranks.
        let participation = match completion {
            Completion::Status(_) | Completion::Split => request.participation,
            Completion::Request(_) => Participation::Independent,
        };
        if self.is_through() {
            let (direction, offset) = (request.direction, offset?);
            // SAFETY: as above.
            return unsafe {
                self.through(direction, participation, offset, buffer, count, datatype)
            };
        }
        let position = offset.and_then(|offset| self.view.stream_position(offset));
        let prepared = memory.and_then(|memory| Ok((memory, position?)));
        let collective = participation == Participation::Collective;
        match request.direction {
            Direction::Write => {
                if collective {
                    self.make_space_together()?;
                }
                let (memory, position) = prepared?;
                // SAFETY: as above; the call reads the buffer.
                self.write(position, &unsafe { memory.data() })?;
                Ok(memory.size)
            }
            Direction::Read => {
                if collective {
                    let hull = match &prepared {
                        Ok((memory, position)) => self.hull(*position, memory.size).ok(),
                        Err(_) => None,
                    };
                    self.before_collective_read(hull.unwrap_or(0..0))?;
                }
                let (memory, position) = prepared?;
                self.counters.read_requests += 1;
                let length = self.readable_bytes(position, memory.size)?;
                // SAFETY: as above; the call writes the buffer.
                unsafe { memory.fill(length, |data| self.read(position, data)) }?;
                Ok(length)
            }
        }
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
