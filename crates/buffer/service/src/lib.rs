//! The control plane of the burst buffer.
//!
//! [`controller`] turns requests, reports and the passing of time into effects: records to make
//! durable, commands to send, answers to give. [`node`] does the same on a storage node and
//! [`host`] on a compute node. None of them touches a socket, a disk or a clock; drivers do, and
//! so does a simulator that loses, delays and repeats their messages.
//!
//! [`embedded`] drives all three in one process over a directory, with a storage daemon and
//! mounts; [`hosts`] drives each as a daemon on its own host; [`run`] brings a job script through
//! its whole life on either, and [`calls`] answers the job when it asks to stage.
#![warn(missing_docs)]

pub mod activity;
pub mod calls;
mod control;
pub mod controller;
pub mod database;
pub mod embedded;
pub mod host;
pub mod hosts;
pub mod node;
mod progress;
pub mod protocol;
pub mod run;
pub mod scrub;
pub mod show;
pub mod table;
pub mod views;

pub use control::Control;
pub use run::{Recovered, RunError, RunOptions, RunReport, recover, run_job};
