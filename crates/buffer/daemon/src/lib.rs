//! Drivers of the burst buffer's control plane: they give the state machines of `forebay-control`
//! sockets, threads, clocks, databases and mounts.
//!
//! Controller, storage node and compute node have one driver each. [`Daemon`] runs one of them,
//! connected over TCP; [`embedded`] runs all three in one process over a directory.
//! [`ControllerClient`] sends requests to a controller.
#![warn(missing_docs)]

pub mod activity;
mod client;
mod clock;
pub mod cluster;
mod compute;
pub mod config;
mod connection;
mod control_channel;
mod controller;
pub mod database;
mod directory;
pub mod embedded;
mod error;
mod flash_wear;
mod job_api;
mod link;
mod messages;
pub mod mounts;
mod persistent;
mod request_ids;
pub mod scrub;
mod service;
pub mod sessions;
pub mod storage;
mod versions;
mod worker;

pub use activity::Status;
pub use client::ControllerClient;
pub use cluster::{Daemon, host_name};
pub use config::{ConfigError, PoolConfig};
pub use error::DaemonError;
pub use persistent::attach_persistent;
