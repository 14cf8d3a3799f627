//! One storage node's flash: data objects, name space, log and recovery.
#![warn(missing_docs)]

pub mod daemon;
pub mod log;
pub mod namespace;
pub mod node;
pub mod objects;
pub mod recovery;
pub mod storage;
