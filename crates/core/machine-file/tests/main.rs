//! Machine files.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bases;
mod builtin;
mod errors;
mod machine_file;
mod settings;
mod structures;
