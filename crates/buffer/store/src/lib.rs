//! One storage node's flash: data objects, name space, log and recovery.
#![warn(missing_docs)]

mod batch_replies;
mod checkpoint;
mod context;
pub mod daemon;
mod driver;
pub mod format_version;
pub mod log;
mod lost_instances;
mod namespace;
pub mod node;
pub mod objects;
pub mod offline;
pub mod recovery;
pub mod shared_space;
mod state;
pub mod storage;
pub mod sync_failures;
mod tag_key;
mod volume;
