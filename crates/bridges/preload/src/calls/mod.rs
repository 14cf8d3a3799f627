//! The intercepted functions of the C library.

pub mod attributes;
pub mod descriptors;
pub mod kernel;
pub mod names;
pub mod open;
pub mod processes;
pub mod stdio;
pub mod transfer;
