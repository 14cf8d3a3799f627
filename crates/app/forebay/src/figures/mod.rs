//! From result documents to figures: what is drawn of each kind of run.

pub mod ior;
pub mod phase;
pub mod traffic;
