//! The program's view of a file.

use crate::mpi::datatype;
use crate::mpi::{Handle, MpiError, library};
use forebay_mpiio_log::View;
use std::sync::Arc;

/// The program's view of a file.
#[derive(Clone, Debug)]
pub struct FileView {
    /// The bytes that are visible.
    pub view: Arc<View>,
    /// Bytes of the elementary type, the unit of offsets.
    pub etype: u64,
    /// The data representation is that of memory.
    pub native: bool,
}

impl FileView {
    /// The view of a file that was opened: all bytes.
    pub fn initial() -> FileView {
        FileView { view: Arc::new(View::bytes(0)), etype: 1, native: true }
    }

    /// The view that `MPI_File_set_view` sets.
    pub fn decode(
        displacement: i64,
        etype: Handle,
        filetype: Handle,
        native: bool,
    ) -> Result<FileView, MpiError> {
        let invalid = MpiError(library().error_argument);
        let displacement = u64::try_from(displacement).map_err(|_| invalid)?;
        let etype = datatype::size(etype)?;
        let tree = datatype::decode(filetype)?;
        let view = View::new(displacement, tree).map_err(|_| invalid)?;
        Ok(FileView { view: Arc::new(view), etype: etype.max(1), native })
    }

    /// Keeps the view of before if the new one is the same, so that both share memory.
    pub fn or_equal(self, before: &FileView) -> FileView {
        if *self.view == *before.view {
            return FileView { view: Arc::clone(&before.view), ..self };
        }
        self
    }

    /// The stream of the view: position of an offset, which is in elementary types.
    pub fn stream_position(&self, offset: u64) -> Result<u64, MpiError> {
        offset.checked_mul(self.etype).ok_or(MpiError(library().error_argument))
    }

    /// Elementary types that are visible below the end of a file of `size` bytes, rounded up.
    pub fn end(&self, size: u64) -> u64 {
        let bytes = if self.view.is_ordered() { self.view.stream_position(size) } else { size };
        bytes.div_ceil(self.etype)
    }
}
