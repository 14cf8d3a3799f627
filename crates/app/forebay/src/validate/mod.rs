//! Comparison of simulations with published measurements.

pub mod cases;
pub mod published;
pub mod verdict;
