//! Staging between directories, instances and a parallel file system.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod confined;
mod failures;
mod instance_copy;
mod logs;
mod lost_writes;
mod pfs_kinds;
mod phases;
mod read_back;
mod shares;
mod small_copies;
mod small_files;
mod staging;
mod support;
