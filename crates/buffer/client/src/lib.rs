//! File-system client of the burst buffer: library and FUSE mount.
//!
//! [`Fs::attach`] opens sessions with the storage daemons of an instance; [`Fs`] has its operations
//! by inode and by path, [`File`] reads and writes. [`mount()`] mounts an [`Fs`] at a directory of
//! the host. [`Admin`] creates and removes instances.
#![warn(missing_docs)]

mod admin;
mod attachment;
mod backoff;
mod close_batch;
mod file;
mod fs;
mod mount;
mod mounted_instance;
mod path;
mod pool;
mod requester;
mod reservations;
mod session;
mod sessions;
mod system;
mod truncations;
mod unsynced;

pub use admin::Admin;
pub use backoff::{Backoff, Retries};
pub use file::File;
pub use fs::{DirPage, Fs, NewFile, Opened, Results, Space};
pub use mount::{Mount, MountError, MountOptions, MountReport, mount};
pub use mounted_instance::{KEY_VARIABLE, MountedInstance};
pub use session::ClientOptions;
pub use sessions::NodeAddresses;
pub use system::{Channel, Connection, Os, System};
