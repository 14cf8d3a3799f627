//! The log of MPI-IO writes, without MPI.
//!
//! A process logs its writes to a file as they are: a [`View`] (a datatype tree, repeated over the
//! file) and a range of its byte stream, with the data. An [`Entry`] has constant size, whatever
//! the number of its pieces in the file.
//!
//! - [`LogWriter`] appends to a log file of bounded size and makes entries durable.
//! - [`Index`] finds the entries of a range, for reads that see logged data.
//! - [`scan`] reads what a crash left, [`replay`] puts it into the files.
//! - [`NetcdfFile`] names the variables and subarrays of entries.
//! - [`plan`] merges entries into contiguous writes aligned to stripes; [`apply`] carries them out.
#![warn(missing_docs)]

mod append_error;
mod batches;
mod checksum;
mod create;
mod datatype;
mod encoding;
mod entry;
mod file_identity;
mod format;
mod gather;
mod identity;
mod index;
mod log_file;
mod logged_run;
mod merge;
mod netcdf;
mod plan;
mod record_batch;
mod replay;
mod request_sizes;
mod scan;
mod segment_views;
mod segments;
mod tail;
mod type_map;
mod view;
mod walk;
mod writer;

pub use append_error::AppendError;
pub use batches::EntryMemory;
pub use datatype::{Block, Bounds, Datatype, Field, InvalidDatatype, MAX_DEPTH};
pub use encoding::DecodeError;
pub use entry::{Entry, Order, Place, decode_entries, encode_entries};
pub use file_identity::FileIdentity;
pub use format::{FORMAT_VERSION, MAX_SEGMENT_BYTES, MAX_SLOTS, MIN_SEGMENT_BYTES};
pub use gather::{gather, read_pieces};
pub use identity::{EXTENSION, Identity, Limits, MARK_EXTENSION};
pub use index::Index;
pub use log_file::{LogFile, LogReader};
pub use logged_run::{FinishedLog, LoggedRun, Marks, Whereabouts};
pub use merge::{MergeCounts, Merged, Piece, merge};
pub use netcdf::{NetcdfFile, Subarray, Variable, file_start};
pub use plan::{
    Alignment, Applied, DataSource, MAX_PIECES, MergedWrite, Plan, Target, apply, plan,
    write_merged,
};
pub use replay::{
    Discarded, Left, ReplayError, ReplayOptions, Replayed, discard, discard_of_removed,
    foreign_logs, is_in_use, logs, replay,
};
pub use request_sizes::{PAST_LOG, alignment_for, log_read_bytes, log_request_bytes, logged_bytes};
pub use scan::{Damage, ScanError, ScannedLog, ScannedSlot, scan, scan_file, scan_within};
pub use view::{MAX_LOGGED_VIEW, Segment, Segments, View};
pub use writer::{LogWriter, Sequence};
