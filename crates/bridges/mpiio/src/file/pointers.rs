//! File pointers.

use super::LoggedFile;
use super::transfer::Place;
use crate::mpi::{MpiError, SEEK_CUR, SEEK_END, SEEK_SET, library};

impl LoggedFile {
    /// The offset at which a read or write of `count` elementary types begins; moves the pointer that
    /// it uses. A place in the order of ranks is collective.
    pub(super) fn place(&mut self, place: Place, count: u64) -> Result<u64, MpiError> {
        match place {
            Place::Explicit(offset) => {
                u64::try_from(offset).map_err(|_| MpiError(library().error_argument))
            }
            Place::Individual => {
                let offset = self.position;
                self.position = offset.saturating_add(count);
                Ok(offset)
            }
            Place::Shared => self.fetch_add_shared(count),
            Place::Ordered => {
                let counts = self.comm.gather_numbers([count])?;
                let sum = |ranks: &[[u64; 1]]| ranks.iter().map(|[count]| count).sum::<u64>();
                // The first rank reports a failure to the others, which wait for its number.
                let mut message = [0; 9];
                let first = if self.comm.rank == 0 {
                    self.fetch_add_shared(sum(&counts))
                } else {
                    Err(MpiError(library().error_io))
                };
                if let Ok(value) = first {
                    message[..8].copy_from_slice(&value.to_le_bytes());
                    message[8] = 1;
                }
                self.comm.broadcast(&mut message, 0)?;
                let [value @ .., valid] = message;
                if valid == 0 {
                    return Err(MpiError(library().error_io));
                }
                Ok(u64::from_le_bytes(value) + sum(&counts[..self.comm.rank]))
            }
        }
    }

    fn fetch_add_shared(&mut self, count: u64) -> Result<u64, MpiError> {
        let value = self.shared.fetch_add(count);
        value.map_err(|error| self.failed("move the shared pointer of", &error))
    }

    /// The pointer that a seek from `current` sets.
    fn target_of_seek(&self, offset: i64, whence: i32, current: u64) -> Result<u64, MpiError> {
        let invalid = MpiError(library().error_argument);
        let base = match whence {
            SEEK_SET => 0,
            SEEK_CUR => current,
            SEEK_END => self.view.end(self.size()?),
            _ => return Err(invalid),
        };
        base.checked_add_signed(offset).ok_or(invalid)
    }

    /// `MPI_File_seek`.
    pub fn seek(&mut self, offset: i64, whence: i32) -> Result<(), MpiError> {
        self.position = self.target_of_seek(offset, whence, self.position)?;
        Ok(())
    }

    /// `MPI_File_get_position`.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// `MPI_File_seek_shared` of a handle that this process has alone.
    pub fn seek_shared_alone(&mut self, offset: i64, whence: i32) -> Result<(), MpiError> {
        let current = self.fetch_add_shared(0)?;
        let value = self.target_of_seek(offset, whence, current)?;
        self.shared.set(value);
        Ok(())
    }

    /// `MPI_File_seek_shared`. Collective.
    pub fn seek_shared(&mut self, offset: i64, whence: i32) -> Result<(), MpiError> {
        self.advance();
        let current = self.fetch_add_shared(0)?;
        // The end of the file includes what all have logged.
        if whence == SEEK_END {
            let [end] = self.comm.max([self.known_end])?;
            self.known_end = end;
        } else {
            // No rank sets the pointer before all have read it.
            self.comm.barrier()?;
        }
        let value = self.target_of_seek(offset, whence, current)?;
        self.shared.set(value);
        Ok(())
    }

    /// `MPI_File_get_position_shared`.
    pub fn position_shared(&mut self) -> Result<u64, MpiError> {
        self.fetch_add_shared(0)
    }
}
