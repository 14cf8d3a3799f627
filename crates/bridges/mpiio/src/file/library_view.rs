//! A view that the program has set and the MPI library does not know.
//!
//! MPI libraries agree about each view in several messages, which costs more than the logging of a small
//! write where processes wait for processors. The library needs a view only for reads and writes of its
//! own, so that it gets the last one before these. Until then, queries of the view are answered here.

use super::LoggedFile;
use super::view::{DecodedView, FileView};
use crate::mpi::communicator::check;
use crate::mpi::constructor::{Combiner, envelope};
use crate::mpi::{Handle, MpiError, functions, library};
use std::ffi::c_void;

/// `MPI_MAX_DATAREP_STRING`, the largest of the libraries.
const MAX_REPRESENTATION: usize = 128;

/// The arguments of `MPI_File_set_view` with the representation `native`.
#[derive(Debug)]
pub struct LibraryView {
    displacement: i64,
    etype: HeldType,
    filetype: HeldType,
}

/// A datatype that the program may free.
#[derive(Debug)]
struct HeldType {
    handle: Handle,
    /// Types of MPI itself are neither copied nor freed.
    named: bool,
}

impl HeldType {
    fn copy_of(handle: Handle) -> Result<HeldType, MpiError> {
        if envelope(handle)?.combiner == Combiner::Named {
            return Ok(HeldType { handle, named: true });
        }
        let mut copy = 0;
        // SAFETY: the type is valid; the result is as large as any handle.
        check(unsafe { functions::type_dup(handle, &mut copy) })?;
        Ok(HeldType { handle: copy, named: false })
    }

    /// Stores a copy, which the program frees, where it expects a handle.
    ///
    /// # Safety
    /// `to` points to a handle.
    unsafe fn give(&self, to: *mut c_void) -> Result<(), MpiError> {
        let copy = HeldType::copy_of(self.handle)?;
        let word = copy.handle.to_le_bytes();
        // SAFETY: a handle has this width.
        unsafe {
            std::ptr::copy_nonoverlapping(word.as_ptr(), to.cast(), library().flavour.width());
        }
        std::mem::forget(copy);
        Ok(())
    }
}

impl Drop for HeldType {
    fn drop(&mut self) {
        if !self.named {
            // SAFETY: the handle is that of a copy, which is not used after this. An error leaves a type
            // behind, which harms nothing.
            unsafe { functions::type_free(&mut self.handle) };
        }
    }
}

impl LibraryView {
    /// The view with copies of these types.
    pub fn new(
        displacement: i64,
        etype: Handle,
        filetype: Handle,
    ) -> Result<LibraryView, MpiError> {
        let (etype, filetype) = (HeldType::copy_of(etype)?, HeldType::copy_of(filetype)?);
        Ok(LibraryView { displacement, etype, filetype })
    }

    /// The view that the MPI library knows.
    fn known(file: Handle) -> Result<LibraryView, MpiError> {
        let (mut displacement, mut etype, mut filetype) = (0, 0, 0);
        let mut representation = [0; MAX_REPRESENTATION];
        // SAFETY: the handle is that of an open file, and the results have room.
        check(unsafe {
            let representation = representation.as_mut_ptr();
            functions::file_get_view(
                file,
                &mut displacement,
                &mut etype,
                &mut filetype,
                representation,
            )
        })?;
        let held = |handle| {
            let named = envelope(handle)?.combiner == Combiner::Named;
            Ok::<_, MpiError>(HeldType { handle, named })
        };
        Ok(LibraryView { displacement, etype: held(etype)?, filetype: held(filetype)? })
    }

    /// Sets the view for the MPI library. Collective.
    pub fn set(&self, file: Handle) -> Result<(), MpiError> {
        let (etype, filetype) = (self.etype.handle, self.filetype.handle);
        let hints = library().info_null;
        // SAFETY: the handle is that of an open file, and the types are held.
        check(unsafe {
            let native = c"native".as_ptr();
            functions::file_set_view(file, self.displacement, etype, filetype, native, hints)
        })
    }

    /// The results of `MPI_File_get_view`, except the representation.
    ///
    /// # Safety
    /// The arguments point to a number and two handles.
    pub unsafe fn get(
        &self,
        displacement: *mut i64,
        etype: *mut c_void,
        filetype: *mut c_void,
    ) -> Result<(), MpiError> {
        // SAFETY: by the contract of this function.
        unsafe {
            *displacement = self.displacement;
            self.etype.give(etype)?;
            self.filetype.give(filetype)
        }
    }
}

impl LoggedFile {
    /// Sets a view with the representation `native`, of which the MPI library learns later. As with the
    /// library, no process goes on before all have set it. Collective. Returns false if the library must
    /// set it now.
    pub fn defer_view(
        &mut self,
        displacement: i64,
        etype: Handle,
        filetype: Handle,
    ) -> Result<bool, MpiError> {
        if self.atomic {
            return Ok(false);
        }
        let view = FileView::decode(displacement, etype, filetype, true);
        let result = self.set_view(view, true);
        let deferred =
            result.and_then(|()| LibraryView::new(displacement, etype, filetype)).map(Some);
        // Also if this process does not understand its view: the others do not know that, and all set
        // their views for the library together. The view in use is then the one before.
        self.library_view = match (&deferred, self.library_view.take()) {
            (Ok(_), _) => None,
            (Err(_), Some(before)) => Some(before),
            (Err(_), None) => Some(LibraryView::known(self.handle)?),
        };
        self.comm.barrier()?;
        deferred.map(|view| {
            self.library_view = view;
            true
        })
    }

    /// The view that the program has set. Collective.
    pub fn set_view(
        &mut self,
        view: Result<DecodedView, MpiError>,
        native: bool,
    ) -> Result<(), MpiError> {
        // Also if this process does not understand its view: the others do not know that.
        self.advance();
        if !native {
            self.flush()?;
        }
        self.view = view?.view(&self.view)?;
        self.position = 0;
        self.shared.set(0);
        Ok(())
    }

    /// The view has been set for the MPI library.
    pub fn forget_deferred_view(&mut self) {
        self.library_view = None;
    }

    /// The view that the MPI library does not know.
    pub fn deferred_view(&self) -> Option<&LibraryView> {
        self.library_view.as_ref()
    }

    /// `MPI_File_get_byte_offset` for a view that the MPI library does not know.
    pub fn byte_offset(&self, offset: i64) -> Result<i64, MpiError> {
        let invalid = MpiError(library().error_argument);
        let offset = u64::try_from(offset).map_err(|_| invalid)?;
        let position = self.view.stream_position(offset)?;
        if !self.view.view.contains(position, 1) {
            return Err(invalid);
        }
        let byte = self.view.view.segments(position, 1).next().ok_or(invalid)?;
        i64::try_from(byte.offset).map_err(|_| invalid)
    }

    /// `MPI_File_set_atomicity`. Collective.
    pub fn set_atomicity(&mut self, atomic: bool) -> Result<(), MpiError> {
        if atomic {
            self.flush()?;
            if let Some(view) = &self.library_view {
                view.set(self.handle)?;
                self.library_view = None;
            }
        }
        // SAFETY: the handle is that of an open file.
        check(unsafe { functions::file_set_atomicity(self.handle, i32::from(atomic)) })?;
        self.atomic = atomic;
        Ok(())
    }
}
