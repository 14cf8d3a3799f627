//! The packet network.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod adaptive;
mod arrangements;
mod fabric;
mod harness;
mod interfaces;
mod probe;
mod structures;
