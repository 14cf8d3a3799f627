//! The parts of a transport, separately. `security.rs` tests whole connections.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod admission;
mod auth;
mod chunk;
mod connection;
mod errno;
mod frame;
mod job_socket;
mod listener;
mod record;
mod trailing;
mod writeback;
