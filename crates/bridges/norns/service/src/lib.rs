//! The data transfer service of NORNS: dataspaces, jobs, and tasks that copy, move and remove files
//! on behalf of the processes of jobs.
//!
//! A [`Service`] listens at two Unix sockets, one for all users and one for administrators. The kernel
//! identifies the caller; a task is accepted if the caller's job, or everybody, may use its
//! dataspaces, and runs with the caller's user, group and supplementary groups. Tasks wait in a
//! bounded queue for one of the workers, which copy with the movers of [`forebay_stage`]: a file gets
//! its name when it is complete. A task is on stable storage before its number is returned, so that
//! a service that was killed continues with it.
#![warn(missing_docs)]

mod caller;
mod execute;
mod measure;
mod place;
mod rates;
mod registry;
mod remote;
mod remove;
mod server;
mod service;
mod store;
mod table;
mod task;

pub use service::{Service, StartError};
