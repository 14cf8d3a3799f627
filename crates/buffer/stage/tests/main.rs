//! Staging between directories, instances and a parallel file system.

mod confined;
mod failures;
mod instance_copy;
mod lost_writes;
mod pfs_kinds;
mod phases;
mod read_back;
mod shares;
mod staging;
mod support;
