//! The packet network.

mod adaptive;
mod arrangements;
mod fabric;
mod harness;
mod interfaces;
mod probe;
mod structures;
