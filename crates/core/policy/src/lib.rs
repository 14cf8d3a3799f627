//! Decisions of the burst buffer: values in, values out.
//!
//! The state of a pool and a request become an [`allocate::Share`] on each chosen node; the
//! shares and a file become its [`layout::Layout`]; waiting stages become the order in which they
//! start; the uses of an instance become the permission to remove it or the reason not to.
//!
//! Nothing here asks for the time, for chance or for a disk, so the daemons and the simulator
//! decide alike. Ties are broken by the explicit order of [`pool::NodeId`].
#![warn(missing_docs)]

pub mod allocate;
pub mod copies;
pub mod layout;
pub mod pool;
pub mod removal;
pub mod staging;
