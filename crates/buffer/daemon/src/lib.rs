//! Drivers of the burst buffer's control plane.
//!
//! [`embedded`] drives controller, storage node and compute node in one process over a directory,
//! with a storage daemon and mounts; [`hosts`] drives each as a daemon on its own host; [`calls`]
//! answers a running job when it asks to stage.
#![warn(missing_docs)]

pub mod activity;
mod controller_client;
pub mod database;
pub mod embedded;
mod flash_wear;
pub mod hosts;
pub mod job_api;
pub mod mounts;
pub mod scrub;

pub use activity::Status;
pub use controller_client::ControllerClient;
