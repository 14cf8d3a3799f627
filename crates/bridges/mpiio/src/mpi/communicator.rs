//! Communicators and the collective operations that this library uses.

use super::{Handle, MpiError, SUCCESS, functions, library};
use std::ffi::{c_int, c_void};

/// Largest number of bytes of one message; counts of MPI are 32-bit integers.
const LARGEST_MESSAGE: usize = 1 << 30;

/// Whether a function of MPI succeeded.
pub fn check(code: c_int) -> Result<(), MpiError> {
    if code == SUCCESS { Ok(()) } else { Err(MpiError(code)) }
}

/// A communicator. A clone is the same one.
#[derive(Clone, Debug)]
pub struct Communicator {
    handle: Handle,
    /// Rank of this process.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
}

impl Communicator {
    /// A communicator of the program, which remains its owner.
    pub fn of(handle: Handle) -> Result<Communicator, MpiError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the handle is that of the caller of MPI; the results have the types of MPI.
        unsafe {
            check(functions::comm_rank(handle, &mut rank))?;
            check(functions::comm_size(handle, &mut size))?;
        }
        let number = |value: c_int| usize::try_from(value).unwrap_or(0);
        Ok(Communicator { handle, rank: number(rank), size: number(size).max(1) })
    }

    /// A copy for the messages of this library. Collective.
    pub fn duplicate(&self) -> Result<Communicator, MpiError> {
        let mut handle = 0;
        // SAFETY: the communicator is valid; the result is as large as any handle.
        check(unsafe { functions::comm_dup(self.handle, &mut handle) })?;
        Ok(Communicator { handle, rank: self.rank, size: self.size })
    }

    /// Frees a copy. Collective.
    pub fn free(mut self) {
        // SAFETY: the handle is that of a copy, which is not used after this. An error leaves a
        // communicator behind, which harms nothing.
        unsafe { functions::comm_free(&mut self.handle) };
    }

    /// Whether it has all processes of the program.
    pub fn is_world(&self) -> bool {
        Communicator::of(library().comm_world).is_ok_and(|world| world.size == self.size)
    }

    /// Whether another communicator has the same processes in the same order.
    pub fn is_congruent(&self, other: Handle) -> bool {
        let mut result = 0;
        // SAFETY: both are communicators.
        let code = unsafe { functions::comm_compare(self.handle, other, &mut result) };
        // `MPI_IDENT` is 0 and `MPI_CONGRUENT` 1 in both libraries.
        code == SUCCESS && (result == 0 || result == 1)
    }

    /// The bytes that `root` has. All ranks give the same length.
    pub fn broadcast(&self, bytes: &mut [u8], root: usize) -> Result<(), MpiError> {
        assert!(bytes.len() <= LARGEST_MESSAGE, "messages of this kind are short");
        // SAFETY: the buffer has as many bytes as the count says.
        check(unsafe {
            functions::bcast(
                bytes.as_mut_ptr().cast(),
                bytes.len() as c_int,
                library().byte,
                root as c_int,
                self.handle,
            )
        })
    }

    /// A byte string of any length that `root` has.
    pub fn broadcast_string(&self, bytes: Vec<u8>, root: usize) -> Result<Vec<u8>, MpiError> {
        let mut length = (bytes.len() as u64).to_le_bytes();
        self.broadcast(&mut length, root)?;
        let mut all = bytes;
        all.resize(u64::from_le_bytes(length) as usize, 0);
        if !all.is_empty() {
            self.broadcast(&mut all, root)?;
        }
        Ok(all)
    }

    /// The largest of the values of all ranks, each on its own.
    pub fn max<const N: usize>(&self, values: [u64; N]) -> Result<[u64; N], MpiError> {
        let mut results = [0; N];
        // SAFETY: both buffers have N numbers of 64 bits.
        check(unsafe {
            functions::allreduce(
                values.as_ptr().cast(),
                results.as_mut_ptr().cast(),
                N as c_int,
                library().uint64,
                library().max,
                self.handle,
            )
        })?;
        Ok(results)
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&self) -> Result<(), MpiError> {
        // SAFETY: the communicator is valid.
        check(unsafe { functions::barrier(self.handle) })
    }

    /// The numbers of all ranks, by rank.
    pub fn gather_numbers<const N: usize>(
        &self,
        numbers: [u64; N],
    ) -> Result<Vec<[u64; N]>, MpiError> {
        let mut all = vec![[0; N]; self.size];
        // SAFETY: N numbers are sent, and the result has N for each rank.
        check(unsafe {
            functions::allgather(
                numbers.as_ptr().cast(),
                N as c_int,
                library().uint64,
                all.as_mut_ptr().cast(),
                N as c_int,
                library().uint64,
                self.handle,
            )
        })?;
        Ok(all)
    }

    /// The byte strings of all ranks, by rank.
    pub fn gather_all(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, MpiError> {
        let lengths: Vec<u64> =
            self.gather_numbers([bytes.len() as u64])?.iter().map(|[length]| *length).collect();
        let mut all: Vec<Vec<u8>> =
            lengths.iter().map(|length| Vec::with_capacity(*length as usize)).collect();
        // Each round carries at most a share of the largest message from each rank.
        let share = (LARGEST_MESSAGE / self.size).max(1);
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        for start in (0..longest).step_by(share) {
            self.gather_round(bytes, start, share, &lengths, &mut all)?;
        }
        Ok(all)
    }

    /// Adds `share` bytes from `start` of each rank's string.
    fn gather_round(
        &self,
        bytes: &[u8],
        start: usize,
        share: usize,
        lengths: &[u64],
        all: &mut [Vec<u8>],
    ) -> Result<(), MpiError> {
        let part = |length: usize| length.min(start + share).saturating_sub(start);
        let counts: Vec<c_int> =
            lengths.iter().map(|length| part(*length as usize) as c_int).collect();
        let mut total = 0;
        let mut displacements: Vec<c_int> = Vec::with_capacity(counts.len());
        for count in &counts {
            displacements.push(total);
            total += count;
        }
        let mut received = vec![0u8; total as usize];
        let own = &bytes[start.min(bytes.len())..(start + share).min(bytes.len())];
        // SAFETY: the buffers are as long as counts and displacements say.
        check(unsafe {
            functions::allgatherv(
                own.as_ptr().cast::<c_void>(),
                own.len() as c_int,
                library().byte,
                received.as_mut_ptr().cast(),
                counts.as_ptr(),
                displacements.as_ptr(),
                library().byte,
                self.handle,
            )
        })?;
        for (rank, bytes) in all.iter_mut().enumerate() {
            let at = displacements[rank] as usize;
            bytes.extend_from_slice(&received[at..at + counts[rank] as usize]);
        }
        Ok(())
    }
}
