//! A buffer of one user on the hosts of an allocation, without an administrator.
//!
//! The *leader* starts a process on each host with a launcher. Each of these runs a storage daemon
//! and an agent in a private local directory, under a key of the instance's own; the leader runs the
//! controller, and a job in the pool that they form. Leader and hosts exchange messages through the
//! launcher's standard input and output, so that a host notices at once that the leader is gone, and
//! the leader that a host is.
#![warn(missing_docs)]

mod configuration;
mod error;
mod fleet;
mod home;
pub mod host_list;
mod launcher;
mod leader;
mod messages;
mod network;
mod node;
mod recover;
mod run_watch;
mod session;
mod stages;
mod watcher;

pub use error::AdhocError;
pub use fleet::Reach;
pub use launcher::Launcher;
pub use leader::{AdhocOptions, LEADER_VARIABLE, run};
pub use node::run_node;
pub use recover::{RecoverOptions, recover};
pub use session::{hold, start, stop};
pub use stages::StagedItem;
pub use watcher::watch_leader;
