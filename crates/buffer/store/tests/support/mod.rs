//! Shared by the simulations: histories by seed, and a storage daemon in virtual time on a simulated
//! disk.
#![allow(dead_code, reason = "no simulation uses all of it")]

pub mod daemon;
pub mod log_space;
pub mod memory_objects;
pub mod memory_storage;
pub mod object_faults;
pub mod seeds;
