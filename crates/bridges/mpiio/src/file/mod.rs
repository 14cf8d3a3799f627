//! A file whose writes are logged.
//!
//! The program's handle stays that of the MPI library, which knows view and access mode of the file
//! and answers queries of them. Reads and writes are carried out here: writes go to the log of the
//! process ([`write`]), reads see the file below the logged writes ([`read`]). Collective calls on
//! the file are counted; the count orders the writes of different ranks ([`LoggedFile::advance`]).
//! A flush brings the logged writes into the file ([`flush`]).
//!
//! In atomic mode, and in views of other data representations than `native`, the log is empty and
//! reads and writes are those of the MPI library ([`through`]).

pub mod alias;
pub mod background;
pub mod exchange;
pub mod flush;
mod join;
pub mod left;
pub mod library_view;
pub mod lifetime;
mod log_mapping;
pub mod memory;
pub mod pointers;
pub mod read;
mod settle;
pub mod shared_pointer;
pub mod sources;
pub mod through;
pub mod transfer;
pub mod view;
pub mod write;

use crate::mpi::communicator::Communicator;
use crate::mpi::{Handle, MpiError, library};
use crate::selection::Settings;
use crate::statistics::Counters;
use forebay_mpiio_log::{Index, LogWriter};
use library_view::LibraryView;
use settle::Settled;
use shared_pointer::SharedPointer;
use sources::Logs;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use view::FileView;

/// Rank in the place of an entry whose data is in the file: it hides older entries.
pub const IN_FILE: u32 = u32::MAX;

/// Step of epochs from one collective call to the next.
const COLLECTIVE: u64 = 1 << 24;

/// A file whose writes are logged.
#[derive(Debug)]
pub struct LoggedFile {
    /// The program's handle.
    handle: Handle,
    /// The processes that opened the file.
    comm: Communicator,
    /// All processes of the program opened the file.
    world: bool,
    path: PathBuf,
    mode: i32,
    settings: Settings,
    /// The file itself.
    target: Arc<File>,
    id: FileId,
    /// Number of files that this process opened before and logs.
    opening: u64,
    view: FileView,
    /// The view, if the MPI library has an older one.
    library_view: Option<LibraryView>,
    /// Individual file pointer in elementary types.
    position: u64,
    shared: SharedPointer,
    atomic: bool,
    writer: LogWriter,
    /// This process removes the file of its log.
    owns_log: bool,
    logs: Logs,
    /// All processes can read all logs.
    readable: bool,
    /// The logged writes that this process knows: its own, and those of others up to the last
    /// exchange.
    index: Index,
    /// Sequence number of the own entries that the others know.
    exchanged: u64,
    /// Epoch of the last exchange.
    exchange_epoch: u64,
    /// Own entries that were written to the file before the others knew them.
    in_file: Vec<forebay_mpiio_log::Entry>,
    /// The first of them that are joined ones, and the number of runs that these keep one by one.
    joined: usize,
    joined_runs: usize,
    /// End of the last write that this process knows.
    known_end: u64,
    /// Collective calls on the file, times [`COLLECTIVE`], and writes past the log since.
    epoch: u64,
    /// Blocking collective writes.
    collective_writes: u64,
    /// Those up to the last flush.
    emptied_at: u64,
    /// The collective write in which the processes next agree about the logs' space.
    next_agreement: u64,
    /// Data was written to the file that was not synced.
    unsynced: bool,
    /// Logged writes were synced since the last flush, so that the file must be, too.
    synced: bool,
    /// The program has opened the file a second time, so that a sync must reach the file.
    opened_twice: bool,
    /// The logged data that one process has brought into the file for all.
    settled: Settled,
    /// Result of the split collective operation that was begun.
    split: Option<u64>,
    counters: Counters,
}

impl LoggedFile {
    /// Counts a collective call. Writes before it precede those after it, on all ranks.
    fn advance(&mut self) {
        self.epoch = (self.epoch / COLLECTIVE + 1) * COLLECTIVE;
        self.writer.set_epoch(self.epoch);
    }

    /// Continues at an epoch on which all ranks agree, because an error on one of them may have kept
    /// it from counting a call. Returns it.
    fn agree(&mut self, epoch: u64) -> u64 {
        self.epoch = self.epoch.max(epoch);
        self.writer.set_epoch(self.epoch);
        self.epoch
    }

    /// Whether a collective call was counted since an epoch.
    fn is_past(&self, epoch: u64) -> bool {
        epoch / COLLECTIVE < self.epoch / COLLECTIVE
    }

    /// Counts a write past the log of this process.
    fn advance_alone(&mut self) {
        self.epoch += 1;
        self.writer.set_epoch(self.epoch);
    }

    /// Bytes of the file with the logged writes that this process knows.
    fn size(&self) -> Result<u64, MpiError> {
        let length =
            self.target.metadata().map_err(|error| self.failed("read the length of", &error))?;
        Ok(length.len().max(self.known_end))
    }

    /// Reports a failure of the file or its log.
    fn failed(&self, action: &str, error: &dyn std::fmt::Display) -> MpiError {
        report(&self.path, action, error)
    }
}

/// Device and inode number: the identity of a file, whatever its names.
pub type FileId = (u64, u64);

/// The identity of the file that a path names, if it exists.
pub fn file_id(path: &std::path::Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Reports a failure of a file or its log.
fn report(path: &std::path::Path, action: &str, error: &dyn std::fmt::Display) -> MpiError {
    eprintln!("forebay: cannot {action} {}: {error}", path.display());
    MpiError(library().error_io)
}
