//! Tests of the reader.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod damage;
mod formats;
mod pydarshan;
mod real_logs;
mod writer;
