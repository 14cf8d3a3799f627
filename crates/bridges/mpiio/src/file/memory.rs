//! The program's buffers: data described by a datatype.

use crate::mpi::{Handle, MpiError, datatype, library};
use forebay_mpiio_log::{Datatype, View};
use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::Arc;

/// Added to displacements, which are negative or addresses, so that they are offsets of a view.
const ORIGIN: u64 = 1 << 52;

/// A buffer of the program.
#[derive(Debug)]
pub struct Memory {
    /// Address from which displacements count.
    base: *mut u8,
    /// The parts of the buffer.
    view: View,
    /// Bytes of data.
    pub size: u64,
}

impl Memory {
    /// `count` elements of a datatype.
    ///
    /// # Errors
    /// The count is negative, or the datatype is not supported.
    pub fn new(base: *mut c_void, count: i64, datatype: Handle) -> Result<Memory, MpiError> {
        let invalid = MpiError(library().error_argument);
        let count = u64::try_from(count).map_err(|_| invalid)?;
        let element = datatype::decode(datatype)?;
        let size = element.size().ok().and_then(|size| size.checked_mul(count)).ok_or(invalid)?;
        let stride = element.bounds().map_err(|_| invalid)?.extent();
        let all = Datatype::Vector { count, block: 1, stride, element: Arc::new(element) };
        // One copy of the whole buffer; the extent of its type does not matter.
        let one = Datatype::Resized { lower_bound: 0, extent: 1 << 55, element: Arc::new(all) };
        let view = View::new(ORIGIN, one).map_err(|_| invalid)?;
        Ok(Memory { base: base.cast(), view, size })
    }

    /// The parts: displacements from the base and lengths, in the order of the data.
    fn parts(&self, length: u64) -> impl Iterator<Item = (i64, usize)> {
        self.view
            .segments(0, length)
            .map(|part| (part.offset as i64 - ORIGIN as i64, part.length as usize))
    }

    /// The buffer, if its first `length` bytes are contiguous.
    fn contiguous(&self, length: u64) -> Option<*mut u8> {
        let mut parts = self.parts(length);
        let (displacement, part) = parts.next()?;
        (part as u64 == length).then(|| self.base.wrapping_offset(displacement as isize))
    }

    /// The data, copied unless it is contiguous.
    ///
    /// # Safety
    /// The buffer is that of a call of MPI that reads it.
    pub unsafe fn data(&self) -> Cow<'_, [u8]> {
        if self.size == 0 {
            return Cow::Borrowed(&[]);
        }
        if let Some(start) = self.contiguous(self.size) {
            // SAFETY: the program owns these bytes, by the contract of this function.
            return Cow::Borrowed(unsafe { std::slice::from_raw_parts(start, self.size as usize) });
        }
        let mut data = Vec::with_capacity(self.size as usize);
        for (displacement, length) in self.parts(self.size) {
            let start = self.base.wrapping_offset(displacement as isize);
            // SAFETY: as above.
            data.extend_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
        }
        Cow::Owned(data)
    }

    /// Lets `fill` set the first `length` bytes of data.
    ///
    /// # Safety
    /// The buffer is that of a call of MPI that writes it.
    pub unsafe fn fill<E>(
        &self,
        length: u64,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if length == 0 {
            return Ok(());
        }
        if let Some(start) = self.contiguous(length) {
            // SAFETY: the program lends these bytes, by the contract of this function.
            return fill(unsafe { std::slice::from_raw_parts_mut(start, length as usize) });
        }
        let mut data = vec![0; length as usize];
        fill(&mut data)?;
        let mut rest = &data[..];
        for (displacement, length) in self.parts(length) {
            let (part, others) = rest.split_at(length);
            let start = self.base.wrapping_offset(displacement as isize);
            // SAFETY: as above; the parts of a buffer that is written do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), start, length) };
            rest = others;
        }
        Ok(())
    }
}
