//! Movers between the buffer and the parallel file system.
//!
//! A [`Request`] names files and directories on one side and where they go on the other. One side
//! is the parallel file system, the other a [`Space`]: a name space of an instance, reached through
//! the client library. [`stage`] copies with several threads and returns a [`Report`], or what went
//! wrong with which file.
//!
//! What is kept: contents, holes, permissions, owner and group (as far as the process may set
//! them), times, symbolic links as links, hard links among the staged files, extended attributes
//! of users and access control lists.
//!
//! What is promised:
//! - A file gets its name when all of it is there; before that it has a hidden one, or none.
//! - The source is only read. A file that changes while it is copied is told, not taken.
//! - When [`stage`] returns success, everything is on stable storage; with [`Verify::ReadBack`] it
//!   has been read from there again and is what was read at the source.
//! - With a journal, a stage that was interrupted goes on where it was: files, and parts of large
//!   files, are not copied twice.
//! - Inside an instance no path and no symbolic link leads out of it.
#![warn(missing_docs)]

mod copy;
pub mod end;
mod error;
mod file;
mod finish;
mod journal;
mod large_file;
mod metadata;
mod meter;
mod mover;
mod path;
mod progress;
mod request;
mod small_file;
mod stable;
mod verify;
mod walk;

pub use end::{Identity, Namespace};
pub use error::{Problem, StageError};
pub use journal::{AppendFile, JournalHost, Os};
pub use meter::Meter;
pub use mover::run_stage;
pub use path::StageLocation;
pub use progress::{Phase, PhaseTimes, ProgressCounters, StageAmount, StageProgress};
pub use request::{ItemKind, StageItem, StageOptions, StageReport, StageRequest, Verify};
