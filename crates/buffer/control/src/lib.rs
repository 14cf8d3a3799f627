//! The control plane of the burst buffer as pure state machines.
//!
//! [`controller`] turns requests, reports and the passing of time into effects: records to make
//! durable, commands to send, answers to give. [`node`] does the same on a storage node and
//! [`host`] on a compute node. None of them touches a socket, a disk or a clock; drivers do, and
//! so does a simulator that loses, delays and repeats their messages.
#![warn(missing_docs)]

pub mod compute_node;
pub mod controller;
pub mod messages;
pub mod records;
pub mod storage_node;
