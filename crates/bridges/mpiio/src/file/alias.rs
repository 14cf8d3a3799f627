//! A second handle of a file, which one process has opened alone while it is open by more.
//!
//! PnetCDF has such a handle for independent accesses. Its writes go to the log of the first handle,
//! so that they keep their order with those of that handle, and it reads what that handle reads. It
//! has its own view and pointers. What it writes is visible to other processes after a sync of the
//! first handle.

use super::LoggedFile;
use super::shared_pointer::SharedPointer;
use super::transfer::{Completion, Participation, Place, Request};
use super::view::{DecodedView, FileView};
use crate::mpi::{Handle, MODE_APPEND, MpiError, library};
use std::ffi::c_void;
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
    pub fn set_view(&mut self, file: &LoggedFile, view: DecodedView) -> Result<(), MpiError> {
        if !view.native {
            return Err(file.failed(
                "log",
                &"a second handle of the file has a data representation other than native",
            ));
        }
        self.view = view.view(&self.view)?;
        self.position = 0;
        self.shared.set(0);
        Ok(())
    }

    /// Removes what belongs to the handle.
    pub fn close(self) {
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

    /// Refusal of a collective change of the file through a handle that this process has alone.
    pub fn refuse_alone(&self, what: &str) -> MpiError {
        self.failed(what, &"this process has opened it a second time, alone, while it is logged");
        MpiError(library().error_io)
    }
}
