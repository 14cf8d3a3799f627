//! Movers between the buffer and the parallel file system (PFS).
//!
//! A [`StageRequest`] names files and directories on one side and their targets on the other. One
//! side is the PFS, the other a [`Namespace`] of an instance, accessed by the client library.
//! [`run_stage`] copies with several threads and returns a [`StageReport`], or the problems of
//! single files.
//!
//! [`apply_logs`] brings logs of MPI-IO writes into their files.
//!
//! Copies preserve contents, holes, permissions, owner and group (as far as the process may set
//! them), times, symbolic links, hard links among the staged files, extended attributes of users and
//! access control lists.
//!
//! Guarantees:
//! - A file gets its name when it is complete; before that it has a hidden name, or none.
//! - The source is only read. A file that changes while it is copied is reported, and not staged.
//! - When [`run_stage`] returns success, everything is on stable storage; with [`Verify::ReadBack`]
//!   it has been read back and compared with what was read at the source.
//! - Several movers can [share](Share) a stage.
//! - With a journal, an interrupted stage continues: files, and parts of large files, are not copied
//!   twice.
//! - Nobody gets permissions of a copy that he does not have of its source, also where the target has no
//!   access control lists.
//! - Inside an instance no path and no symbolic link leads out of it.
#![warn(missing_docs)]

mod apply_logs;
mod context;
mod copy_file;
mod copy_large;
mod copy_range;
mod copy_small;
mod durability;
pub mod end;
mod error;
mod finish;
mod journal;
mod large_file;
mod location;
mod metadata;
mod mover;
mod open_copy;
mod progress;
mod publish;
mod request;
mod share;
mod split;
mod tree;
mod verify;
mod walk;
mod worker;

pub use apply_logs::apply_logs;
pub use end::{CannotActForUser, Identity, Namespace};
pub use error::{Problem, StageError};
pub use journal::{AppendFile, JournalHost, Os};
pub use location::StageLocation;
pub use mover::run_stage;
pub use progress::ProgressCounters;
pub use request::{ItemKind, StageItem, StageOptions, StageReport, StageRequest, Verify};
pub use share::{Share, ShareBarrier};
