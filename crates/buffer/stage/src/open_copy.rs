//! A copy in progress: an open source, and a hidden file that gets its name when it is complete.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::end::{DirHandle, FileHandle, FileStat};
use crate::error::Failure;
use crate::tree::{CopyLocation, hidden_name};

/// The destination of a copy.
pub(crate) struct Destination {
    pub parent: Arc<dyn DirHandle>,
    pub name: OsString,
    pub journal_key: PathBuf,
    /// The path of the source, for messages.
    pub source_path: PathBuf,
    pub location: CopyLocation,
}

/// A copy in progress.
pub(crate) struct OpenCopy {
    pub source: Box<dyn FileHandle>,
    /// The source when it was opened.
    pub stat: FileStat,
    pub hidden: Box<dyn FileHandle>,
    hidden_name: OsString,
    pub to: Destination,
}

impl OpenCopy {
    /// Creates the hidden file. `keep` retains the contents that an earlier run wrote to it.
    pub fn create(
        source: Box<dyn FileHandle>,
        stat: FileStat,
        to: Destination,
        keep: bool,
    ) -> Result<OpenCopy, Failure> {
        let hidden_name = hidden_name(&to.name);
        let hidden = to
            .parent
            .create(&hidden_name, keep)
            .map_err(|e| Failure::target("creating its copy", e))?;
        Ok(OpenCopy { source, stat, hidden, hidden_name, to })
    }

    /// A copy whose hidden file, of this name, is open. Several movers may write to it.
    pub fn of_hidden(
        source: Box<dyn FileHandle>,
        stat: FileStat,
        to: Destination,
        hidden: Box<dyn FileHandle>,
        hidden_name: OsString,
    ) -> OpenCopy {
        OpenCopy { source, stat, hidden, hidden_name, to }
    }

    /// Gives the complete copy its name, replacing what has that name.
    pub fn rename(&self) -> Result<(), Failure> {
        self.to
            .parent
            .rename(&self.hidden_name, &self.to.name)
            .map_err(|e| Failure::target("renaming its copy", e))
    }

    /// Removes the incomplete copy.
    pub fn remove(&self) {
        let _ = self.to.parent.unlink(&self.hidden_name);
    }
}
