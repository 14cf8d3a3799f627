//! The packet network.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod adaptive;
mod arrangements;
mod detours;
mod fabric;
mod harness;
mod input_queues;
mod interfaces;
mod probe;
mod structures;
