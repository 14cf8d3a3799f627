//! The figures of each kind of run, made from result documents.

pub mod collective;
pub mod darshan;
pub mod ior;
pub mod jobs;
pub mod observed;
pub mod phase;
pub mod sweep;
pub mod traffic;
