//! A second handle of a file, which one process has opened alone while it is open by more.
//!
//! PnetCDF has such a handle for independent accesses. Its writes go to the log of the first handle,
//! so that they keep their order with those of that handle, and it reads what that handle reads. It
//! has its own view and pointers. What it writes is visible to other processes after a sync of the
//! first handle.

use super::LoggedFile;
use super::lifetime::preallocate;
use super::shared_pointer::SharedPointer;
use super::transfer::{Completion, Participation, Place, Request};
use super::view::{DecodedView, FileView};
use crate::mpi::communicator::check;
use crate::mpi::{Handle, MODE_APPEND, MpiError, functions};
use forebay_mpiio_log::View;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A second handle of a logged file.
#[derive(Debug)]
pub struct Alias {
    handle: Handle,
    view: FileView,
    position: u64,
    shared: SharedPointer,
    split: Option<u64>,
    mode: i32,
}

impl Alias {
    /// A second handle of `file`, opened with an access mode.
    pub fn new(handle: Handle, file: &LoggedFile, mode: i32) -> Result<Alias, MpiError> {
        let position = if mode & MODE_APPEND != 0 { file.size()? } else { 0 };
        // A process of another node may have the same number, and a file of an earlier one be left.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let name = format!(".{}-{handle:x}-{now:x}.shared_pointer", std::process::id());
        let path = file.settings.directory.join(name);
        let shared = SharedPointer::new(path, position);
        Ok(Alias { handle, view: FileView::initial(), position, shared, split: None, mode })
    }

    /// Access mode of `MPI_File_open`.
    pub fn mode(&self) -> i32 {
        self.mode
    }

    /// Position of the individual pointer, for a handle whose first handle was closed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Carries out a call on the first handle's file with the view and the pointers of this one.
    pub fn on<T>(
        &mut self,
        file: &mut LoggedFile,
        body: impl FnOnce(&mut LoggedFile) -> Result<T, MpiError>,
    ) -> Result<T, MpiError> {
        self.exchange(file);
        let result = body(file);
        self.exchange(file);
        result
    }

    fn exchange(&mut self, file: &mut LoggedFile) {
        std::mem::swap(&mut self.handle, &mut file.handle);
        std::mem::swap(&mut self.view, &mut file.view);
        std::mem::swap(&mut self.position, &mut file.position);
        std::mem::swap(&mut self.shared, &mut file.shared);
        std::mem::swap(&mut self.split, &mut file.split);
    }

    /// Sets the view of this handle.
    pub fn set_view(&mut self, view: DecodedView) -> Result<(), MpiError> {
        self.view = view.view(&self.view)?;
        self.position = 0;
        self.shared.set(0);
        Ok(())
    }

    /// Removes what belongs to the handle.
    pub fn close(&self) {
        self.shared.remove();
    }
}

impl LoggedFile {
    /// Makes the logged writes of this process durable, for a handle that it has alone.
    pub fn sync_alone(&mut self) -> Result<(), MpiError> {
        let synced = self.writer.sync();
        synced.map_err(|error| self.failed("sync the log of", &error))?;
        self.synced = true;
        if self.unsynced {
            self.target.sync_data().map_err(|error| self.failed("sync", &error))?;
        }
        Ok(())
    }

    /// Carries out a read or write of a handle that this process has alone.
    ///
    /// # Safety
    /// As [`LoggedFile::transfer`].
    pub unsafe fn transfer_alone(
        &mut self,
        request: &Request,
        buffer: *mut c_void,
        count: i64,
        datatype: Handle,
        completion: &Completion,
    ) -> Result<u64, MpiError> {
        let place = match request.place {
            Place::Ordered => Place::Shared,
            Place::Explicit(_) | Place::Individual | Place::Shared => request.place,
        };
        let alone = Request { participation: Participation::Independent, place, ..*request };
        // SAFETY: by the contract of this function.
        unsafe { self.transfer(&alone, buffer, count, datatype, completion) }
    }

    /// `MPI_File_set_size` of a handle that this process has alone. What is logged behind the new end
    /// is not applied.
    pub fn set_size_alone(&mut self, size: u64) -> Result<(), MpiError> {
        self.settle_under(std::iter::once(size..u64::MAX))?;
        self.target.set_len(size).map_err(|error| self.failed("change the size of", &error))?;
        self.unsynced = true;
        if size < self.known_end {
            let length = self.known_end - size;
            self.note_past_log(Arc::new(View::bytes(0)), size, length)?;
            self.known_end = size;
        }
        Ok(())
    }

    /// `MPI_File_preallocate` of a handle that this process has alone.
    pub fn preallocate_alone(&mut self, size: u64) -> Result<(), MpiError> {
        self.unsynced = true;
        preallocate(&self.target, size).map_err(|error| self.failed("preallocate", &error))
    }

    /// `MPI_File_set_atomicity` of a handle that this process has alone, which has no other processes
    /// with which its accesses could conflict.
    pub fn set_atomicity_alone(&mut self, atomic: bool) -> Result<(), MpiError> {
        // SAFETY: the handle is that of an open file.
        check(unsafe { functions::file_set_atomicity(self.handle, i32::from(atomic)) })
    }

    /// Prepares for a handle of this process that is left to the MPI library: what this process knows
    /// is in the file.
    pub fn settle_for_passed_handle(&mut self) -> Result<(), MpiError> {
        self.settle_for_second_handle()?;
        if self.settle_own()? {
            return Ok(());
        }
        Err(self.failed(
            "change the data representation of a second handle of",
            &"the file has logged writes that other processes may have replaced; sync it before",
        ))
    }
}
