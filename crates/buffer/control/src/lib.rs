//! The control plane of the burst buffer as pure state machines.
//!
//! [`controller`] turns requests, reports and the passing of time into effects: records to make
//! durable, commands to send, replies to clients. [`storage_node`] does the same on a storage node
//! and [`compute_node`] on a compute node; [`messages`] are what they exchange. No code here touches
//! a socket, a disk, a thread or a clock: drivers do, and so does a simulator that loses, delays and
//! repeats the messages.
#![warn(missing_docs)]

pub mod compute_node;
pub mod controller;
pub mod messages;
pub mod records;
pub mod storage_node;
