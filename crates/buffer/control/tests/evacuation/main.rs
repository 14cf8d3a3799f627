//! Persistent instances move off storage nodes that an operator drains.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failures;
#[path = "../harness/mod.rs"]
mod harness;
mod moves;
mod pool;
mod stages;
