//! Types in messages.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod lock;
mod placement;
mod progress;
