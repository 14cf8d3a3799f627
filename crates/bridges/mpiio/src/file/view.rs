//! The program's view of a file.

use crate::mpi::datatype;
use crate::mpi::{Handle, MpiError, library};
use forebay_mpiio_log::{Datatype, View};
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
    ) -> Result<DecodedView, MpiError> {
        let invalid = MpiError(library().error_argument);
        let displacement = u64::try_from(displacement).map_err(|_| invalid)?;
        let etype = datatype::size(etype)?;
        let filetype = datatype::decode(filetype)?;
        Ok(DecodedView { displacement, filetype, etype: etype.max(1), native })
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

/// The arguments of `MPI_File_set_view`.
#[derive(Debug)]
pub struct DecodedView {
    displacement: u64,
    filetype: Datatype,
    etype: u64,
    /// The data representation is that of memory.
    pub native: bool,
}

impl DecodedView {
    /// The view. It shares memory with that of before if the file type is the same.
    pub fn view(self, before: &FileView) -> Result<FileView, MpiError> {
        let (old, displacement) = (&before.view, self.displacement);
        let view = if *old.filetype() != self.filetype {
            View::new(displacement, self.filetype).map(Arc::new)
        } else if old.displacement() == displacement {
            Ok(Arc::clone(old))
        } else {
            old.at(displacement).map(Arc::new)
        };
        let view = view.map_err(|_| MpiError(library().error_argument))?;
        Ok(FileView { view, etype: self.etype, native: self.native })
    }
}
